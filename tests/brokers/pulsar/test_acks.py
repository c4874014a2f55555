"""Acks and seeks on Pulsar: inside batches of producers, after a sidecar has left, and redelivery counts."""

import asyncio
from typing import Any

import pulsar as library
import pytest

from sidecar.brokers.base import AtPosition, AtTime, SeekTarget, SeekTo
from sidecar.brokers.pulsar.options import SubscriptionType
from sidecar.model.records import Commit, Lane, Message, Run
from tests.brokers.harness import consuming, name, new_topic, numbered, publish
from tests.brokers.pulsar.harness import await_no_backlog, publish_batches, running
from tests.e2e.pulsar.snapshot import client_of
from tests.event_loop import on_event_loop
from tests.servers.fixtures import NewPulsar
from tests.servers.pulsar import PulsarServer

EXCLUSIVE, SHARED = SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED


@pytest.mark.parametrize("kind", SubscriptionType)
@on_event_loop
async def test_acks_inside_a_batch_of_a_producer_survive_a_restart(
    pulsar: PulsarServer, kind: SubscriptionType
) -> None:
    topic = new_topic(pulsar)
    publish_batches(pulsar, topic, *numbered(10))
    lane = Lane(topic, 0)
    async with running(pulsar, subscription_type=kind) as broker:
        async with consuming(broker, topic) as consumer:
            await consumer.take(10)
            at = consumer.positions
            # Ten messages in one entry.
            assert at == list(range(at[0], at[0] + 10))
            await consumer.commit(lane, Commit(at[2], (Run(at[4], at[6] + 1), Run(at[9], at[9] + 1))))
        async with consuming(broker, topic) as consumer:
            await consumer.take_values([b"2", b"3", b"7", b"8"])
            await consumer.stays_silent()
            assert consumer.values == [b"2", b"3", b"7", b"8"]
            await consumer.commit(lane, Commit(at[9] + 1))
    await_no_backlog(pulsar, topic, "group")


@on_event_loop
async def test_a_broker_without_acks_inside_batches_replays_the_batch_and_loses_nothing(new_pulsar: NewPulsar) -> None:
    server = new_pulsar(properties={"acknowledgmentAtBatchIndexLevelEnabled": "false"})
    for kind in (EXCLUSIVE, SHARED):
        topic = new_topic(server)
        publish_batches(server, topic, *numbered(10))
        async with running(server, subscription_type=kind) as broker:
            async with consuming(broker, topic) as consumer:
                await consumer.take(10)
                at = consumer.positions
                await consumer.commit(Lane(topic, 0), Commit(at[5], (Run(at[7], at[9] + 1),)))
            async with consuming(broker, topic) as consumer:
                await consumer.take_values(numbered(10)[5:7])
            async with consuming(broker, topic) as consumer:
                await consumer.take_values(numbered(10))
                await consumer.commit(Lane(topic, 0), Commit(at[9] + 1))
            async with consuming(broker, topic) as consumer:
                await consumer.stays_silent()


@on_event_loop
async def test_a_seek_into_a_batch_is_exact_and_durable(pulsar: PulsarServer) -> None:
    topic = new_topic(pulsar)
    publish_batches(pulsar, topic, *numbered(10))
    lane = Lane(topic, 0)
    async with running(pulsar, subscription_type=EXCLUSIVE) as broker:
        async with consuming(broker, topic) as consumer:
            await consumer.take(10)
            at = consumer.positions
            consumer.forget()
            assert await consumer.source.seek({lane: AtPosition(at[6])}) == {lane: at[6]}
            assert await consumer.take(4) == numbered(10)[6:]
            assert consumer.positions == at[6:]
        async with consuming(broker, topic) as consumer:
            assert await consumer.take(4) == numbered(10)[6:]
            await consumer.stays_silent()
            assert consumer.values == numbered(10)[6:]


@pytest.mark.parametrize("there", [0, 10])
@pytest.mark.parametrize("target", [AtTime(1 << 42), AtPosition(1 << 62), SeekTo.END])
@on_event_loop
async def test_records_that_are_published_while_a_seek_to_the_end_is_resolved_are_not_skipped(
    pulsar: PulsarServer, target: SeekTarget, there: int
) -> None:
    topic, group = new_topic(pulsar), name("group")
    if there:
        publish_batches(pulsar, topic, *numbered(there))
    lane = Lane(topic, 0)
    async with running(pulsar, subscription_type=EXCLUSIVE) as broker:
        resolve = broker.resolve

        async def resolve_slowly(*arguments: Any) -> int:
            found = await resolve(*arguments)
            await publish(broker, topic, b"meanwhile")
            return found

        async with consuming(broker, topic, group=group) as consumer:
            await consumer.take(there)
            consumer.forget()
            broker.resolve = resolve_slowly  # type: ignore[method-assign]
            end = (await broker.lane_ends(topic))[lane].end
            assert await consumer.source.seek({lane: target}) == {lane: end}
            await publish(broker, topic, b"after")
            assert await consumer.take(2) == [b"meanwhile", b"after"]
        # The broker's own cursor is there, too.
        assert pulsar.backlog(topic, group) == 2


@pytest.mark.parametrize("kind", [SHARED, SubscriptionType.KEY_SHARED])
@on_event_loop
async def test_the_unacked_records_of_a_closed_source_go_to_others_at_once(
    pulsar: PulsarServer, kind: SubscriptionType
) -> None:
    topic = new_topic(pulsar)
    async with (
        running(pulsar, subscription_type=kind) as one,
        running(pulsar, subscription_type=kind) as other,
        consuming(one, topic) as leaving,
        consuming(other, topic) as staying,
    ):
        publish_batches(pulsar, topic, *numbered(1))
        for value in numbered(200)[1:]:
            await one.publish(topic, [Message(value, value, lane=0)])
        while len(leaving.values) + len(staying.values) < 200:
            await leaving.poll(timeout=0.05)
            await staying.poll(timeout=0.05)
        assert leaving.values
        assert staying.values
        last = staying.positions[-1]
        await leaving.close()
        await staying.take_values(numbered(200))
        assert sorted(staying.values) == sorted(numbered(200))
        # They are flagged, and positions ascend as the core requires, whatever the ids are.
        assert all(chunk.possibly_processed for chunk in staying.chunks)
        assert staying.positions == sorted(set(staying.positions))
        assert staying.positions[-1] > last
        await staying.commit(Lane(topic, 0), Commit(staying.positions[-1] + 1))
    await_no_backlog(pulsar, topic, "group")


@on_event_loop
async def test_the_redelivery_count_of_the_broker_is_passed_on(pulsar: PulsarServer) -> None:
    topic = new_topic(pulsar)
    publish_batches(pulsar, topic, b"value")
    settings = {"initial_position": library.InitialPosition.Earliest, "negative_ack_redelivery_delay_ms": 100}
    with client_of(pulsar) as client:
        other = client.subscribe(f"{topic}-partition-0", "group", library.ConsumerType.Shared, **settings)
        for _ in range(2):
            other.negative_acknowledge(other.receive(20_000))
        other.receive(20_000)
        async with running(pulsar, subscription_type=SHARED) as broker, consuming(broker, topic) as consumer:
            # Only now, because a broker without consumers forgets its counts.
            await asyncio.to_thread(other.close)
            await consumer.take(1)
            assert [chunk.delivered_before for chunk in consumer.chunks] == [[2]]

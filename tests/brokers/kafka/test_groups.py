"""Groups on a real Kafka: protocols, broadcast, assignment, long handlers."""

import asyncio
import os
import time
from collections import Counter
from typing import Any

import pytest

from sidecar.brokers.base import Lost, Revoked
from sidecar.brokers.kafka import KafkaBroker
from sidecar.brokers.kafka.options import GroupProtocol
from sidecar.model.records import Assigned, Commit, Lane
from tests.brokers.harness import Consumer, consuming, name, new_topic, numbered
from tests.brokers.kafka.harness import BOTH, running, shared_out
from tests.event_loop import on_event_loop
from tests.servers.fixtures import NewKafka
from tests.servers.kafka import KafkaServer
from tests.servers.kafka_groups import assignments


def _facts(broker: KafkaBroker) -> str:
    return " ".join(f"{key}: {value}" for key, value in broker.facts.items())


@on_event_loop
async def test_the_broker_assigns_lanes_where_it_can(kafka: KafkaServer) -> None:
    topic = new_topic(kafka)
    async with running(kafka) as broker, consuming(broker, topic, group=name("group")) as consumer:
        await consumer.until(consumer.assigned)
        assert "consumer" in _facts(broker), "the facts say which protocol it is"


@on_event_loop
async def test_members_assign_lanes_themselves_where_the_broker_cannot(new_kafka: NewKafka) -> None:
    kafka = new_kafka(properties={"group.coordinator.rebalance.protocols": "classic"})
    topic, group = new_topic(kafka, 2), name("group")
    kafka.publish(topic, *numbered(5))
    async with running(kafka) as broker, consuming(broker, topic, group=group) as consumer:
        assert await consumer.take(5) == numbered(5)
        assert "classic" in _facts(broker)
        await consumer.commit(Lane(topic, 0), Commit(5))
    assert kafka.committed(group, topic, [0])[0][0] == 5


@on_event_loop
async def test_a_group_can_change_its_protocol_between_restarts(kafka: KafkaServer) -> None:
    topic, group = new_topic(kafka), name("group")
    kafka.publish(topic, *numbered(6))
    for number, protocol in enumerate((GroupProtocol.CLASSIC, GroupProtocol.CONSUMER, GroupProtocol.CLASSIC)):
        async with running(kafka, group_protocol=protocol) as broker, consuming(broker, topic, group=group) as consumer:
            await consumer.take(6 - 2 * number)
            assert consumer.values == numbered(6)[2 * number :]
            await consumer.commit(Lane(topic, 0), Commit(2 * number + 2))


@on_event_loop
async def test_in_a_broadcast_every_pod_gets_every_record(kafka: KafkaServer) -> None:
    topic, group = new_topic(kafka, 2), name("group")
    kafka.publish(topic, *numbered(5), lane=0)
    kafka.publish(topic, *numbered(5, "more-"), lane=1)
    async with (
        running(kafka, broadcast=True, instance="pod-1") as one,
        running(kafka, broadcast=True, instance="pod-2") as two,
        consuming(one, topic, group=group) as first,
        consuming(two, topic, group=group) as second,
    ):
        for consumer in (first, second):
            await consumer.take_values([*numbered(5), *numbered(5, "more-")])
            assert len(consumer.values) == 10
        await first.commit(Lane(topic, 0), Commit(5))
    groups = [found.group_id for found in kafka.admin.list_consumer_groups().result(20).valid]
    mine = sorted(found for found in groups if group in found)
    assert len(mine) == 2
    assert group not in mine
    assert ["pod-1" in mine[0], "pod-2" in mine[1]] == [True, True]


@BOTH
@on_event_loop
async def test_lanes_of_the_retry_topic_do_not_count_when_lanes_are_assigned_to_pods(
    kafka: KafkaServer, protocol: GroupProtocol
) -> None:
    topic, group = name("topic"), name("group")
    retry = f"{group}.offramp.retry"
    kafka.make_topic(topic, 4)
    spec: dict[str, Any] = {"group": group, "own_topics": {retry: 8}}
    # The default of brokers.
    usual: dict[str, Any] = {"group_protocol": protocol, "properties": {"group.remote.assignor": "uniform"}}
    async with running(kafka, **usual) as one, running(kafka, **usual) as other:
        first = await Consumer.open(one, topic, **spec)
        await first.until(lambda: len(first.assigned()) == 12)
        second = await Consumer.open(other, topic, **spec)
        await shared_out(first, second, 12)
        assert Counter(lane.topic for lane in second.assigned()) == {topic: 2, retry: 4}
        await asyncio.gather(first.close(), second.close())


@BOTH
@on_event_loop
async def test_the_time_that_revokes_wait_is_counted(kafka: KafkaServer, protocol: GroupProtocol) -> None:
    topic, group = new_topic(kafka, 2), name("group")
    async with (
        running(kafka, group_protocol=protocol) as stays,
        running(kafka, group_protocol=protocol) as comes,
        consuming(stays, topic, group=group) as first,
    ):
        await first.until(lambda: len(first.assigned()) == 2)
        second = await Consumer.open(comes, topic, group=group)
        joining = asyncio.create_task(second.until(second.assigned))
        await first.until(lambda: any(isinstance(event, Revoked) for event in first.events))
        began = time.monotonic()
        await first.poll(timeout=0.2)
        waited = time.monotonic() - began
        await first.source.release([Lane(topic, 0), Lane(topic, 1)])
        await joining
        await first.poll()
        await first.source.ends()
        assert first.source.revoke_seconds >= waited
        await second.close()


#: seconds; with the protocol `consumer` the library accepts no less than its default session timeout, which is long
INTERVALS = pytest.mark.parametrize(
    ("protocol", "interval"),
    [(GroupProtocol.CLASSIC, 6.0), *([(GroupProtocol.CONSUMER, 45.0)] if os.environ.get("OFFRAMP_TEST_LONG") else [])],
)


def _interval(seconds: float) -> dict[str, str]:
    return {"max.poll.interval.ms": str(int(seconds * 1000))}


@INTERVALS
@on_event_loop
async def test_a_handler_that_takes_longer_than_the_poll_interval_keeps_its_lanes(
    kafka: KafkaServer, protocol: GroupProtocol, interval: float
) -> None:
    """All lanes are paused for twice as long, and nothing is settled."""
    topic, group = new_topic(kafka, 2), name("group")
    for lane in range(2):
        kafka.publish(topic, *numbered(3000), lane=lane)
    async with (
        running(kafka, group_protocol=protocol, properties=_interval(interval)) as broker,
        consuming(broker, topic, group=group) as consumer,
    ):
        await consumer.until(lambda: {chunk.lane.number for chunk in consumer.chunks} == {0, 1}, max_records=50)
        await consumer.source.pause([Lane(topic, 0), Lane(topic, 1)])
        before = len(consumer.values)
        consumer.forget()
        (mine,) = assignments(kafka, group).values()
        ends = time.monotonic() + interval * 2
        while time.monotonic() < ends:
            # The core always polls; records that were on their way may come.
            await consumer.poll(timeout=1.0)
        assert not [event for event in consumer.events if isinstance(event, Assigned | Revoked | Lost)]
        assert [*assignments(kafka, group).values()] == [mine]
        await consumer.commit(Lane(topic, 0), Commit(1))
        await consumer.source.resume([Lane(topic, 0), Lane(topic, 1)])
        await consumer.take(6000 - before)
        assert len(consumer.values) == 6000 - before
    assert kafka.committed(group, topic, [0])[0][0] == 1


@INTERVALS
@on_event_loop
async def test_a_core_that_does_not_even_poll_for_a_while_keeps_its_lanes(
    kafka: KafkaServer, protocol: GroupProtocol, interval: float
) -> None:
    """As when the event loop is blocked: the poll thread polls."""
    topic, group = new_topic(kafka), name("group")
    kafka.publish(topic, *numbered(5000))
    async with (
        running(kafka, group_protocol=protocol, properties=_interval(interval)) as broker,
        consuming(broker, topic, group=group) as consumer,
    ):
        await consumer.take(10, max_records=10)
        time.sleep(interval * 1.5)  # noqa: ASYNC251 - blocks the loop on purpose
        await consumer.take(5000)
        assert consumer.values == numbered(5000)
        assert not [event for event in consumer.events if isinstance(event, Revoked | Lost)]

"""Lanes of Pulsar that are added while a group consumes, consumers that are lost, and acks that the broker forgets."""

import asyncio

import pytest

from sidecar.brokers.base import Lost
from sidecar.brokers.pulsar.options import SubscriptionType
from sidecar.model.errors import Refused
from sidecar.model.records import Assigned, Commit, Lane, Message, Run, Start
from tests.brokers.harness import Consumer, consuming, name, new_topic, numbered, publish, read
from tests.brokers.pulsar.harness import await_no_backlog, reset_cursor, running
from tests.event_loop import on_event_loop
from tests.servers.process import free_ports
from tests.servers.pulsar import PulsarServer

EXCLUSIVE, SHARED = SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED


@on_event_loop
async def test_new_partitions_are_picked_up_from_their_start(pulsar: PulsarServer) -> None:
    topic = new_topic(pulsar, 1)
    async with running(pulsar) as broker, consuming(broker, topic, start=Start.LATEST) as consumer:
        await consumer.until(consumer.assigned)
        pulsar.admin("POST", f"persistent/public/default/{topic}/partitions", 3)
        async with running(pulsar) as other:
            # It is published before the group has noticed the partition, and is not skipped.
            await publish(other, topic, b"new", lane=2)
        await consumer.take_values([b"new"])
        assert set(consumer.assigned()) == {Lane(topic, number) for number in range(3)}


@on_event_loop
async def test_a_topic_without_partitions_is_one_lane(pulsar: PulsarServer) -> None:
    topic = name("topic")
    pulsar.admin("PUT", f"persistent/public/default/{topic}")
    async with running(pulsar) as broker:
        places = await broker.publish(topic, [Message(b"k", value) for value in numbered(3)])
        assert {place.lane for place in places} == {0}
        async with consuming(broker, topic) as consumer:
            assert await consumer.take(3) == numbered(3)
            assert set(consumer.assigned()) == set(await broker.lane_ends(topic)) == {Lane(topic, 0)}


@on_event_loop
async def test_topics_of_a_pattern_are_picked_up_and_no_others(pulsar: PulsarServer) -> None:
    prefix = name("pattern")
    for one, lanes in {"eu": 2, "us": 1}.items():
        pulsar.make_topic(f"{prefix}-{one}", lanes)
    pulsar.make_topic(f"{prefix}.other", 1)
    pulsar.make_topic(f"{prefix}-group.offramp.dead", 1)
    async with running(pulsar) as broker, consuming(broker, f"^{prefix}-.*") as consumer:
        await consumer.until(lambda: len(consumer.assigned()) == 3)
        pulsar.make_topic(f"{prefix}-asia", 1)
        await broker.publish(f"{prefix}-asia", [Message(None, b"late")])
        await consumer.take_values([b"late"])
        lanes = {str(lane).removeprefix(prefix) for lane in consumer.assigned()}
        assert lanes == {"-eu/0", "-eu/1", "-us/0", "-asia/0"}


@on_event_loop
async def test_a_topic_of_a_pattern_that_was_created_while_nobody_consumed_is_read_from_its_start(
    pulsar: PulsarServer,
) -> None:
    prefix, own = name("pattern"), {name("own"): 1}
    pulsar.make_topic(f"{prefix}-a", 1)
    async with running(pulsar) as broker:
        await broker.publish(f"{prefix}-a", [Message(None, b"old")])
        spec = {"group": "group", "start": Start.LATEST, "own_topics": own}
        async with consuming(broker, f"^{prefix}-.*", **spec) as consumer:
            await consumer.until(lambda: len(consumer.assigned()) == 2)
        pulsar.make_topic(f"{prefix}-b", 1)
        await broker.publish(f"{prefix}-b", [Message(None, b"new")])
        async with consuming(broker, f"^{prefix}-.*", **spec) as consumer:
            assert await consumer.take(1) == [b"new"]


@on_event_loop
async def test_topics_of_another_namespace_are_consumed_by_setting_and_by_full_name(pulsar: PulsarServer) -> None:
    namespace = f"public/{name('space')}"
    pulsar.admin("PUT", f"namespaces/{namespace}", {})
    topic = name("topic")
    async with running(pulsar, namespace=namespace) as broker:
        await broker.ensure_topic(topic, 2)
        await publish(broker, topic, b"here", lane=1)
        async with consuming(broker, topic) as consumer:
            await consumer.take_values([b"here"])
    async with running(pulsar) as broker:
        full = f"persistent://{namespace}/{topic}"
        async with consuming(broker, full, group="other") as consumer:
            await consumer.take_values([b"here"])
            assert set(consumer.assigned()) == {Lane(full, 0), Lane(full, 1)}


@on_event_loop
async def test_a_lane_whose_consumer_is_gone_is_lost_and_joined_again(pulsar: PulsarServer) -> None:
    topic = new_topic(pulsar)
    async with running(pulsar, subscription_type=EXCLUSIVE) as broker, consuming(broker, topic) as consumer:
        await publish(broker, topic, *numbered(5))
        await consumer.take(5)
        at = consumer.positions
        await consumer.commit(Lane(topic, 0), Commit(at[2]))
        (lane,) = consumer.source._lanes.values()  # type: ignore[attr-defined]
        # As when the library gives up on its consumer.
        await asyncio.to_thread(lane._consumer.close)
        consumer.forget()
        await consumer.take_values(numbered(5)[2:])
        assert [type(event) for event in consumer.events] == [Lost, Assigned]
        assert consumer.values == numbered(5)[2:]


@on_event_loop
async def test_a_second_exclusive_sidecar_is_refused_until_the_first_leaves(pulsar: PulsarServer) -> None:
    topic = new_topic(pulsar)
    async with (
        running(pulsar, subscription_type=EXCLUSIVE) as one,
        running(pulsar, subscription_type=EXCLUSIVE) as two,
    ):
        async with consuming(one, topic):
            with pytest.raises(Refused, match="has it exclusively"):
                async with consuming(two, topic):
                    pass
        async with consuming(two, topic) as consumer:
            await two.publish(topic, [Message(None, b"value")])
            await consumer.take_values([b"value"])


@on_event_loop
async def test_a_consumer_of_another_subscription_type_is_refused(pulsar: PulsarServer) -> None:
    topic = new_topic(pulsar)
    async with (
        running(pulsar, subscription_type=SHARED) as one,
        running(pulsar, subscription_type=SubscriptionType.FAILOVER) as two,
        consuming(one, topic),
    ):
        with pytest.raises(Refused, match="another subscription_type"):
            async with consuming(two, topic):
                pass


@pytest.mark.parametrize("kind", list(SubscriptionType))
@on_event_loop
async def test_the_backlog_is_known(pulsar: PulsarServer, kind: SubscriptionType) -> None:
    topic = new_topic(pulsar)
    async with running(pulsar, subscription_type=kind) as broker, consuming(broker, topic) as consumer:
        await publish(broker, topic, *numbered(7))
        await consumer.take(7)
        await consumer.source._measure()  # type: ignore[attr-defined]
        assert (await consumer.source.ends())[Lane(topic, 0)].backlog == 7


@on_event_loop
async def test_without_the_admin_api_consuming_works(pulsar: PulsarServer) -> None:
    topic, group = new_topic(pulsar, 2), name("group")
    pulsar.make_topic(f"{group}.retry", 8)
    (port,) = free_ports(1)
    nowhere = f"http://127.0.0.1:{port}"
    async with (
        running(pulsar, admin_url=nowhere) as broker,
        consuming(broker, topic, group=group, own_topics={f"{group}.retry": 8}) as consumer,
    ):
        await publish(broker, topic, *numbered(5), lane=1)
        assert await consumer.take(5) == numbered(5)
        at = consumer.positions
        await consumer.commit(Lane(topic, 1), Commit(at[-1] + 1))
        assert await consumer.source.ends() == {}
        # The position of the group is not known, so no lane counts as new.
        assert not any(assigned.first for assigned in consumer.assigned().values())
    await_no_backlog(pulsar, topic, group)


@on_event_loop
async def test_a_cursor_reset_by_an_operator_delivers_acked_records_again(pulsar: PulsarServer) -> None:
    topic, group = new_topic(pulsar), name("group")
    async with running(pulsar) as broker, consuming(broker, topic, group=group) as consumer:
        await publish(broker, topic, *numbered(10))
        await consumer.take(10)
        at = consumer.positions
        await consumer.commit(Lane(topic, 0), Commit(at[7]))
        consumer.forget()
        await reset_cursor(pulsar, topic, group)
        # Unacked records are not delivered twice; only those that were acked come again.
        await consumer.take_values(numbered(7))
        await consumer.stays_silent()
        assert sorted(consumer.values) == numbered(7)


@pytest.mark.parametrize("kind", [EXCLUSIVE, SubscriptionType.FAILOVER])
@on_event_loop
async def test_when_the_broker_forgets_acks_beyond_the_position_an_exclusive_lane_starts_again_in_order_and_flagged(
    pulsar: PulsarServer, kind: SubscriptionType
) -> None:
    topic = new_topic(pulsar)
    async with running(pulsar, subscription_type=kind) as broker, consuming(broker, topic) as consumer:
        await publish(broker, topic, *numbered(10))
        await consumer.take(10)
        at = consumer.positions
        await consumer.commit(Lane(topic, 0), Commit(at[0], (Run(at[3], at[6] + 1),)))
        consumer.forget()
        # As when a broker is killed before it has stored them.
        await reset_cursor(pulsar, topic, "group")
        # They do not come after later ones: the lane is joined again.
        await _starts_again(consumer)
        assert consumer.positions == at


@pytest.mark.parametrize("kind", [EXCLUSIVE, SubscriptionType.FAILOVER])
@on_event_loop
async def test_when_the_broker_forgets_a_cumulative_ack_an_exclusive_lane_starts_again(
    pulsar: PulsarServer, kind: SubscriptionType
) -> None:
    topic = new_topic(pulsar)
    async with running(pulsar, subscription_type=kind) as broker, consuming(broker, topic) as consumer:
        await publish(broker, topic, *numbered(10))
        await consumer.take(10)
        await consumer.commit(Lane(topic, 0), Commit(consumer.positions[-1] + 1))
        consumer.forget()
        await reset_cursor(pulsar, topic, "group")
        # The library drops them: it remembers the ack.
        await consumer.stays_silent()
        for _ in range(2):
            await consumer.source._measure()  # type: ignore[attr-defined]
        await _starts_again(consumer)


async def _starts_again(consumer: Consumer) -> None:
    """The lane is joined again, and all its ten records come in order, flagged."""
    await consumer.take_values(numbered(10))
    assert consumer.values == numbered(10)
    assert [type(event) for event in consumer.events] == [Lost, Assigned]
    assert all(chunk.possibly_processed for chunk in consumer.chunks)


@on_event_loop
async def test_closed_consumers_and_readers_are_not_kept_by_the_client(pulsar: PulsarServer) -> None:
    topic, group = new_topic(pulsar), name("group")
    async with running(pulsar) as broker:
        at = await publish(broker, topic, *numbered(3))
        async with consuming(broker, topic, group=group) as consumer:
            await consumer.take(3)
        assert await read(broker, Lane(topic, 0), Run(at[0], at[-1] + 1)) == numbered(3)
        assert broker.client._client._consumers == []

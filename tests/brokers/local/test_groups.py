"""Groups and lanes of the embedded broker, beyond the adapter contract."""

import asyncio
from pathlib import Path

import pytest

from sidecar.brokers.base import SourceSpec
from sidecar.model.errors import NotFound, Refused, TooLarge, Unavailable
from sidecar.model.records import Assigned, Commit, Header, Lane, Message, Run, Start
from sidecar.settings import BatchSettings, SubscriptionSettings
from sidecar.subscription.subscription import Subscription
from tests.brokers.harness import WAIT_TIMEOUT, consuming, numbered, publish
from tests.brokers.local.harness import positions, running
from tests.event_loop import on_event_loop
from tests.promises.adjustable_time import until
from tests.promises.audit import Audit
from tests.promises.worker import Worker


@on_event_loop
async def test_each_group_has_positions_of_its_own(tmp_path: Path) -> None:
    async with running(tmp_path, lanes=2) as broker:
        await publish(broker, "topic", *numbered(10), lane=1)
        async with consuming(broker, "topic", group="b") as consumer:
            await consumer.take(10)
            await consumer.commit(Lane("topic", 1), Commit(4))
            async with consuming(broker, "topic", group="a", start=Start.LATEST):
                pass
            one, other = Lane("topic", 0), Lane("topic", 1)
            assert await positions(broker) == {"a": {one: 0, other: 10}, "b": {one: 0, other: 4}}


@on_event_loop
async def test_each_lane_is_assigned_as_first_only_to_a_group_that_is_new_in_it(tmp_path: Path) -> None:
    async with running(tmp_path, lanes=1) as broker:
        async with consuming(broker, "old") as consumer:
            await consumer.until(consumer.assigned)
            assert consumer.events == [Assigned(Lane("old", 0), 0, first=True)]
        async with consuming(broker, "old", "new") as consumer:
            await broker.add_lanes("old", 2)
            await consumer.until(lambda: len(consumer.assigned()) == 3)
            told = {str(lane): assigned.first for lane, assigned in consumer.assigned().items()}
            assert told == {"old/0": False, "old/1": True, "new/0": True}


@on_event_loop
async def test_a_deleted_group_starts_from_the_beginning(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await publish(broker, "topic", *numbered(3))
        async with consuming(broker, "topic") as consumer:
            await consumer.take(3)
            await consumer.commit(Lane("topic", 0), Commit(3))
        await broker.delete_group("group")
        with pytest.raises(NotFound, match="There are none"):
            await broker.delete_group("group")
        async with consuming(broker, "topic") as consumer:
            assert await consumer.take(3) == numbered(3)


@on_event_loop
async def test_a_group_that_is_consumed_cannot_be_deleted(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        async with consuming(broker, "topic"):
            with pytest.raises(Refused, match="'group' is being consumed"):
                await broker.delete_group("group")
        with pytest.raises(NotFound, match="no group 'other'"):
            await broker.delete_group("other")


@on_event_loop
async def test_a_group_consumes_a_topic_only_once_at_a_time(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        async with consuming(broker, "one", "two"):
            with pytest.raises(Refused, match="'group' already consumes two"):
                await broker.subscribe(SourceSpec("group", ("two", "three"))).open()
            async with consuming(broker, "three"):
                pass
        async with consuming(broker, "two", "three"):
            pass


@on_event_loop
async def test_lanes_that_are_added_are_assigned_while_running(tmp_path: Path) -> None:
    async with running(tmp_path, lanes=1) as broker:
        async with consuming(broker, "topic", start=Start.LATEST) as consumer:
            await consumer.until(consumer.assigned)
            await broker.add_lanes("topic", 3)
            await publish(broker, "topic", b"value", lane=2)
            assert await consumer.take(1) == [b"value"]
            assert set(consumer.assigned()) == {Lane("topic", number) for number in range(3)}
        with pytest.raises(NotFound):
            await broker.add_lanes("other", 3)


@on_event_loop
async def test_lanes_that_are_added_belong_to_a_group_from_their_start_even_at_latest(tmp_path: Path) -> None:
    async with running(tmp_path, lanes=1) as broker:
        async with consuming(broker, "topic", start=Start.LATEST):
            pass
        await broker.add_lanes("topic", 2)
        await publish(broker, "topic", b"value", lane=1)
        async with consuming(broker, "topic", start=Start.LATEST) as consumer:
            assert await consumer.take(1) == [b"value"]


@on_event_loop
async def test_the_retry_topic_of_a_group_is_read_from_its_start_even_at_latest(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await publish(broker, "group.retry", b"parked")
        async with consuming(broker, "topic", start=Start.LATEST, own_topics={"group.retry": 2}) as consumer:
            assert await consumer.take(1) == [b"parked"]


@on_event_loop
async def test_any_number_of_acks_beyond_the_position_survive(tmp_path: Path) -> None:
    lane = Lane("topic", 0)
    beyond = tuple(Run(at, at + 1) for at in range(1, 20_000, 2))
    async with running(tmp_path, lanes=1) as broker:
        await publish(broker, "topic", *numbered(20_001))
        async with consuming(broker, "topic") as consumer:
            await consumer.take(20_001)
            await consumer.commit(lane, Commit(0, beyond))
    async with running(tmp_path) as broker, consuming(broker, "topic") as consumer:
        # This broker does not deliver settled records again.
        await consumer.take(10_001)
        assert [record.position for record in consumer.records] == list(range(0, 20_001, 2))
        assert consumer.events == [Assigned(lane, 0, beyond)]
        await consumer.stays_silent()


@on_event_loop
async def test_a_lane_that_is_settled_to_its_end_does_not_keep_others_waiting(tmp_path: Path) -> None:
    async with running(tmp_path, lanes=4) as broker:
        for lane in range(4):
            for _ in range(2):
                # A block each, so that the second one can be skipped alone.
                await publish(broker, "topic", bytes(20_000), lane=lane)
        async with consuming(broker, "topic") as consumer:
            for lane in range(3):
                await consumer.commit(Lane("topic", lane), Commit(0, (Run(1, 2),)))
        async with consuming(broker, "topic") as consumer, asyncio.timeout(WAIT_TIMEOUT / 2):
            await consumer.take(5, max_records=1, timeout=WAIT_TIMEOUT)
        places = sorted((record.lane, record.position) for record in consumer.records)
        assert places == [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1)]


@on_event_loop
async def test_a_commit_past_the_end_of_the_lane_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, consuming(broker, "topic") as consumer:
        await publish(broker, "topic", *numbered(3))
        for commit in (Commit(4), Commit(-1), Commit(0, (Run(2, 4),))):
            with pytest.raises(Refused, match="topic/0 ends at 3"):
                await consumer.commit(Lane("topic", 0), commit)


@on_event_loop
async def test_publishing_creates_no_more_topics_than_configured_but_the_sidecar_has_all_it_needs(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, max_topics=2) as broker:
        await publish(broker, "one", b"1")
        await publish(broker, "two", b"1")
        with pytest.raises(Refused, match=r"There is no topic 'three'.* there are 2 topics"):
            await publish(broker, "three", b"1")
        await publish(broker, "two", b"2")
        async with consuming(broker, "configured") as consumer:
            await consumer.until(consumer.assigned)
        await broker.ensure_topic("group.offramp.retry", 3)
        await broker.publish("group.offramp.dead", [Message(None, b"dead", aside=True)])
        with pytest.raises(Refused):
            await publish(broker, "three", b"1")
    async with running(tmp_path, max_topics=0) as broker:
        await publish(broker, "one", b"2")
        with pytest.raises(Refused):
            await publish(broker, "three", b"1")


@on_event_loop
async def test_a_record_over_the_limit_is_too_large(tmp_path: Path) -> None:
    async with running(tmp_path, max_record_bytes=2000) as broker:
        await broker.publish("topic", [Message(b"k" * 500, b"v" * 1000, (Header("n" * 250, b"h" * 250),))])
        with pytest.raises(TooLarge, match="A record of 2,001 bytes is larger than `max_record_bytes`"):
            await broker.publish("topic", [Message(b"k" * 500, b"v" * 1001, (Header("n" * 250, b"h" * 250),))])


@on_event_loop
async def test_a_record_as_large_as_the_limit_can_be_parked_and_dead_lettered(tmp_path: Path) -> None:
    """Offramp adds headers of its own, which do not count against the limit."""
    async with running(tmp_path, lanes=1, max_record_bytes=2000) as broker:
        await broker.publish("topic", [Message(None, b"v" * 2000)] * 2)
        settings = SubscriptionSettings(name="orders", topics=("topic",), batch=BatchSettings(records=1))
        subscription = Subscription(settings, broker, prefix=bytes(10))
        await subscription.start()
        worker = Worker(subscription, Audit())
        (await worker.next()).nack(retry_after=3600.0)
        (await worker.next()).reject()
        await until(lambda: subscription.counters.parked and subscription.counters.dead_lettered, "both are aside")
        await subscription.close()


@pytest.mark.parametrize("name", ["", "line\nbreak", "x" * 256])
@on_event_loop
async def test_an_invalid_name_of_a_topic_is_refused(tmp_path: Path, name: str) -> None:
    async with running(tmp_path) as broker:
        with pytest.raises(Refused, match="cannot be the name of a topic"):
            await publish(broker, name, b"value")


@on_event_loop
async def test_a_closed_broker_is_unavailable(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        pass
    with pytest.raises(Unavailable):
        await publish(broker, "topic", b"value")


@on_event_loop
async def test_closing_waits_for_publishes_that_are_under_way(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        publishes = [asyncio.create_task(publish(broker, "topic", value)) for value in numbered(200)]
        await asyncio.sleep(0)
    await asyncio.gather(*publishes)
    async with running(tmp_path) as broker, consuming(broker, "topic") as consumer:
        assert await consumer.take(200) == numbered(200)

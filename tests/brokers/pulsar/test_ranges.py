"""Ranges on Pulsar, where positions do not count records and one entry may hold many."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from sidecar.brokers.base import LaneEnd, SeekTo, SourceSpec
from sidecar.brokers.pulsar import PulsarBroker
from sidecar.brokers.range_cursor import Cursor
from sidecar.model.errors import Removed
from sidecar.model.records import Lane, Run
from sidecar.model.wire import decode_frame
from sidecar.ranges.planner import Limits
from sidecar.ranges.subscription import RangeSubscription
from sidecar.settings import SubscriptionMode, SubscriptionSettings
from tests.brokers.harness import name, new_topic, numbered, publish, read
from tests.brokers.pulsar.harness import publish_batches, reset_cursor, running
from tests.event_loop import on_event_loop
from tests.servers.pulsar import PulsarServer


class Group(NamedTuple):
    """A topic of one lane with 100 messages in batches of ten, and the group of the same name."""

    name: str
    broker: PulsarBroker
    cursor: Cursor

    @property
    def lane(self) -> Lane:
        return Lane(self.name, 0)

    async def end(self) -> LaneEnd:
        return (await self.broker.lane_ends(self.name))[self.lane]


@asynccontextmanager
async def group(server: PulsarServer) -> AsyncIterator[Group]:
    async with running(server) as broker:
        topic = name("topic")
        await broker.ensure_topic(topic, 1)
        await asyncio.to_thread(publish_batches, server, topic, *numbered(100), size=10)
        made = Group(topic, broker, broker.cursor(SourceSpec(topic, (topic,))))
        await made.cursor.open()
        yield made


@on_event_loop
async def test_an_estimate_counts_the_messages_of_batches(pulsar: PulsarServer) -> None:
    async with group(pulsar) as made:
        lane, end = made.lane, await made.end()
        run = Run(end.start, end.end)
        estimate = (await made.broker.estimate({lane: run}))[lane]
        assert estimate.records == 100
        third = estimate.position_after(30)
        assert len(await read(made.broker, lane, Run(run.start, third))) == 30
        # At least one batch: an entry is not split.
        assert len(await read(made.broker, lane, Run(run.start, estimate.position_after(3)))) == 10
        rest = (await made.broker.estimate({lane: Run(third, run.stop)}))[lane]
        assert rest.records == 70
        assert rest.position_after(70) == run.stop


@on_event_loop
async def test_a_position_within_a_batch_is_kept_exactly(pulsar: PulsarServer) -> None:
    async with group(pulsar) as made:
        end, cursor = await made.end(), made.cursor
        token = (await cursor.attach("reader", 1)).token
        for position, backlog in ((end.start + 3, 10), (end.start, 10), (end.end, 0)):
            await cursor.commit(token, {made.lane: position})
            expected = max(position, end.start + 3)
            assert (await cursor.fetch_state()).positions == {made.lane: expected}
            # Pulsar counts a batch as one.
            assert (await cursor.lanes())[made.lane].backlog == backlog


@on_event_loop
async def test_a_cursor_that_a_tool_has_moved_overrules_the_stored_position(pulsar: PulsarServer) -> None:
    async with group(pulsar) as made:
        end = await made.end()
        token = (await made.cursor.attach("reader", 1)).token
        await made.cursor.commit(token, {made.lane: end.end})
        await reset_cursor(pulsar, made.name, made.name)
        state = await made.cursor.fetch_state()
        assert state.positions == {made.lane: end.start}
        assert state.attached is not None
        assert state.attached.token == token


@on_event_loop
async def test_the_first_positions_of_a_group_do_not_count_before_all_are_stored(pulsar: PulsarServer) -> None:
    topic = new_topic(pulsar, 3)
    async with running(pulsar) as broker:
        cursor = broker.cursor(SourceSpec(topic, (topic,)))
        token = (await cursor.attach("reader", 1)).token
        # As if the sidecar was killed after the first of three lanes.
        await broker.admin.create_subscription(f"persistent://public/default/{topic}-partition-2", topic)
        assert dict((await cursor.fetch_state()).positions) == {}
        ends = {lane: end.end for lane, end in (await cursor.lanes()).items()}
        await cursor.pin(token, ends)
        assert dict((await cursor.fetch_state()).positions) == ends
        assert Lane(topic, 2) in ends


@on_event_loop
async def test_the_end_of_a_lane_does_not_move_back_when_the_topic_is_loaded_again(pulsar: PulsarServer) -> None:
    async with group(pulsar) as made:
        seen = (await made.end()).end
        for _round in range(2):
            # It begins with an empty ledger then.
            await asyncio.to_thread(pulsar.admin, "PUT", f"persistent/public/default/{made.name}-partition-0/unload")
            end = (await made.end()).end
            assert end >= seen, "a range that was planned before would end after the lane"
            seen = end


class LaneReader:
    """A reader of one lane."""

    def __init__(self, server: PulsarServer, broker: PulsarBroker, path: str, lane: Lane) -> None:
        settings = SubscriptionSettings(name="orders", topics=(lane.topic,), mode=SubscriptionMode.RANGES)
        self.subscription = RangeSubscription(settings, broker)
        self.at = 0
        self._server = server
        self._broker = broker
        self._path = path
        self._lane = lane
        self._token = 0

    async def attach(self) -> None:
        self._token = (await self.subscription.attach("reader"))[0].token

    async def start(self) -> None:
        self.at = (await self.subscription.resolve_start(self._token, SeekTo.END))[self._lane]

    async def publish(self, *values: bytes) -> None:
        await publish(self._broker, self._lane.topic, *values)

    async def unload(self) -> None:
        """As brokers do when they balance load or start: later messages go to a new ledger."""
        await asyncio.to_thread(self._server.admin, "PUT", f"{self._path}/unload")

    async def skip_all(self) -> None:
        """As `pulsar-admin topics clear-backlog` does."""
        await asyncio.to_thread(self._server.admin, "POST", f"{self._path}/subscription/orders/skip_all")

    async def trim(self) -> None:
        """Makes Pulsar remove what no subscription waits for, as it does by itself after a while."""
        await asyncio.to_thread(self._server.admin, "POST", f"{self._path}/trim")

    async def until(self) -> int:
        return (await self.subscription.plan(0, {self._lane: self.at}, Limits(), {}))[0][self._lane]

    async def commit(self, position: int) -> None:
        await self.subscription.commit(self._token, {self._lane: position})
        self.at = position

    async def committed(self) -> int:
        return (await self.subscription._cursor.fetch_state()).positions[self._lane]

    async def read(self, start: int, stop: int) -> list[bytes | None]:
        run = Run(start, stop)
        end = await self.subscription.bounds(self._lane, run)
        chunks = self.subscription.read(self._lane, run, end, 1 << 20)
        return [decode_frame(frame).value async for chunk in chunks for frame in chunk.frames]

    async def backlog(self) -> int:
        """The backlog in the status."""
        return (await self.subscription._cursor.lanes())[self._lane].backlog


@asynccontextmanager
async def reading_at_the_end(server: PulsarServer, written: int) -> AsyncIterator[LaneReader]:
    """A reader at the end of a lane of `written` messages, in a namespace without retention."""
    namespace, topic = f"public/{name('space')}", name("topic")
    server.admin("PUT", f"namespaces/{namespace}", {})
    retention = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    server.admin("POST", f"namespaces/{namespace}/retention", retention)
    # Not created by a sidecar, which would add a subscription that keeps it.
    server.admin("PUT", f"persistent/{namespace}/{topic}/partitions", 1)
    async with running(server, namespace=namespace) as broker:
        reading = LaneReader(server, broker, f"persistent/{namespace}/{topic}-partition-0", Lane(topic, 0))
        await reading.attach()
        if written:
            await reading.publish(*numbered(written))
        await reading.start()
        yield reading
        await reading.subscription.close()


@pytest.mark.parametrize("written", [0, 1, 5])
@pytest.mark.parametrize("attaches_again", [False, True])
@on_event_loop
async def test_a_reader_at_the_end_continues_when_pulsar_has_begun_a_new_ledger(
    pulsar: PulsarServer, written: int, attaches_again: bool
) -> None:
    async with reading_at_the_end(pulsar, written) as reading:
        for value in (b"new", b"newer"):
            await reading.unload()
            assert await reading.until() == reading.at
            assert await reading.backlog() == 0
            await reading.publish(value)
            if attaches_again:
                await reading.attach()
            until = await reading.until()
            assert await reading.backlog() == 1
            # In one piece, and in two, as readers do that split a range.
            middle = (reading.at + until) // 2
            assert await reading.read(reading.at, until) == [value]
            assert await reading.read(reading.at, middle) == []
            assert await reading.read(middle, until) == [value]
            await reading.commit(until)
            assert await reading.committed() == until
            await reading.unload()
            assert await reading.committed() == until


@on_event_loop
async def test_reading_past_messages_that_pulsar_removed_unread_raises_removed(pulsar: PulsarServer) -> None:
    # Not in a lane that was empty: removed messages look there as if they had never been written.
    async with reading_at_the_end(pulsar, 3) as reading:
        await reading.publish(*numbered(4))
        await reading.skip_all()
        await reading.unload()
        await reading.publish(b"new")
        await reading.trim()
        with pytest.raises(Removed):
            await reading.read(reading.at, await reading.until())

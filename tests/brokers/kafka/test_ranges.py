"""Ranges on Kafka: markers, its own tools, and what follows from Kafka not comparing and storing in one step."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest
from confluent_kafka import TopicPartition

from sidecar.brokers.base import SourceSpec
from sidecar.brokers.fencing import Fence
from sidecar.brokers.kafka import KafkaBroker
from sidecar.brokers.kafka.range_cursor import KafkaCursor
from sidecar.model.errors import Fenced, Removed
from sidecar.model.records import Lane, Run
from sidecar.model.wire import decode_frame
from sidecar.ranges.planner import Limits
from sidecar.ranges.subscription import RangeSubscription
from sidecar.settings import SubscriptionMode, SubscriptionSettings
from tests.brokers.harness import WAIT_TIMEOUT, new_topic, numbered, read
from tests.brokers.kafka.harness import move_group, open_transaction, running, transaction
from tests.event_loop import on_event_loop
from tests.servers.kafka import KafkaServer


class Group(NamedTuple):
    """A topic with two lanes, and the group of the same name."""

    name: str
    broker: KafkaBroker
    cursor: KafkaCursor

    @property
    def lanes(self) -> tuple[Lane, Lane]:
        return Lane(self.name, 0), Lane(self.name, 1)

    async def until_the_end_is(self, position: int) -> None:
        """Of the first lane. The broker writes markers with a delay."""
        async with asyncio.timeout(WAIT_TIMEOUT):
            while (await self.cursor.lanes())[self.lanes[0]].end < position:  # noqa: ASYNC110 - it does not call back
                await asyncio.sleep(0.02)

    async def sibling(self) -> KafkaCursor:
        cursor = self.broker.cursor(SourceSpec(self.name, (self.name,)))
        await cursor.open()
        return cursor


@asynccontextmanager
async def group(kafka: KafkaServer) -> AsyncIterator[Group]:
    topic = new_topic(kafka, 2)
    async with running(kafka) as broker:
        made = Group(topic, broker, broker.cursor(SourceSpec(topic, (topic,))))
        await made.cursor.open()
        try:
            yield made
        finally:
            await made.cursor.close()


@on_event_loop
async def test_a_range_ends_where_only_markers_are_left(kafka: KafkaServer) -> None:
    async with group(kafka) as made:
        lane, _ = made.lanes
        transaction(kafka, made.name, *numbered(5, "a"))
        transaction(kafka, made.name, *numbered(5, "b"), commit=False)
        # Twice five records and a marker.
        end = 12
        await made.until_the_end_is(end)
        assert await read(made.broker, lane, Run(0, end)) == numbered(5, "a")
        token = (await made.cursor.attach("", 1)).token
        await made.cursor.commit(token, {lane: end})
        assert (await made.cursor.fetch_state()).positions == {lane: end}


@on_event_loop
async def test_the_metadata_has_the_documented_format(kafka: KafkaServer) -> None:
    async with group(kafka) as made:
        lane, _ = made.lanes
        attached = await made.cursor.attach("clicks: per minute", 1_700_000_000_000)
        text = f"offramp-ranges:1:{attached.token}:1700000000000"
        assert kafka.committed(made.name, made.name, [0, 1]) == {
            0: (0, f"{text}:unpinned:clicks: per minute"),
            1: (-1001, None),
        }
        await made.cursor.pin(attached.token, dict.fromkeys(made.lanes, 0))
        assert kafka.committed(made.name, made.name, [0, 1]) == dict.fromkeys(
            (0, 1), (0, f"{text}:pinned:clicks: per minute")
        )
        assert lane in (await made.cursor.fetch_state()).positions


@on_event_loop
async def test_a_tool_that_sets_offsets_moves_the_group_and_the_reader_continues(kafka: KafkaServer) -> None:
    async with group(kafka) as made:
        kafka.publish(made.name, *numbered(9))
        lane, other = made.lanes
        attached = await made.cursor.attach("clicks", 1)
        await made.cursor.commit(attached.token, {lane: 7, other: 0})
        move_group(kafka, made.name, TopicPartition(*lane, 2), TopicPartition(*other, 0))
        state = await made.cursor.fetch_state()
        assert (dict(state.positions), state.attached) == ({lane: 2, other: 0}, None)
        await made.cursor.commit(attached.token, {lane: 3})
        state = await made.cursor.fetch_state()
        assert (dict(state.positions), state.attached) == ({lane: 3, other: 0}, attached)


@on_event_loop
async def test_a_commit_in_flight_when_another_reader_attaches_does_not_bring_the_old_reader_back(
    kafka: KafkaServer,
) -> None:
    async with group(kafka) as made:
        kafka.publish(made.name, *numbered(9))
        lane, other = made.lanes
        there = await made.sibling()
        old = await made.cursor.attach("old", 1)
        await made.cursor.commit(old.token, {lane: 2, other: 0})
        new = await there.attach("new", 2)
        # The old reader's commit was checked before the new one attached, and is stored after it.
        await made.cursor._store({lane: 9, other: 0}, Fence(old, pinned=True))
        await there.commit(new.token, {lane: 4})
        with pytest.raises(Fenced, match="new"):
            await made.cursor.commit(old.token, {lane: 9})
        assert (await there.fetch_state()).attached == new
        await there.close()


@on_event_loop
async def test_a_reader_within_an_open_transaction_has_nothing_yet_and_continues_after_it(kafka: KafkaServer) -> None:
    """Kafka's own tools move groups to the end of the log, whether or not its transactions are committed."""
    async with group(kafka) as made:
        lane, other = made.lanes
        kafka.publish(made.name, b"seen")
        producer = open_transaction(kafka, made.name, b"within")
        move_group(kafka, made.name, TopicPartition(*lane, 2), TopicPartition(*other, 0))
        settings = SubscriptionSettings(
            name="orders", topics=(made.name,), group=made.name, mode=SubscriptionMode.RANGES
        )
        reading = RangeSubscription(settings, made.broker)
        attached, start = await reading.attach("clicks")
        assert await reading.resolve_start(attached.token, None) == start == {lane: 2, other: 0}
        assert (await reading.plan(0, start, Limits(), {}))[0] == start
        assert await reading.commit(attached.token, start) == start
        end = await reading.bounds(lane, Run(2, 9))
        assert [chunk async for chunk in reading.read(lane, Run(2, 9), end, 1 << 20)] == []
        for beyond in (reading.plan(0, {lane: 3}, Limits(), {}), reading.bounds(lane, Run(3, 9))):
            with pytest.raises(Removed, match="there never was a position 3"):
                await beyond
        await asyncio.to_thread(producer.commit_transaction, 20)
        kafka.publish(made.name, b"after")
        await made.until_the_end_is(4)
        until, _ = await reading.plan(0, start, Limits(), {})
        assert until == {lane: 4, other: 0}
        end = await reading.bounds(lane, Run(2, 4))
        chunks = [chunk async for chunk in reading.read(lane, Run(2, 4), end, 1 << 20)]
        assert [decode_frame(frame).value for chunk in chunks for frame in chunk.frames] == [b"after"]
        await reading.close()

"""Moving lanes."""

import asyncio

import pytest

from sidecar.brokers.base import AtPosition, AtTime, SeekTo
from sidecar.model.errors import LaneGone, NotFound
from sidecar.model.records import Assigned, Commit, Lane, Message, Run
from tests.brokers.harness import Consumer, Sandbox, numbered, scenario_with


class Seeking:
    @scenario_with("seeks")
    async def test_a_lane_can_be_moved_to_a_position(self, sandbox: Sandbox) -> None:
        topic, at, consumer = await sandbox.consumed(10)
        consumer.forget()
        lane = Lane(topic, 0)
        assert await consumer.source.seek({lane: AtPosition(at[6])}) == {lane: at[6]}
        assert await consumer.take(4) == numbered(10)[6:]

    @scenario_with("seeks")
    async def test_a_lane_can_be_moved_to_its_start_and_to_its_end(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=2)
        first = await sandbox.publish(topic, *numbered(5, "a"), lane=0)
        await sandbox.publish(topic, *numbered(5, "b"), lane=1)
        consumer = await self._consumed(sandbox, topic, 10)
        moved = await consumer.source.seek({Lane(topic, 0): SeekTo.START, Lane(topic, 1): SeekTo.END})
        assert moved[Lane(topic, 0)] == first[0]
        assert await consumer.take(5) == numbered(5, "a")
        await consumer.stays_silent()
        await sandbox.publish(topic, b"new", lane=1)
        assert (await consumer.take(6))[-1] == b"new"

    @scenario_with("seeks")
    async def test_a_lane_can_be_moved_to_a_time(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        base = 1_700_000_000_000
        stamps = [base, base + 10, base + 5, base + 30, base + 20]
        messages = [Message(None, str(stamp - base).encode(), timestamp_ms=stamp, lane=0) for stamp in stamps]
        await sandbox.broker.publish(topic, messages)
        consumer = await self._consumed(sandbox, topic, 5)
        await consumer.source.seek({Lane(topic, 0): AtTime(base + 11)})
        assert await consumer.take(2) == [b"30", b"20"]
        consumer.forget()
        await consumer.source.seek({Lane(topic, 0): AtTime(base + 10)})
        assert await consumer.take(4) == [b"10", b"5", b"30", b"20"]
        consumer.forget()
        await consumer.source.seek({Lane(topic, 0): AtTime(base + 31)})
        await consumer.stays_silent()

    @scenario_with("seeks")
    async def test_records_after_a_seek_follow_an_assignment_and_none_from_before_arrives_later(
        self, sandbox: Sandbox
    ) -> None:
        topic = await sandbox.topic()
        at = await sandbox.publish(topic, *numbered(3000))
        consumer = await sandbox.consume(topic)
        await consumer.take(100, max_records=100)
        lane = Lane(topic, 0)
        for target in (2000, 10, 1500, 0):
            poll = asyncio.create_task(consumer.source.poll(100, 1 << 20, 0.2))
            await asyncio.sleep(0)
            await consumer.source.seek({lane: AtPosition(at[target])})
            # A poll that ended before the seek has records from before, and no events.
            polls = [polled for polled in [await poll] if polled.events]
            while not any(polled.chunks for polled in polls):
                polls.append(await consumer.source.poll(100, 1 << 20, 0.2))
            events = [event for polled in polls for event in polled.events]
            chunks = [chunk for polled in polls for chunk in polled.chunks]
            assert events == [Assigned(lane, at[target])]
            assert chunks[0].positions[0] == at[target]

    @scenario_with("seeks")
    async def test_a_seek_is_durable_and_discards_acks_beyond_the_position(self, sandbox: Sandbox) -> None:
        topic, at, consumer = await sandbox.consumed(10)
        consumer.forget()
        await consumer.commit(Lane(topic, 0), Commit(at[5], (Run(at[7], at[8] + 1),)))
        await consumer.source.seek({Lane(topic, 0): AtPosition(at[4])})
        await sandbox.restart()
        consumer = await sandbox.consume(topic)
        assert await consumer.take(6) == numbered(10)[4:]
        assert consumer.assigned()[Lane(topic, 0)].settled == ()

    @scenario_with("seeks")
    async def test_a_seek_back_delivers_also_what_was_settled_before_a_restart(self, sandbox: Sandbox) -> None:
        topic, at, consumer = await sandbox.consumed(10)
        consumer.forget()
        await consumer.commit(Lane(topic, 0), Commit(at[1], (Run(at[3], at[7] + 1),)))
        await sandbox.restart()
        consumer = await sandbox.consume(topic)
        await consumer.take(1, max_records=1)
        consumer.forget()
        await consumer.source.seek({Lane(topic, 0): AtPosition(at[2])})
        assert await consumer.take(8) == numbered(10)[2:]

    @scenario_with("seeks")
    async def test_a_seek_to_a_position_outside_of_the_lane_goes_to_its_nearer_end(self, sandbox: Sandbox) -> None:
        topic, at, consumer = await sandbox.consumed(3)
        consumer.forget()
        lane = Lane(topic, 0)
        assert await consumer.source.seek({lane: AtPosition(at[-1] + 100)}) == {lane: at[-1] + 1}
        await consumer.stays_silent()

    @scenario_with("seeks")
    async def test_a_seek_of_an_unknown_lane_is_refused(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        consumer = await self._consumed(sandbox, topic, 0)
        with pytest.raises((NotFound, LaneGone)):
            await consumer.source.seek({Lane("elsewhere", 0): SeekTo.START})

    async def _consumed(self, sandbox: Sandbox, topic: str, count: int) -> Consumer:
        consumer = await sandbox.consume(topic)
        await consumer.until(consumer.assigned)
        await consumer.take(count)
        consumer.forget()
        return consumer

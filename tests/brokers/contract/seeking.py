"""Moving lanes."""

import asyncio

import pytest

from sidecar.brokers.base import AtPosition, AtTime, SeekTo
from sidecar.model.errors import LaneGone, NotFound
from sidecar.model.records import Assigned, Commit, Lane, Message, Run
from tests.brokers.harness import Consumer, Stage, claims, numbered, scenario


class Seeking:
    @scenario
    @claims("seeks")
    async def test_a_lane_can_be_moved_to_a_position(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(10))
        consumer = await self._consumed(stage, topic, 10)
        lane = Lane(topic, 0)
        assert await consumer.source.seek({lane: AtPosition(at[6])}) == {lane: at[6]}
        assert await consumer.take(4) == numbered(10)[6:]

    @scenario
    @claims("seeks")
    async def test_a_lane_can_be_moved_to_its_start_and_to_its_end(self, stage: Stage) -> None:
        topic = await stage.topic(lanes=2)
        first = await stage.publish(topic, *numbered(5, "a"), lane=0)
        await stage.publish(topic, *numbered(5, "b"), lane=1)
        consumer = await self._consumed(stage, topic, 10)
        moved = await consumer.source.seek({Lane(topic, 0): SeekTo.START, Lane(topic, 1): SeekTo.END})
        assert moved[Lane(topic, 0)] == first[0]
        assert await consumer.take(5) == numbered(5, "a")
        await consumer.stays_silent()
        await stage.publish(topic, b"new", lane=1)
        assert (await consumer.take(6))[-1] == b"new"

    @scenario
    @claims("seeks")
    async def test_a_lane_can_be_moved_to_a_time(self, stage: Stage) -> None:
        topic = await stage.topic()
        base = 1_700_000_000_000
        stamps = [base, base + 10, base + 5, base + 30, base + 20]
        messages = [Message(None, str(stamp - base).encode(), timestamp_ms=stamp, lane=0) for stamp in stamps]
        await stage.broker.publish(topic, messages)
        consumer = await self._consumed(stage, topic, 5)
        await consumer.source.seek({Lane(topic, 0): AtTime(base + 11)})
        assert await consumer.take(2) == [b"30", b"20"]
        consumer.forget()
        await consumer.source.seek({Lane(topic, 0): AtTime(base + 10)})
        assert await consumer.take(4) == [b"10", b"5", b"30", b"20"]
        consumer.forget()
        await consumer.source.seek({Lane(topic, 0): AtTime(base + 31)})
        await consumer.stays_silent()

    @scenario
    @claims("seeks")
    async def test_the_records_after_a_seek_follow_an_assignment_and_nothing_of_before_comes_later(
        self, stage: Stage
    ) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(3000))
        consumer = await stage.consume(topic)
        await consumer.take(100, max_records=100)
        lane = Lane(topic, 0)
        for target in (2000, 10, 1500, 0):
            poll = asyncio.create_task(consumer.source.poll(100, 1 << 20, 0.2))
            await asyncio.sleep(0)
            await consumer.source.seek({lane: AtPosition(at[target])})
            # If it ended before the seek, it has the records of before; it has no events then.
            polls = [polled for polled in [await poll] if polled.events]
            while not any(polled.chunks for polled in polls):
                polls.append(await consumer.source.poll(100, 1 << 20, 0.2))
            events = [event for polled in polls for event in polled.events]
            chunks = [chunk for polled in polls for chunk in polled.chunks]
            assert events == [Assigned(lane, at[target])]
            assert chunks[0].positions[0] == at[target]

    @scenario
    @claims("seeks")
    async def test_a_seek_is_durable_and_forgets_what_was_settled(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(10))
        consumer = await self._consumed(stage, topic, 10)
        await consumer.commit(Lane(topic, 0), Commit(at[5], (Run(at[7], at[8] + 1),)))
        await consumer.source.seek({Lane(topic, 0): AtPosition(at[4])})
        await stage.restart()
        consumer = await stage.consume(topic)
        assert await consumer.take(6) == numbered(10)[4:]
        assert consumer.assigned()[Lane(topic, 0)].settled == ()

    @scenario
    @claims("seeks")
    async def test_a_seek_back_brings_also_what_was_settled_in_an_earlier_life(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(10))
        consumer = await self._consumed(stage, topic, 10)
        await consumer.commit(Lane(topic, 0), Commit(at[1], (Run(at[3], at[7] + 1),)))
        await stage.restart()
        consumer = await stage.consume(topic)
        await consumer.take(1, max_records=1)
        consumer.forget()
        await consumer.source.seek({Lane(topic, 0): AtPosition(at[2])})
        assert await consumer.take(8) == numbered(10)[2:]

    @scenario
    @claims("seeks")
    async def test_a_position_outside_of_the_lane_is_moved_to_its_nearer_end(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(3))
        consumer = await self._consumed(stage, topic, 3)
        lane = Lane(topic, 0)
        assert await consumer.source.seek({lane: AtPosition(at[-1] + 100)}) == {lane: at[-1] + 1}
        await consumer.stays_silent()

    @scenario
    @claims("seeks")
    async def test_a_seek_of_an_unknown_lane_is_refused(self, stage: Stage) -> None:
        topic = await stage.topic()
        consumer = await self._consumed(stage, topic, 0)
        with pytest.raises((NotFound, LaneGone)):
            await consumer.source.seek({Lane("elsewhere", 0): SeekTo.START})

    async def _consumed(self, stage: Stage, topic: str, count: int) -> Consumer:
        consumer = await stage.consume(topic)
        await consumer.until(consumer.assigned)
        await consumer.take(count)
        consumer.forget()
        return consumer

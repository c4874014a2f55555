"""The broker that tests of the core use to rebalance and to fail."""

import asyncio

import pytest

from sidecar.brokers.base import Assigned, Lost, Revoked
from sidecar.brokers.memory import MemoryOptions
from sidecar.errors import LaneGone, Unavailable
from sidecar.model import Commit, Lane, Message
from tests.brokers.conformance import AdapterContract
from tests.brokers.harness import Consumer, Harness, Stage, numbered, scenario
from tests.brokers.test_memory import MemoryHarness
from tests.brokers.unruly import UnrulyBroker, UnrulySource


class UnrulyHarness(MemoryHarness):
    def __init__(self) -> None:
        self._broker = UnrulyBroker(MemoryOptions(lanes=2))


class TestUnruly(AdapterContract):
    @pytest.fixture
    def harness(self) -> Harness:
        return UnrulyHarness()

    @scenario
    async def test_a_revoked_lane_is_silent_and_takes_commits_until_it_is_released(self, stage: Stage) -> None:
        topic, consumer, source = await self._consuming(stage)
        lane = Lane(topic, 0)
        source.revoke(lane)
        await stage.publish(topic, b"more")
        await source.resume([lane])
        polled = await consumer.poll()
        assert (polled.chunks, polled.events) == ([], [Revoked(frozenset({lane}), 3.0)])
        await source.commit({lane: Commit(1)})
        await source.release([lane])
        with pytest.raises(LaneGone):
            await source.commit({lane: Commit(2)})

    @scenario
    async def test_a_lost_lane_takes_no_commit_and_comes_back_from_the_last_one(self, stage: Stage) -> None:
        topic, consumer, source = await self._consuming(stage)
        lane = Lane(topic, 0)
        await source.commit({lane: Commit(2)})
        source.lose(lane)
        with pytest.raises(LaneGone):
            await source.commit({lane: Commit(3)})
        source.give(lane)
        consumer.forget()
        assert await consumer.take(1) == [b"2"]
        assert consumer.events == [Lost(frozenset({lane})), Assigned(lane, 2)]

    @scenario
    async def test_commits_and_publishes_fail_as_often_as_they_are_told_to(self, stage: Stage) -> None:
        topic, _, source = await self._consuming(stage)
        assert isinstance(stage.broker, UnrulyBroker)
        source.fail_next_commits(1)
        stage.broker.fail_next_publishes(1)
        with pytest.raises(Unavailable):
            await source.commit({Lane(topic, 0): Commit(1)})
        with pytest.raises(Unavailable):
            await stage.publish(topic, b"value")
        await source.commit({Lane(topic, 0): Commit(1)})
        await stage.publish(topic, b"value")

    @scenario
    async def test_commits_can_be_held_in_flight(self, stage: Stage) -> None:
        topic, _, source = await self._consuming(stage)
        source.hold_commits()
        commit = asyncio.create_task(source.commit({Lane(topic, 0): Commit(1)}))
        await asyncio.wait([commit], timeout=0.01)
        assert not commit.done()
        source.let_commits_go()
        await commit

    async def _consuming(self, stage: Stage) -> tuple[str, Consumer, UnrulySource]:
        topic = await stage.topic()
        await stage.broker.publish(topic, [Message(None, value) for value in numbered(3)])
        consumer = await stage.consume(topic)
        await consumer.take(3)
        consumer.forget()
        assert isinstance(consumer.source, UnrulySource)
        return topic, consumer, consumer.source

"""Subscriptions with mode ranges, and their calls of the broker."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from sidecar.brokers.base import AtPosition, LaneEnd, SeekTarget, SeekTo
from sidecar.model.errors import Removed
from sidecar.model.records import Lane, Message, Run
from sidecar.ranges.planner import Limits
from sidecar.ranges.subscription import RangeSubscription
from sidecar.settings import SubscriptionMode, SubscriptionSettings
from tests.event_loop import on_event_loop
from tests.memory_broker import MemoryBroker, MemoryOptions

SETTINGS = SubscriptionSettings(name="orders", topics=("orders", "later"), mode=SubscriptionMode.RANGES)


class Counting(MemoryBroker):
    def __init__(self) -> None:
        super().__init__(MemoryOptions(lanes=3))
        self.located: list[tuple[str, SeekTarget]] = []

    async def locate(self, topic: str, target: SeekTarget) -> Mapping[Lane, int]:
        self.located.append((topic, target))
        return await super().locate(topic, target)


@on_event_loop
async def test_a_seek_looks_once_for_each_target_in_a_topic_however_many_lanes_it_has() -> None:
    broker = Counting()
    for topic in SETTINGS.topics:
        await broker.publish(topic, [Message(None, b"v", lane=n % 3) for n in range(12)])
    subscription = RangeSubscription(SETTINGS, broker)
    first, second, third = (Lane("orders", number) for number in range(3))
    later = Lane("later", 0)
    targets: Mapping[Lane, SeekTarget] = {
        first: SeekTo.END,
        second: AtPosition(2),
        third: SeekTo.END,
        later: SeekTo.END,
    }
    assert await subscription.seek(targets) == {first: 4, second: 2, third: 4, later: 4}
    expected = [("later", SeekTo.END), ("orders", AtPosition(2)), ("orders", SeekTo.END)]
    assert sorted(broker.located, key=str) == sorted(expected, key=str)


class Retired(MemoryBroker):
    """Has removed all records before some position."""

    async def lane_ends(self, topic: str) -> Mapping[Lane, LaneEnd]:
        return {lane: replace(end, start=8) for lane, end in (await super().lane_ends(topic)).items()}


@pytest.mark.parametrize(("ceiling", "until"), [({}, 8), ({Lane("orders", 0): 6}, 6)])
@on_event_loop
async def test_what_was_removed_is_planned_also_when_there_is_nothing_else_to_read(
    ceiling: Mapping[Lane, int], until: int
) -> None:
    """So that reading it reports the loss."""
    broker = Retired()
    await broker.publish("orders", [Message(None, b"v", lane=0) for _ in range(8)])
    subscription = RangeSubscription(replace(SETTINGS, topics=("orders",)), broker)
    lane = Lane("orders", 0)
    assert (await subscription.plan(0, {lane: 3}, Limits(), ceiling))[0][lane] == until
    with pytest.raises(Removed, match="removed 3 to"):
        await subscription.bounds(lane, Run(3, until))
    assert (await subscription.plan(0, {lane: 8}, Limits(), {}))[0][lane] == 8
    subscription.pause("")
    assert (await subscription.plan(0, {lane: 3}, Limits(), ceiling))[0][lane] == 3

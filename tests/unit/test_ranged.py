"""A subscription that is read by ranges, and what it asks of its broker."""

import asyncio
from collections.abc import Mapping

from sidecar.brokers.base import AtPosition, SeekTarget, SeekTo
from sidecar.brokers.memory import MemoryBroker, MemoryOptions
from sidecar.model import Lane, Message
from sidecar.ranged import RangedSubscription
from sidecar.settings import SubscriptionMode, SubscriptionSettings

SETTINGS = SubscriptionSettings(name="orders", topics=("orders", "later"), mode=SubscriptionMode.RANGES)


class Counting(MemoryBroker):
    def __init__(self) -> None:
        super().__init__(MemoryOptions(lanes=3))
        self.located: list[tuple[str, SeekTarget]] = []

    async def locate(self, topic: str, target: SeekTarget) -> Mapping[Lane, int]:
        self.located.append((topic, target))
        return await super().locate(topic, target)


def test_a_seek_looks_once_for_each_target_in_a_topic_however_many_lanes_it_has() -> None:
    async def body() -> None:
        broker = Counting()
        for topic in SETTINGS.topics:
            await broker.publish(topic, [Message(None, b"v", lane=n % 3) for n in range(12)])
        subscription = RangedSubscription(SETTINGS, broker)
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

    asyncio.run(body())

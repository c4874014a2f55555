"""Joining lanes of Pulsar: all of them or none, and no consumer is left behind that nobody takes from."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.brokers.base import SourceSpec
from sidecar.brokers.pulsar.admin import Standing
from sidecar.brokers.pulsar.opening import Joined, Opening
from sidecar.brokers.pulsar.options import PulsarOptions
from sidecar.errors import BrokerError, Refused, Unavailable
from sidecar.model import Lane

LANES = [(Lane("orders", number), f"orders-partition-{number}") for number in range(3)]


class Consumer:
    """As the library has it. Its end cannot be found if there is an error for that."""

    def __init__(self, *, end: BaseException | None = None) -> None:
        self._end = end
        self.closed = False

    def get_last_message_id(self) -> Any:
        if self._end is not None:
            raise self._end
        return SimpleNamespace(ledger_id=lambda: 1, entry_id=lambda: 4, batch_index=lambda: -1)


class FakeLibrary:
    """Gives these consumers, or raises these errors, one for each lane in turn."""

    def __init__(self, *answers: Consumer | BrokerError) -> None:
        self._answers = dict(zip((name for _, name in LANES), answers, strict=False))

    async def subscribe(self, name: str, group: str, **settings: object) -> Consumer:
        answer = self._answers[name]
        if isinstance(answer, BrokerError):
            raise answer
        return answer

    async def run(self, doing: str, call: Any, *arguments: object) -> Any:
        return call(*arguments)

    async def leave(self, one: Consumer) -> None:
        one.closed = True


async def _standing(name: str) -> Standing:
    return Standing(0, (1, 4), {})


def join(*answers: Consumer | BrokerError) -> list[Joined]:
    admin: Any = SimpleNamespace(standing=_standing)
    library: Any = FakeLibrary(*answers)
    opening = Opening(SourceSpec("group", ("orders",)), PulsarOptions(url="pulsar://nowhere"), library, admin)
    return asyncio.run(opening.join(LANES[: len(answers)]))


def test_lanes_are_joined() -> None:
    assert [one.lane for one in join(Consumer(), Consumer())] == [lane for lane, _ in LANES[:2]]


@pytest.mark.parametrize("error", [Unavailable("the connection is lost"), asyncio.CancelledError()])
def test_a_consumer_whose_lane_has_no_end_to_be_found_is_closed(error: BaseException) -> None:
    consumer = Consumer(end=error)
    with pytest.raises(type(error)):
        join(consumer)
    assert consumer.closed


def test_where_one_lane_cannot_be_joined_all_others_are_left() -> None:
    one, other = Consumer(), Consumer()
    with pytest.raises(Refused, match="somebody else"):
        join(one, other, Refused("somebody else has it"))
    assert one.closed
    assert other.closed

"""Joining lanes of Pulsar: all of them or none, no consumer is left behind that nobody takes from, and a group that was
never there begins where it should."""

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pulsar
import pytest

from sidecar.brokers.base import SourceSpec
from sidecar.brokers.pulsar.admin import Standing
from sidecar.brokers.pulsar.opening import Joined, Opening
from sidecar.brokers.pulsar.options import PulsarOptions
from sidecar.model.errors import BrokerError, Refused, Unavailable
from sidecar.model.records import Lane, Start

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


LATEST, EARLIEST = pulsar.InitialPosition.Latest, pulsar.InitialPosition.Earliest


class Topic:
    """A topic at Pulsar, the cursors that a group has in it, and a sidecar of that group which starts at the end."""

    def __init__(self, lanes: int, *, cursors: Collection[int] = ()) -> None:
        self.lanes = lanes
        self.cursors = set(cursors)
        #: where cursors were made, in order
        self.made: list[tuple[int, pulsar.InitialPosition]] = []
        #: lanes that cannot be joined
        self.broken: set[int] = set()
        self.sidecar = self.another()

    def another(self) -> Opening:
        parts: Any = self
        spec = SourceSpec("group", ("orders",), Start.LATEST)
        return Opening(spec, PulsarOptions(url="pulsar://nowhere"), parts, parts)

    def join(self, *numbers: int, by: Opening | None = None) -> None:
        wanted = [(Lane("orders", number), f"orders-partition-{number}") for number in numbers or range(self.lanes)]
        asyncio.run((by or self.sidecar).join(wanted))

    async def standing(self, name: str) -> Standing:
        return Standing(0, (1, 4), {"group": 7} if _number(name) in self.cursors else {})

    async def subscribe(self, name: str, group: str, *, initial_position: Any, **settings: object) -> Consumer:
        number = _number(name)
        # Others come to know of it only now.
        await asyncio.sleep(0)
        if number in self.broken:
            raise Unavailable("the connection is lost")
        if number not in self.cursors:
            self.cursors.add(number)
            self.made.append((number, initial_position))
        return Consumer()

    async def run(self, doing: str, call: Any, *arguments: object) -> Any:
        return call(*arguments)

    async def leave(self, one: Consumer) -> None:
        one.closed = True


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


def test_a_new_group_starts_at_the_end_of_all_lanes() -> None:
    topic = Topic(3)
    topic.join()
    assert dict(topic.made) == dict.fromkeys(range(3), LATEST)


def test_a_sidecar_that_starts_beside_another_of_a_new_group_starts_at_the_end_too() -> None:
    topic = Topic(4)
    topic.broken = {0, 1, 2}
    with pytest.raises(Unavailable):
        topic.join()
    # This is as far as the other has come, or it is dead: its last lane came first.
    assert topic.cursors == {3}
    topic.broken.clear()
    topic.join(by=topic.another())
    assert dict(topic.made) == dict.fromkeys(range(4), LATEST)


def test_a_first_join_that_fails_in_part_starts_at_the_end_when_it_is_repeated() -> None:
    for broken in range(4):
        topic = Topic(4)
        topic.broken = {broken}
        with pytest.raises(Unavailable):
            topic.join()
        topic.broken.clear()
        topic.join()
        assert dict(topic.made) == dict.fromkeys(range(4), LATEST)


def test_lanes_that_came_later_are_read_from_their_start_whoever_joins_them() -> None:
    topic = Topic(6, cursors=range(3))
    topic.broken = {4}
    with pytest.raises(Unavailable):
        topic.join()
    # Not the last one first: the one before it would not look new any more.
    assert topic.made == [(3, EARLIEST)]
    topic.broken.clear()
    topic.join(by=topic.another())
    assert topic.made == [(3, EARLIEST), (4, EARLIEST), (5, EARLIEST)]


def test_lanes_that_come_while_a_sidecar_consumes_are_read_from_their_start() -> None:
    topic = Topic(3)
    topic.join()
    topic.join(3, 4)
    assert topic.made[3:] == [(3, EARLIEST), (4, EARLIEST)]


def test_a_topic_that_comes_while_a_sidecar_consumes_is_read_from_its_start() -> None:
    topic = Topic(2)
    # It consumes a pattern of topics that fits none yet.
    asyncio.run(topic.sidecar.join([]))
    topic.join()
    assert topic.made == [(0, EARLIEST), (1, EARLIEST)]


def test_a_lane_whose_cursor_was_lost_while_a_sidecar_consumed_is_read_from_its_start() -> None:
    topic = Topic(3)
    topic.join()
    # As when the topic is made anew.
    topic.cursors.clear()
    topic.join()
    assert dict(topic.made[3:]) == dict.fromkeys(range(3), EARLIEST)


RETRY = "billing.offramp.retry"


class Group:
    """The cursors of a group that consumes a topic by its name and others by a pattern, and has one for itself."""

    def __init__(self) -> None:
        self.cursors: dict[str, pulsar.InitialPosition] = {}
        self.broken: set[str] = set()

    def joins(self, *topics: str) -> None:
        parts: Any = self
        spec = SourceSpec("group", ("orders", "returns", "^.*"), Start.LATEST, own_topics={RETRY: 1})
        sidecar = Opening(spec, PulsarOptions(url="pulsar://nowhere"), parts, parts)
        asyncio.run(sidecar.join([(Lane(topic, 0), topic) for topic in (RETRY, *topics)]))

    async def standing(self, name: str) -> Standing:
        return Standing(0, (1, 4), {"group": 7} if name in self.cursors else {})

    async def subscribe(self, name: str, group: str, *, initial_position: Any, **settings: object) -> Consumer:
        await asyncio.sleep(0)
        if name in self.broken:
            raise Unavailable("the connection is lost")
        self.cursors.setdefault(name, initial_position)
        return Consumer()

    async def run(self, doing: str, call: Any, *arguments: object) -> Any:
        return call(*arguments)

    async def leave(self, one: Consumer) -> None:
        one.closed = True


def test_a_topic_of_a_pattern_that_came_while_no_sidecar_ran_is_read_from_its_start() -> None:
    group = Group()
    group.joins("orders", "all-sorts")
    group.joins("orders", "all-sorts", "all-new", "returns")
    # Of a topic that is called by its name only now, what was there before is not asked for.
    assert group.cursors.pop("all-new") == group.cursors.pop(RETRY) == EARLIEST
    assert group.cursors == dict.fromkeys(("orders", "all-sorts", "returns"), LATEST)


def test_a_group_that_has_not_joined_all_of_a_pattern_yet_starts_at_the_end_of_the_others_too() -> None:
    group = Group()
    group.broken = {"all-sorts"}
    with pytest.raises(Unavailable):
        group.joins("orders", "all-others", "all-sorts")
    # Its own topic comes last.
    assert group.cursors == {"orders": LATEST, "all-others": LATEST}
    group.broken.clear()
    group.joins("orders", "all-others", "all-sorts")
    assert group.cursors.pop(RETRY) == EARLIEST
    assert {*group.cursors.values()} == {LATEST}

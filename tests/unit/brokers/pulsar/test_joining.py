"""Joining lanes: all of them or none, without leaving consumers behind; where a new group starts; and when a lane that
keeps failing is joined again."""

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pulsar
import pytest

from sidecar.brokers.base import SourceSpec
from sidecar.brokers.pulsar.admin import TopicState
from sidecar.brokers.pulsar.joining import JoinedLane, LaneJoiner, RejoinBackoff
from sidecar.brokers.pulsar.options import PulsarOptions
from sidecar.model.errors import BrokerError, Refused, Unavailable
from sidecar.model.records import Lane, Start
from tests.unit.brokers.pulsar.pulsar_kit import LANE

LANES = [(Lane("orders", number), f"orders-partition-{number}") for number in range(3)]


class Consumer:
    """A consumer of the library. `end` is raised when it is asked for the end of its lane."""

    def __init__(self, *, end: BaseException | None = None) -> None:
        self._end = end
        self.closed = False

    def get_last_message_id(self) -> Any:
        if self._end is not None:
            raise self._end
        return SimpleNamespace(ledger_id=lambda: 1, entry_id=lambda: 4, batch_index=lambda: -1)


class Client:
    """Makes calls at once."""

    async def run(self, doing: str, call: Any, *arguments: object) -> Any:
        return call(*arguments)

    async def close_one(self, one: Consumer) -> None:
        one.closed = True


class FakeClient(Client):
    """Returns these consumers, or raises these errors, one for each lane in turn."""

    def __init__(self, *answers: Consumer | BrokerError) -> None:
        self._answers = dict(zip((name for _, name in LANES), answers, strict=False))

    async def subscribe(self, name: str, group: str, **settings: object) -> Consumer:
        answer = self._answers[name]
        if isinstance(answer, BrokerError):
            raise answer
        return answer


async def _topic_state(name: str) -> TopicState:
    return TopicState(0, (1, 4), {})


def join(*answers: Consumer | BrokerError) -> list[JoinedLane]:
    admin: Any = SimpleNamespace(topic_state=_topic_state)
    client: Any = FakeClient(*answers)
    joiner = LaneJoiner(SourceSpec("group", ("orders",)), PulsarOptions(url="pulsar://nowhere"), client, admin)
    return asyncio.run(joiner.join(LANES[: len(answers)]))


def test_lanes_are_joined() -> None:
    assert [one.lane for one in join(Consumer(), Consumer())] == [lane for lane, _ in LANES[:2]]


@pytest.mark.parametrize("error", [Unavailable("the connection is lost"), asyncio.CancelledError()])
def test_a_consumer_is_closed_if_the_end_of_its_lane_cannot_be_found(error: BaseException) -> None:
    consumer = Consumer(end=error)
    with pytest.raises(type(error)):
        join(consumer)
    assert consumer.closed


def test_the_consumers_of_all_lanes_are_closed_if_one_lane_cannot_be_joined() -> None:
    one, other = Consumer(), Consumer()
    with pytest.raises(Refused, match="somebody else"):
        join(one, other, Refused("somebody else has it"))
    assert one.closed
    assert other.closed


LATEST, EARLIEST = pulsar.InitialPosition.Latest, pulsar.InitialPosition.Earliest


class Topic(Client):
    """A topic at Pulsar, the cursors of a group in it, and a sidecar of that group with `start: latest`."""

    def __init__(self, lanes: int, *, cursors: Collection[int] = ()) -> None:
        self.lanes = lanes
        self.cursors = set(cursors)
        #: the lanes and positions of new cursors, in order
        self.made: list[tuple[int, pulsar.InitialPosition]] = []
        #: lanes that cannot be joined
        self.broken: set[int] = set()
        self.sidecar = self.another()

    def another(self) -> LaneJoiner:
        parts: Any = self
        spec = SourceSpec("group", ("orders",), Start.LATEST)
        return LaneJoiner(spec, PulsarOptions(url="pulsar://nowhere"), parts, parts)

    def join(self, *numbers: int, by: LaneJoiner | None = None) -> None:
        wanted = [(Lane("orders", number), f"orders-partition-{number}") for number in numbers or range(self.lanes)]
        asyncio.run((by or self.sidecar).join(wanted))

    async def topic_state(self, name: str) -> TopicState:
        return TopicState(0, (1, 4), {"group": 7} if _number(name) in self.cursors else {})

    async def subscribe(self, name: str, group: str, *, initial_position: Any, **settings: object) -> Consumer:
        number = _number(name)
        # Lets consumers of the same step go on.
        await asyncio.sleep(0)
        if number in self.broken:
            raise Unavailable("the connection is lost")
        if number not in self.cursors:
            self.cursors.add(number)
            self.made.append((number, initial_position))
        return Consumer()


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


def test_a_new_group_starts_at_the_end_of_all_lanes() -> None:
    topic = Topic(3)
    topic.join()
    assert dict(topic.made) == dict.fromkeys(range(3), LATEST)


def test_a_second_sidecar_of_a_new_group_starts_at_the_end_too() -> None:
    topic = Topic(4)
    topic.broken = {0, 1, 2}
    with pytest.raises(Unavailable):
        topic.join()
    # The first sidecar is as far as this, or dead: it joins its last lane first.
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


def test_lanes_that_were_added_later_are_read_from_their_start_by_any_sidecar() -> None:
    topic = Topic(6, cursors=range(3))
    topic.broken = {4}
    with pytest.raises(Unavailable):
        topic.join()
    # Not the last one first: lane 3 would look like an initial lane then.
    assert topic.made == [(3, EARLIEST)]
    topic.broken.clear()
    topic.join(by=topic.another())
    assert topic.made == [(3, EARLIEST), (4, EARLIEST), (5, EARLIEST)]


def test_lanes_that_are_added_while_a_sidecar_consumes_are_read_from_their_start() -> None:
    topic = Topic(3)
    topic.join()
    topic.join(3, 4)
    assert topic.made[3:] == [(3, EARLIEST), (4, EARLIEST)]


def test_a_topic_that_is_created_while_a_sidecar_consumes_is_read_from_its_start() -> None:
    topic = Topic(2)
    # Its pattern matches no topic yet.
    asyncio.run(topic.sidecar.join([]))
    topic.join()
    assert topic.made == [(0, EARLIEST), (1, EARLIEST)]


def test_a_lane_whose_cursor_was_lost_while_a_sidecar_consumed_is_read_from_its_start() -> None:
    topic = Topic(3)
    topic.join()
    # As when the topic is deleted and created again.
    topic.cursors.clear()
    topic.join()
    assert dict(topic.made[3:]) == dict.fromkeys(range(3), EARLIEST)


RETRY = "billing.offramp.retry"


class Group(Client):
    """The cursors of a group that consumes topics by name and by pattern, and has a topic of its own."""

    def __init__(self) -> None:
        self.cursors: dict[str, pulsar.InitialPosition] = {}
        self.broken: set[str] = set()

    def joins(self, *topics: str) -> None:
        parts: Any = self
        spec = SourceSpec("group", ("orders", "returns", "^.*"), Start.LATEST, own_topics={RETRY: 1})
        sidecar = LaneJoiner(spec, PulsarOptions(url="pulsar://nowhere"), parts, parts)
        asyncio.run(sidecar.join([(Lane(topic, 0), topic) for topic in (RETRY, *topics)]))

    async def topic_state(self, name: str) -> TopicState:
        return TopicState(0, (1, 4), {"group": 7} if name in self.cursors else {})

    async def subscribe(self, name: str, group: str, *, initial_position: Any, **settings: object) -> Consumer:
        await asyncio.sleep(0)
        if name in self.broken:
            raise Unavailable("the connection is lost")
        self.cursors.setdefault(name, initial_position)
        return Consumer()


def test_a_topic_of_a_pattern_that_was_created_while_no_sidecar_ran_is_read_from_its_start() -> None:
    group = Group()
    group.joins("orders", "all-sorts")
    group.joins("orders", "all-sorts", "all-new", "returns")
    # A topic that is configured by its name starts at the latest position, although it is joined later.
    assert group.cursors.pop("all-new") == group.cursors.pop(RETRY) == EARLIEST
    assert group.cursors == dict.fromkeys(("orders", "all-sorts", "returns"), LATEST)


def test_a_group_that_failed_to_join_a_topic_of_its_pattern_starts_at_the_end_of_it_too() -> None:
    group = Group()
    group.broken = {"all-sorts"}
    with pytest.raises(Unavailable):
        group.joins("orders", "all-others", "all-sorts")
    # Its own topic is joined last.
    assert group.cursors == {"orders": LATEST, "all-others": LATEST}
    group.broken.clear()
    group.joins("orders", "all-others", "all-sorts")
    assert group.cursors.pop(RETRY) == EARLIEST
    assert {*group.cursors.values()} == {LATEST}


def test_a_lane_that_fails_soon_after_it_was_joined_again_must_wait() -> None:
    backoff = RejoinBackoff()
    backoff.failed(LANE, "it is closed", 0.0)
    assert LANE not in backoff
    backoff.rejoined(LANE, 1.0)
    backoff.failed(LANE, "it cannot be read", 5.0)
    assert LANE in backoff
    assert not backoff.end_waits(14.0)
    assert backoff.trouble(14.0) == "orders/0 fails whenever it is joined: it cannot be read"
    assert backoff.end_waits(15.0)
    assert LANE not in backoff


def test_a_lane_that_worked_for_a_while_need_not_wait() -> None:
    backoff = RejoinBackoff()
    backoff.failed(LANE, "it is closed", 0.0)
    backoff.rejoined(LANE, 1.0)
    backoff.failed(LANE, "it is closed", 20.0)
    assert LANE not in backoff


def test_the_trouble_is_over_when_the_lane_has_worked_for_a_while() -> None:
    backoff = RejoinBackoff()
    backoff.rejoined(LANE, 1.0)
    backoff.failed(LANE, "it cannot be read", 1.0)
    assert backoff.end_waits(11.0)
    backoff.rejoined(LANE, 11.0)
    assert backoff.trouble(20.0)
    assert not backoff.trouble(21.0)

"""What the poll thread makes of its lanes when the core asks for something within a poll."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from sidecar.brokers.base import LaneEnd, Lost
from sidecar.brokers.kafka.consumer.commits import Commits, Request
from sidecar.brokers.kafka.consumer.poll_thread import Member
from sidecar.brokers.kafka.consumer.position_control import Steering
from sidecar.brokers.kafka.lanes import Phase, Reading
from sidecar.brokers.kafka.options import OutOfRange
from sidecar.brokers.kafka.poll_buffer import Shelf
from sidecar.brokers.kafka.records import Taken
from sidecar.brokers.kafka.starting import going_on
from sidecar.brokers.kafka.waste import Waste
from sidecar.model.errors import BrokerError, LaneGone
from sidecar.model.records import Lane

KEPT, LEAVING = Lane("orders", 0), Lane("orders", 1)


class Message:
    def __init__(self, lane: Lane, position: int) -> None:
        self._lane = lane
        self._position = position

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return self._lane.topic

    def partition(self) -> int:
        return self._lane.number

    def offset(self) -> int:
        return self._position

    def timestamp(self) -> tuple[int, int]:
        return (1, 1)

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"%d" % self._position

    def headers(self) -> None:
        return None


class Tidings(Message):
    """An error of a lane; without a position where the library has none to tell."""

    def __init__(self, code: int, lane: Lane, position: int | None) -> None:
        super().__init__(lane, position or 0)
        self._code = code
        self._at = position

    def error(self) -> Any:
        return KafkaError(self._code)

    def offset(self) -> Any:
        return self._at


class Library:
    """Stands in for a consumer: gives what is put into `first`, and calls back within `consume`."""

    def __init__(self) -> None:
        self.first: Message | None = None
        self.within: Callable[[], None] = lambda: None
        self.sought: list[tuple[Lane, int]] = []
        self.paused: list[Lane] = []

    def poll(self, timeout: float) -> Message | None:
        first, self.first = self.first, None
        return first

    def consume(self, most: int, timeout: float) -> list[Message]:
        self.within()
        return []

    def seek(self, partition: TopicPartition) -> None:
        self.sought.append((Lane(partition.topic, partition.partition), partition.offset))

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self.sought += [(Lane(each.topic, each.partition), each.offset) for each in partitions]

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        pass

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused += [Lane(each.topic, each.partition) for each in partitions]

    def resume(self, partitions: list[TopicPartition]) -> None:
        pass


class Ear:
    """What the thread told."""

    def __init__(self) -> None:
        self.lanes: list[Reading] = []
        self.astray: list[Lane] = []

    def arrived(self, readings: list[Reading]) -> None:
        self.lanes += readings

    def strayed(self, reading: Reading) -> None:
        self.astray.append(reading.lane)

    def watch(self, request: Request) -> None: ...

    def failed(self, error: KafkaError, topic: str | None) -> None: ...

    def ended(self, error: BaseException | None) -> None: ...


class Thread:
    """A member that is turned by hand, active in two lanes."""

    def __init__(self) -> None:
        self.shelf = Shelf(lambda: None)
        self.ear = Ear()
        self.library: Any = Library()
        self.member = Member(lambda _: self.library, ["orders"], self.shelf, self.ear, grace=1.0, on_trial=False)
        for user in (self.member, self.member._commits, self.member._steering):
            setattr(user, "consumer" if user is not self.member else "_consumer", self.library)
        self.member.want(1_000, 1 << 20)
        for lane in (KEPT, LEAVING):
            self.member._readings[lane] = active(lane)

    def brings(self, lane: Lane, *positions: int) -> None:
        messages: Any = [Message(lane, position) for position in positions]
        self.member._take_in(messages)

    def ready(self) -> list[tuple[Lane, list[int]]]:
        return [(chunk.lane, [*chunk.positions]) for chunk in self.shelf.take(1_000, 1 << 20).chunks]


def active(lane: Lane, position: int = 0) -> Reading:
    reading = Reading(lane)
    reading.phase, reading.next = Phase.ACTIVE, position
    return reading


def test_a_pause_within_a_revoke_makes_no_gap_of_what_it_gives_back() -> None:
    """The poll has the next record of the lane in its hands already when those before it are given back."""
    thread = Thread()
    thread.brings(KEPT, *range(100))
    thread.library.first = Message(KEPT, 100)

    def revoke() -> None:
        thread.shelf.pause([KEPT])
        thread.member.pause([KEPT])
        thread.member.release([LEAVING])
        thread.member._rebalance.revoked(thread.library, [TopicPartition(*LEAVING)])

    thread.library.within = revoke
    thread.member._fetch(0.0)
    thread.shelf.resume([KEPT])
    thread.member.resume([KEPT])
    thread.member._inbox.work_all()
    assert thread.ready() == []
    assert thread.library.sought[-1] == (KEPT, 0)
    thread.brings(KEPT, *range(101))
    assert thread.ready() == [(KEPT, [*range(101)])]


def test_a_pause_gives_nothing_back_while_it_is_being_found_out_where_the_lane_goes_on() -> None:
    reading, shelf = active(KEPT, 100), Shelf(lambda: None)
    reading.phase = Phase.STUCK
    shelf.put([Taken(KEPT, range(80, 100), [b"x"] * 20)])
    steering = Steering({KEPT: reading}, shelf, Waste())
    library: Any = Library()
    steering.consumer = library
    shelf.pause([KEPT])
    steering.pause([KEPT])
    steering.restart(reading, going_on(100, LaneEnd(0, 105), OutOfRange.EARLIEST))
    shelf.resume([KEPT])
    steering.resume([KEPT])
    assert [[*chunk.positions] for chunk in shelf.take(100, 1 << 20).chunks] == [[*range(80, 100)]]
    assert reading.next == 100


def test_what_waits_for_a_paused_lane_does_not_count_as_ready() -> None:
    shelf = Shelf(lambda: None)
    shelf.put([Taken(KEPT, range(10), [b"x"] * 10), Taken(LEAVING, range(5), [b"x"] * 5)])
    shelf.pause([KEPT])
    assert (shelf.records, shelf.bytes) == (5, 5)
    shelf.resume([KEPT])
    assert (shelf.records, shelf.bytes) == (15, 15)


def test_a_lane_that_kafka_did_not_know_for_a_moment_begins_anew() -> None:
    """The core lets go of it, and nobody revokes it: without a new beginning nothing of it would ever be delivered."""
    thread = Thread()
    commits = thread.member._commits
    answers: list[BrokerError | None] = []
    thread.library.commit = lambda **_: None
    thread.brings(KEPT, 0, 1, 2)
    commits.submit(Request({KEPT: (3, "")}, answers.append, lambda: False))
    commits.serve()
    unknown: Any = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    commits.answered(unknown, [TopicPartition(KEPT.topic, KEPT.number, 3)])
    assert isinstance(answers[0], LaneGone)
    assert [reading.lane for reading in thread.ear.lanes] == [KEPT]
    assert thread.member.has(thread.ear.lanes[0])
    assert thread.ready() == []
    assert KEPT in thread.library.paused


def test_lanes_that_are_to_begin_anew_are_lost_first() -> None:
    thread = Thread()
    thread.brings(KEPT, 0, 1, 2)
    thread.member._readings[LEAVING].phase = Phase.LEAVING
    thread.member.begin_anew([KEPT, LEAVING, Lane("unknown", 0)])
    thread.member._inbox.work_all()
    polled = thread.shelf.take(1_000, 1 << 20)
    assert (polled.chunks, polled.events) == ([], [Lost(frozenset([KEPT]))])
    assert [reading.lane for reading in thread.ear.lanes] == [KEPT]
    assert thread.member.has(thread.ear.lanes[0])


def test_a_position_that_is_to_be_stored_first_is_tried_again_by_whoever_asked() -> None:
    vanished: list[list[Lane]] = []
    commits = Commits({KEPT: Reading(KEPT)}, vanished.append)
    library: Any = Library()
    library.commit = lambda **_: None
    commits.consumer = library
    answers: list[BrokerError | None] = []
    commits.submit(Request({KEPT: (3, "")}, answers.append, lambda: False, pins=True))
    commits.serve()
    unknown: Any = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    commits.answered(unknown, [TopicPartition(KEPT.topic, KEPT.number, 3)])
    assert isinstance(answers[0], LaneGone)
    assert vanished == []


@pytest.mark.parametrize(
    ("position", "stuck"),
    [
        pytest.param(10, True, id="removed by retention"),
        pytest.param(None, True, id="the log was cut"),
        pytest.param(9, False, id="told of an earlier place"),
    ],
)
def test_where_a_lane_goes_on_whose_position_is_gone_is_found_out(position: int | None, stuck: bool) -> None:
    thread = Thread()
    thread.brings(KEPT, *range(10))
    tidings: Any = Tidings(KafkaError._AUTO_OFFSET_RESET, KEPT, position)
    thread.member._take_in([tidings])
    assert thread.ear.astray == [KEPT] * stuck
    assert thread.member._readings[KEPT].phase is (Phase.STUCK if stuck else Phase.ACTIVE)


@pytest.mark.parametrize("paused", [False, True])
def test_what_is_given_back_comes_again_from_where_it_began(paused: bool) -> None:
    thread = Thread()
    thread.brings(KEPT, *range(10))
    if paused:
        thread.member.pause([KEPT])
        thread.member._inbox.work_all()
        thread.brings(KEPT, 10, 11)
        assert thread.ready() == []
        thread.member.resume([KEPT])
        thread.member._inbox.work_all()
        assert thread.library.sought == [(KEPT, 0)]
        thread.brings(KEPT, *range(12))
    else:
        thread.brings(KEPT, 10, 11)
    assert [position for _, positions in thread.ready() for position in positions] == [*range(12)]

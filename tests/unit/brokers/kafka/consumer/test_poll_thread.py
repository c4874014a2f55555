"""What the poll thread does with its lanes when the core asks for something within a poll."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from sidecar.brokers.base import Lost
from sidecar.brokers.kafka.consumer.commits import CommitRequest
from sidecar.brokers.kafka.consumer.poll_thread import PollThread
from sidecar.brokers.kafka.consumer.position_control import LaneReader, Phase
from sidecar.brokers.kafka.poll_buffer import PollBuffer
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


class ErrorMessage(Message):
    """An error of a lane; without a position where the library has none."""

    def __init__(self, code: int, lane: Lane, position: int | None) -> None:
        super().__init__(lane, position or 0)
        self._code = code
        self._at = position

    def error(self) -> Any:
        return KafkaError(self._code)

    def offset(self) -> Any:
        return self._at


class Library:
    """Stands in for a consumer: returns `first`, and calls back within `consume`."""

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


class Events:
    """What the thread reported."""

    def __init__(self) -> None:
        self.readers: list[LaneReader] = []
        self.lost: list[Lane] = []

    def assigned(self, readers: list[LaneReader]) -> None:
        self.readers += readers

    def position_lost(self, reader: LaneReader) -> None:
        self.lost.append(reader.lane)

    def query_commit(self, request: CommitRequest) -> None: ...

    def failed(self, error: KafkaError, topic: str | None) -> None: ...

    def ended(self, error: BaseException | None) -> None: ...


class Run:
    """A poll thread that is run by hand, active in two lanes."""

    def __init__(self) -> None:
        self.buffer = PollBuffer(lambda: None)
        self.events = Events()
        self.library: Any = Library()
        self.thread = PollThread(
            lambda _: self.library, ["orders"], self.buffer, self.events, grace=1.0, trying_protocol=False
        )
        self.thread._consumer = self.thread._commits.consumer = self.thread._positions.consumer = self.library
        self.thread.set_limits(1_000, 1 << 20)
        for lane in (KEPT, LEAVING):
            self.thread._readers[lane] = active(lane)

    def receive(self, lane: Lane, *positions: int) -> None:
        messages: Any = [Message(lane, position) for position in positions]
        self.thread._handle_messages(messages)

    def ready(self) -> list[tuple[Lane, list[int]]]:
        return [(chunk.lane, [*chunk.positions]) for chunk in self.buffer.take(1_000, 1 << 20).chunks]


def active(lane: Lane, position: int = 0) -> LaneReader:
    return LaneReader(lane, Phase.ACTIVE, position)


def test_a_pause_within_a_revoke_makes_no_gap_of_the_records_that_it_takes_back() -> None:
    """The poll already holds the next record of the lane when those before it are taken back."""
    run = Run()
    run.receive(KEPT, *range(100))
    run.library.first = Message(KEPT, 100)

    def revoke() -> None:
        run.buffer.pause([KEPT])
        run.thread.pause([KEPT])
        run.thread.release([LEAVING])
        run.thread._rebalance.revoked(run.library, [TopicPartition(*LEAVING)])

    run.library.within = revoke
    run.thread._fetch(0.0)
    run.buffer.resume([KEPT])
    run.thread.resume([KEPT])
    run.thread._queue.run_all()
    assert run.ready() == []
    assert run.library.sought[-1] == (KEPT, 0)
    run.receive(KEPT, *range(101))
    assert run.ready() == [(KEPT, [*range(101)])]


def test_a_lane_that_kafka_did_not_know_for_a_moment_starts_again() -> None:
    """The core gives it up, and nobody revokes it: otherwise none of its records would ever be delivered."""
    run = Run()
    commits = run.thread._commits
    results: list[BrokerError | None] = []
    run.library.commit = lambda **_: None
    run.receive(KEPT, 0, 1, 2)
    commits.submit(CommitRequest({KEPT: (3, "")}, results.append, lambda: False))
    commits.send_due()
    unknown: Any = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    commits.on_response(unknown, [TopicPartition(*KEPT, 3)])
    assert isinstance(results[0], LaneGone)
    assert [reader.lane for reader in run.events.readers] == [KEPT]
    assert run.thread.has(run.events.readers[0])
    assert run.ready() == []
    assert KEPT in run.library.paused


def test_lanes_that_restart_are_lost_first() -> None:
    run = Run()
    run.receive(KEPT, 0, 1, 2)
    run.thread._readers[LEAVING].phase = Phase.REVOKED
    run.thread.restart_lanes([KEPT, LEAVING, Lane("unknown", 0)])
    run.thread._queue.run_all()
    polled = run.buffer.take(1_000, 1 << 20)
    assert (polled.chunks, polled.events) == ([], [Lost(frozenset([KEPT]))])
    assert [reader.lane for reader in run.events.readers] == [KEPT]
    assert run.thread.has(run.events.readers[0])


@pytest.mark.parametrize(
    ("position", "lost"),
    [
        pytest.param(10, True, id="removed by retention"),
        pytest.param(None, True, id="the log was truncated"),
        pytest.param(9, False, id="from before a seek"),
    ],
)
def test_a_lane_whose_position_is_gone_waits_until_it_is_known_where_to_resume(
    position: int | None, lost: bool
) -> None:
    run = Run()
    run.receive(KEPT, *range(10))
    message: Any = ErrorMessage(KafkaError._AUTO_OFFSET_RESET, KEPT, position)
    run.thread._handle_messages([message])
    assert run.events.lost == [KEPT] * lost
    assert run.thread._readers[KEPT].phase is (Phase.POSITION_LOST if lost else Phase.ACTIVE)


@pytest.mark.parametrize("paused", [False, True])
def test_records_that_a_pause_took_back_come_again(paused: bool) -> None:
    run = Run()
    run.receive(KEPT, *range(10))
    if paused:
        run.thread.pause([KEPT])
        run.thread._queue.run_all()
        run.receive(KEPT, 10, 11)
        assert run.ready() == []
        run.thread.resume([KEPT])
        run.thread._queue.run_all()
        assert run.library.sought == [(KEPT, 0)]
        run.receive(KEPT, *range(12))
    else:
        run.receive(KEPT, 10, 11)
    assert [position for _, positions in run.ready() for position in positions] == [*range(12)]

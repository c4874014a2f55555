"""What the poll thread does with its lanes, also when the core asks for something while a revoke waits."""

from collections.abc import Callable, Collection
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from sidecar.brokers.base import LaneEnd, Lost
from sidecar.brokers.kafka.consumer.commits import CommitRequest
from sidecar.brokers.kafka.consumer.poll_thread import PollThread
from sidecar.brokers.kafka.consumer.position_control import LaneReader, Phase
from sidecar.brokers.kafka.consumer.start_position import StartPosition
from sidecar.brokers.kafka.poll_buffer import PollBuffer
from sidecar.model.errors import BrokerError, LaneGone
from sidecar.model.records import Assigned, Lane

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


class Fetcher:
    """Stands in for the consumer that fetches: returns `waiting`."""

    def __init__(self) -> None:
        self.waiting: list[Message] = []
        self.given: set[Lane] = set()
        self.sought: list[tuple[Lane, int]] = []
        self.refuses_seeks = False

    def poll(self, timeout: float) -> Message | None:
        return self.waiting.pop(0) if self.waiting else None

    def consume(self, most: int, timeout: float) -> list[Message]:
        taken, self.waiting = self.waiting[:most], self.waiting[most:]
        return taken

    def seek(self, partition: TopicPartition) -> None:
        if self.refuses_seeks:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.sought.append((Lane(partition.topic, partition.partition), partition.offset))

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        for lane, position in ((Lane(each.topic, each.partition), each.offset) for each in partitions):
            assert lane not in self.given
            self.given.add(lane)
            self.sought.append((lane, position))

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        lanes = {Lane(each.topic, each.partition) for each in partitions}
        assert lanes <= self.given
        self.given -= lanes

    def pause(self, partitions: list[TopicPartition]) -> None: ...

    def resume(self, partitions: list[TopicPartition]) -> None: ...

    def get_watermark_offsets(self, partition: TopicPartition, cached: bool) -> tuple[int, int]:
        return (0, 0)


class Member:
    """Stands in for the member of the group: notes each change of its assignment."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, list[TopicPartition]]] = []

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self.changes.append(("assign", partitions))

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        self.changes.append(("unassign", partitions))

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None: ...


class Events:
    """What the thread reported."""

    def __init__(self) -> None:
        self.readers: list[LaneReader] = []
        self.lost: list[Lane] = []
        self.on_check: Callable[[CommitRequest, Collection[Lane]], None] = lambda request, lanes: None

    def assigned(self, readers: list[LaneReader]) -> None:
        self.readers += readers

    def position_lost(self, reader: LaneReader) -> None:
        self.lost.append(reader.lane)

    def query_commit(self, request: CommitRequest) -> None: ...

    def check_commit(self, request: CommitRequest, lanes: Collection[Lane]) -> None:
        self.on_check(request, lanes)

    def failed(self, error: KafkaError, topic: str | None) -> None: ...

    def ended(self, error: BaseException | None) -> None: ...


class Run:
    """A poll thread that is run by hand, active in two lanes."""

    def __init__(self) -> None:
        self.buffer = PollBuffer(lambda: None)
        self.events = Events()
        self.fetcher: Any = Fetcher()
        self.member: Any = Member()
        self.thread = PollThread(
            lambda _: self.member,
            lambda _: self.fetcher,
            ["orders"],
            self.buffer,
            self.events,
            grace=1.0,
            trying_protocol=False,
        )
        self.thread._fetcher = self.thread._positions.fetcher = self.fetcher
        self.thread._member = self.thread._commits.consumer = self.member
        self.thread.set_limits(1_000, 1 << 20)
        for lane in (KEPT, LEAVING):
            self.thread._readers[lane] = active(lane)
            self.fetcher.given.add(lane)

    def revoke(self, *lanes: Lane) -> None:
        self.thread._rebalance.revoked(self.member, [TopicPartition(*lane) for lane in lanes])

    def receive(self, lane: Lane, *positions: int) -> None:
        messages: Any = [Message(lane, position) for position in positions]
        self.thread._handle_messages(messages)

    def ready(self) -> list[tuple[Lane, list[int]]]:
        return [(chunk.lane, [*chunk.positions]) for chunk in self.buffer.take(1_000, 1 << 20).chunks]


def active(lane: Lane, position: int = 0) -> LaneReader:
    return LaneReader(lane, Phase.ACTIVE, position)


def started(run: Run, reader: LaneReader, position: int) -> None:
    run.thread.start_lanes({reader: StartPosition(position, (), False, LaneEnd(0, 200), position)})


def test_the_member_changes_its_assignment_in_callbacks_only_and_never_has_a_lane() -> None:
    """Between two polls the library would take it for the answer to a callback that waits."""
    run, lane = Run(), Lane("orders", 2)
    run.thread._rebalance.assigned(run.member, [TopicPartition(*lane)])
    assert run.member.changes == [("assign", [])]
    run.fetcher.refuses_seeks = True
    (reader,) = run.events.readers
    started(run, reader, 7)
    run.thread.pause([lane, KEPT])
    run.thread.resume([lane, KEPT])
    run.thread.move({lane: 3}, lambda: None)
    run.thread.restart_lanes([KEPT])
    run.thread._serve_core(0.0)
    assert run.member.changes == [("assign", [])]
    assert run.fetcher.given == {lane, LEAVING}
    run.thread.release([lane])
    run.revoke(lane)
    run.thread._rebalance.lost(run.member, [TopicPartition(*LEAVING)])
    assert run.member.changes[1:] == [("unassign", []), ("unassign", [])]
    assert run.fetcher.given == set()


def test_while_a_revoke_waits_the_other_lanes_are_fetched_and_the_leaving_one_is_not() -> None:
    run = Run()
    run.fetcher.waiting = [Message(KEPT, 0), Message(LEAVING, 0), Message(KEPT, 1)]
    fetched: list[tuple[Lane, list[int]]] = []

    def release() -> None:
        if run.fetcher.waiting:
            run.thread._queue.put(release)
            run.thread._fetch(0.0)
        else:
            fetched.extend(run.ready())
            run.thread.release([LEAVING])

    run.thread._queue.put(release)
    run.revoke(LEAVING)
    assert fetched == [(KEPT, [0, 1])]
    assert run.fetcher.given == {KEPT}


def test_a_lane_whose_start_becomes_known_while_it_is_revoked_never_starts() -> None:
    run, lane = Run(), Lane("orders", 2)
    run.thread._rebalance.assigned(run.member, [TopicPartition(*lane)])
    (reader,) = run.events.readers
    started(run, reader, 7)
    run.thread.release([LEAVING])
    run.revoke(LEAVING, lane)
    run.thread._serve_core(0.0)
    assert run.fetcher.given == {KEPT}
    assert not [event for event in run.buffer.take(1, 1).events if isinstance(event, Assigned)]


def test_a_pause_within_a_revoke_makes_no_gap_of_the_records_that_it_takes_back() -> None:
    run = Run()
    run.receive(KEPT, *range(100))
    run.fetcher.waiting = [Message(KEPT, 100)]
    run.buffer.pause([KEPT])
    run.thread.pause([KEPT])
    run.thread.release([LEAVING])
    run.revoke(LEAVING)
    run.buffer.resume([KEPT])
    run.thread.resume([KEPT])
    run.thread._queue.run()
    assert run.ready() == []
    assert run.fetcher.sought[-1] == (KEPT, 0)
    run.receive(KEPT, *range(101))
    assert run.ready() == [(KEPT, [*range(101)])]


def test_a_revoked_lane_that_another_sidecar_has_committed_further_is_lost() -> None:
    run = Run()
    results: list[BrokerError | None] = []
    sent: list[TopicPartition] = []
    run.member.commit = lambda offsets, asynchronous: sent.extend(offsets)
    run.events.on_check = lambda request, lanes: run.thread.checked(request, dict.fromkeys(lanes, 4))
    run.thread.commit(CommitRequest({LEAVING: (3, "")}, results.append, lambda: False))
    run.revoke(LEAVING)
    assert sent == []
    assert isinstance(results[0], LaneGone)
    assert run.member.changes == [("unassign", [])]


def test_an_error_from_before_a_seek_does_not_leave_the_lane_without_fetches() -> None:
    """The library may have stopped for it after the seek, and then refuses every seek."""
    run = Run()
    run.receive(KEPT, *range(10))
    run.fetcher.refuses_seeks = True
    message: Any = ErrorMessage(KafkaError._AUTO_OFFSET_RESET, KEPT, 9)
    run.thread._handle_messages([message])
    run.thread._serve_core(0.0)
    assert run.fetcher.sought == [(KEPT, 10)]
    run.receive(KEPT, 10, 11)
    assert [position for _, positions in run.ready() for position in positions] == [*range(12)]


def test_a_lane_that_kafka_did_not_know_for_a_moment_starts_again() -> None:
    """The core gives it up, and nobody revokes it: otherwise none of its records would ever be delivered."""
    run = Run()
    commits = run.thread._commits
    results: list[BrokerError | None] = []
    run.receive(KEPT, 0, 1, 2)
    commits.submit(CommitRequest({KEPT: (3, "")}, results.append, lambda: False))
    commits.send_due()
    unknown: Any = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    commits.on_response(unknown, [TopicPartition(*KEPT, 3)])
    assert isinstance(results[0], LaneGone)
    assert [reader.lane for reader in run.events.readers] == [KEPT]
    assert run.thread.has(run.events.readers[0])
    assert run.ready() == []
    assert run.fetcher.given == {LEAVING}


def test_lanes_that_restart_are_lost_first() -> None:
    run = Run()
    run.receive(KEPT, 0, 1, 2)
    run.thread._readers[LEAVING].phase = Phase.REVOKED
    run.thread.restart_lanes([KEPT, LEAVING, Lane("unknown", 0)])
    run.thread._queue.run()
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
        run.thread._queue.run()
        run.receive(KEPT, 10, 11)
        assert run.ready() == []
        run.thread.resume([KEPT])
        run.thread._queue.run()
        assert run.fetcher.sought == [(KEPT, 0)]
        run.receive(KEPT, *range(12))
    else:
        run.receive(KEPT, 10, 11)
    assert [position for _, positions in run.ready() for position in positions] == [*range(12)]

"""The thread that owns two consumers: the member of the group, which holds lanes and commits, and the fetcher, which
fetches them and is in no group (`rebalance` says why).

It polls the member without pause: this keeps the lanes, however long a handler takes. The library lets one thread at a
time use a consumer, so everything else that uses one is a command for this thread.
"""

import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from sidecar.brokers.base import Advanced, LaneEnd, Lost
from sidecar.brokers.kafka.consumer.commits import CommitRequest, Commits, Offsets
from sidecar.brokers.kafka.consumer.position_control import LaneReader, Phase, PositionControl
from sidecar.brokers.kafka.consumer.rebalance import Rebalance
from sidecar.brokers.kafka.consumer.start_position import StartPosition
from sidecar.brokers.kafka.errors import is_fatal, says_no_consumer_protocol
from sidecar.brokers.kafka.forgotten_brokers import has_forgotten_brokers
from sidecar.brokers.kafka.poll_buffer import PollBuffer, RefetchMeter
from sidecar.brokers.kafka.records import LaneRecords, encode
from sidecar.model.records import Lane
from sidecar.observability.logs import Log

log = Log("kafka")

#: seconds that a poll waits, which delays commands, and the same when there was no command lately
_POLL_TIMEOUT, _IDLE_POLL_TIMEOUT = 0.02, 0.1
#: seconds after a command that count as lately
_LATELY = 1.0
#: seconds between updates of the ends of lanes
_ENDS_INTERVAL = 0.25
#: seconds between polls of the group while the core has not taken what is buffered
_FULL_INTERVAL = 0.05
#: seconds between fetches while a revoke waits for the core
_REVOKE_INTERVAL = 0.01
#: bytes: the average size of records, before there are any
_INITIAL_RECORD_SIZE = 1024.0


#: makes a consumer, with these callbacks
Connect = Callable[[Mapping[str, Any]], Consumer]


class UnknownProtocol(Exception):
    """The broker does not support the group protocol that was tried."""


class PollThreadEvents(Protocol):
    """Called on the poll thread; must not block."""

    def assigned(self, readers: list[LaneReader]) -> None:
        """`PollThread.start_lanes` must be called when it is known where these lanes start."""

    def position_lost(self, reader: LaneReader) -> None:
        """The position of a lane no longer exists: `PollThread.recover` must be called."""

    def query_commit(self, request: CommitRequest) -> None:
        """The response to a commit will not come soon: `PollThread.confirm` must be called if Kafka has it."""

    def check_commit(self, request: CommitRequest, lanes: Collection[Lane]) -> None:
        """`PollThread.checked` must be called with the positions that Kafka has of these lanes."""

    def failed(self, error: KafkaError, topic: str | None) -> None:
        """Something does not work: a topic, or without one the group or the connection."""

    def ended(self, error: BaseException | None) -> None:
        """The thread has ended. After a `KafkaException`, another one may succeed."""


class CommandQueue:
    """Commands for the poll thread. Filled by any thread, run by one."""

    def __init__(self) -> None:
        self._commands: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        #: when a command was last run
        self.last_run = time.monotonic()

    def put(self, command: Callable[[], None]) -> None:
        self._commands.append(command)
        self.wake()

    def wake(self) -> None:
        with self._wake:
            self._wake.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait for a command, at most for this long."""
        with self._wake:
            if not self._commands:
                self._wake.wait(seconds)

    def run(self) -> None:
        """Run all commands."""
        if self._commands:
            self.last_run = time.monotonic()
        while self._commands:
            self._commands.popleft()()


class PollThread:
    def __init__(
        self,
        connect_member: Connect,
        connect_fetcher: Connect,
        topics: Collection[str],
        buffer: PollBuffer,
        events: PollThreadEvents,
        *,
        grace: float,
        trying_protocol: bool,
        instance_filter: Callable[[list[Message]], list[Message]] | None = None,
    ) -> None:
        """`trying_protocol`: end with `UnknownProtocol` if the broker does not support the group protocol.
        `instance_filter` leaves out what is not for this pod."""
        self._connect_member = connect_member
        self._connect_fetcher = connect_fetcher
        self._topics = list(topics)
        self._buffer = buffer
        self._events = events
        self._trying_protocol = trying_protocol
        self._instance_filter = instance_filter
        self._readers: dict[Lane, LaneReader] = {}
        self.refetch_meter = RefetchMeter()
        self._commits = Commits(self._readers, self._restart, events.check_commit)
        self._positions = PositionControl(self._readers, buffer, self.refetch_meter)
        self._rebalance = Rebalance(
            self._readers,
            self._commits,
            self._positions,
            buffer,
            grace,
            on_assigned=self._assigned,
            query_commit=events.query_commit,
            serve_core=self._serve_core_within_poll,
        )
        self._member: Consumer
        self._fetcher: Consumer
        self._queue = CommandQueue()
        self._stopping = False
        self._raised: BaseException | None = None
        self._ends_updated = 0.0
        #: the thread waits until the core takes what is buffered
        self._waits = False
        self._record_size = _INITIAL_RECORD_SIZE
        #: records and bytes that the core takes at a time; the buffer holds little more
        self._limits = (1, 1)
        #: replaced, never changed
        self.ends: Mapping[Lane, LaneEnd] = {}
        self._thread = threading.Thread(target=self._run, name="offramp-kafka-poll", daemon=True)

    # From the event loop.

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Leave the group and end. Returns at once; `PollThreadEvents.ended` follows."""
        self._stopping = self._rebalance.closing = True
        self._queue.wake()

    def set_limits(self, max_records: int, max_bytes: int) -> None:
        """What the core takes at a time. It may have taken something just now."""
        self._limits = (max_records, max_bytes)
        if self._waits:
            self._queue.wake()

    def commit(self, request: CommitRequest) -> None:
        self._queue.put(lambda: self._commits.submit(request))

    def confirm(self, request: CommitRequest, sent: Offsets) -> None:
        """Kafka has what was sent of a commit."""
        self._queue.put(lambda: self._commits.confirm(request, sent))

    def checked(self, request: CommitRequest, stored: Mapping[Lane, int]) -> None:
        """Kafka has these positions of lanes of a commit."""
        self._queue.put(lambda: self._commits.checked(request, stored))

    def release(self, lanes: Collection[Lane]) -> None:
        self._queue.put(lambda: self._rebalance.release([*lanes]))

    def pause(self, lanes: Collection[Lane]) -> None:
        self._queue.put(lambda: self._positions.pause([*lanes]))

    def resume(self, lanes: Collection[Lane]) -> None:
        self._queue.put(lambda: self._positions.resume([*lanes]))

    def start_lanes(self, starts: Mapping[LaneReader, StartPosition]) -> None:
        self._queue.put(lambda: self._start_lanes(starts))

    def restart_lanes(self, lanes: Collection[Lane]) -> None:
        """Lose lanes, and start them as if they were assigned just now."""
        self._queue.put(lambda: self._restart_lanes(lanes))

    def recover(self, reader: LaneReader, start: StartPosition) -> None:
        self._queue.put(lambda: self._positions.recover(reader, start))

    def move(self, positions: Mapping[Lane, int], on_moved: Callable[[], None]) -> None:
        self._queue.put(lambda: self._positions.move(positions, on_moved))

    def update_ends(self, ends: Mapping[Lane, LaneEnd]) -> None:
        self._queue.put(lambda: self._positions.update_ends(ends))

    @property
    def revoke_seconds(self) -> float:
        return self._rebalance.waited

    def has(self, reader: LaneReader) -> bool:
        return self._readers.get(reader.lane) is reader

    # The thread.

    def _run(self) -> None:
        failure: BaseException | None = None
        for_both = {"stats_cb": self._guarded(self._on_statistics), "error_cb": self._guarded(self._broker_error)}
        on_commit = self._guarded(self._commits.on_response)
        try:
            with (
                contextlib.closing(self._connect_fetcher(for_both)) as fetcher,
                contextlib.closing(self._connect_member({"on_commit": on_commit, **for_both})) as member,
            ):
                self._fetcher = self._positions.fetcher = fetcher
                self._member = self._commits.consumer = member
                try:
                    member.subscribe(
                        self._topics,
                        on_assign=self._guarded(self._rebalance.assigned),
                        on_revoke=self._guarded(self._rebalance.revoked),
                        on_lost=self._guarded(self._rebalance.lost),
                    )
                    while not self._stopping:
                        self._run_once()
                finally:
                    self._prepare_to_leave()
        except BaseException as error:
            failure = error
        self._events.ended(failure)

    def _guarded(self, callback: Callable[..., None]) -> Callable[..., None]:
        """The library cannot pass an error of a callback to the caller of the poll: keep it until the poll returns."""

        def call(*args: Any) -> None:
            try:
                callback(*args)
            except BaseException as error:
                self._raised = self._raised or error

        return call

    def _raise_kept(self) -> None:
        if self._raised is not None:
            raise self._raised

    def _prepare_to_leave(self) -> None:
        self._rebalance.closing = True
        self._commits.close()
        lanes = [lane for lane, reader in self._readers.items() if reader.phase is not Phase.STARTING]
        if lanes and not self._stopping:
            # An error ends the thread, and the core still has the lanes.
            self._lose(lanes)
        self.ends = {}

    def _run_once(self) -> None:
        busy = time.monotonic() - self._queue.last_run < _LATELY or not self._commits.idle
        timeout = _POLL_TIMEOUT if busy else _IDLE_POLL_TIMEOUT
        # Wait where something can be expected.
        self._poll_member(0.0 if self._readers else timeout)
        self._commits.send_due()
        self._serve_core(timeout if self._readers else 0.0)

    def _poll_member(self, timeout: float) -> None:
        message = self._member.poll(timeout)
        self._raise_kept()
        if message is not None:
            # It fetches nothing.
            self._handle_error_message(message)

    def _serve_core_within_poll(self, seconds: float) -> None:
        """While a revoke waits within a poll of the group."""
        self._queue.wait(min(seconds, _REVOKE_INTERVAL))
        self._serve_core(0.0)

    def _serve_core(self, timeout: float) -> None:
        """Run what the core asks for, and fetch if there is room; wait at most this many seconds."""
        self._queue.run()
        self._positions.apply_seeks()
        self._waits = self._is_full()
        if self._waits:
            self._queue.wait(min(timeout, _FULL_INTERVAL))
        else:
            self._fetch(timeout)
        self._update_ends()

    def _fetch(self, timeout: float) -> None:
        first = self._fetcher.poll(timeout)
        self._raise_kept()
        if first is None:
            return
        max_records, max_bytes = self._limits
        most = min(max_records, max(1, int(max_bytes / self._record_size)))
        self._handle_messages([first, *self._fetcher.consume(most - 1, 0)] if most > 1 else [first])

    def _handle_messages(self, messages: list[Message]) -> None:
        if self._instance_filter is not None:
            messages = self._instance_filter(messages)
        records, error_messages = encode(messages)
        accepted: list[LaneRecords] = []
        for each in records:
            reader = self._readers.get(each.lane)
            if reader is None or not reader.delivers:
                continue
            new = each.starting_at(reader.next)
            if new.frames and reader.accepts_gap(new.positions[0]):
                reader.next = new.positions[-1] + 1
                self.refetch_meter.count(each.lane, len(new.frames))
                accepted.append(new)
        if accepted:
            frames = accepted[-1].frames
            self._record_size += 0.25 * (sum(map(len, frames)) / len(frames) - self._record_size)
            self._buffer.add_records(accepted)
        for message in error_messages:
            self._handle_error_message(message)

    def _is_full(self) -> bool:
        max_records, max_bytes = self._limits
        return self._buffer.records >= max_records or self._buffer.bytes >= max_bytes

    def _update_ends(self) -> None:
        """Read the ends that the library knows; it learns them with each fetch."""
        now = time.monotonic()
        if now - self._ends_updated < _ENDS_INTERVAL:
            return
        self._ends_updated = now
        ends: dict[Lane, LaneEnd] = {}
        for lane, reader in self._readers.items():
            if reader.end is None:
                continue
            low, high = self._fetcher.get_watermark_offsets(reader.partition, cached=True) or (-1, -1)
            before = reader.end
            reader.end = ends[lane] = LaneEnd(max(low, before.start), max(high, before.end, reader.next))
        self.ends = ends

    # Lanes.

    def _assigned(self, readers: list[LaneReader]) -> None:
        self._trying_protocol = False
        self._events.assigned(readers)

    def _start_lanes(self, starts: Mapping[LaneReader, StartPosition]) -> None:
        self.ends = {**self.ends, **self._positions.start(starts)}

    def _restart_lanes(self, lanes: Collection[Lane]) -> None:
        known = [lane for lane in lanes if lane in self._readers and self._readers[lane].in_core]
        if known:
            self._lose(known)
            self._restart(known)

    def _lose(self, lanes: list[Lane]) -> None:
        self._buffer.drop(lanes)
        self._buffer.add_event(Lost(frozenset(lanes)))

    def _restart(self, lanes: list[Lane]) -> None:
        """Start lanes again that the core has given up, though they are still assigned to us.

        Kafka does not know them, or not for us: their topic was deleted, its metadata was missing for a moment, or the
        right to it is missing. Nobody revokes them, so they start again once Kafka knows them.
        """
        earlier = [self._readers[lane] for lane in lanes if self._readers[lane].in_core]
        readers = [LaneReader(reader.lane) for reader in earlier]
        if readers:
            self._positions.stop(earlier)
            self._buffer.drop([reader.lane for reader in readers])
            self._readers.update((reader.lane, reader) for reader in readers)
            self._assigned(readers)

    # Errors.

    def _on_statistics(self, text: str) -> None:
        statistics = json.loads(text)
        if has_forgotten_brokers(statistics):
            # Another thread, with other consumers, can find them.
            log.warning(
                "librdkafka has forgotten all brokers: leaving the group and joining again", topics=self._topics
            )
            raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        # The member has received nothing, which does not count.
        self.refetch_meter.on_statistics(statistics)

    def _handle_error_message(self, message: Message) -> None:
        error = message.error()
        topic, number, position = message.topic(), message.partition(), message.offset()
        assert error is not None
        code = error.code()
        reader = self._readers.get(Lane(topic, number)) if topic is not None and number is not None else None
        if code == KafkaError._PARTITION_EOF:
            end = position or 0
            if reader is not None and reader.delivers and end > reader.next and reader.accepts_gap(end):
                reader.next = end
                self._buffer.add_event(Advanced(reader.lane, end))
        elif code == KafkaError._AUTO_OFFSET_RESET:
            if reader is not None and reader.delivers:
                # For a truncated log it has no position.
                if position is None or position >= reader.next:
                    reader.phase = Phase.POSITION_LOST
                    self._events.position_lost(reader)
                else:
                    # It is from before the last seek, but may have stopped the library after it.
                    reader.seek_to(reader.next)
        else:
            self._broker_error(error, topic)

    def _broker_error(self, error: KafkaError, topic: str | None = None) -> None:
        if self._trying_protocol and says_no_consumer_protocol(error):
            raise UnknownProtocol(error.str())
        if is_fatal(error):
            raise KafkaException(error)
        self._events.failed(error, topic)

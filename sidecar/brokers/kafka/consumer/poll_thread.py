"""The thread that owns a consumer. It polls always: that keeps the lanes ours, however long a handler takes.

The library lets one thread at a time into a consumer, and calls back within a poll. So everything else that is done
with the consumer is handed to this thread, and done between two polls.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from sidecar.brokers.base import Advanced, LaneEnd, Lost
from sidecar.brokers.kafka.consumer.commits import Commits, Request
from sidecar.brokers.kafka.consumer.position_control import Steering
from sidecar.brokers.kafka.consumer.rebalance import Rebalance
from sidecar.brokers.kafka.errors import is_fatal, says_no_consumer_protocol
from sidecar.brokers.kafka.inbox import Inbox
from sidecar.brokers.kafka.lanes import Phase, Reading
from sidecar.brokers.kafka.listener import Listener, UnknownProtocol
from sidecar.brokers.kafka.poll_buffer import Shelf
from sidecar.brokers.kafka.records import Taken, encode
from sidecar.brokers.kafka.starting import Beginning
from sidecar.brokers.kafka.waste import Waste
from sidecar.model.records import Lane

#: seconds that a poll waits: what is asked of the thread waits as long
_POLL = 0.02
#: seconds that it waits when nobody asked for anything lately
_IDLE_POLL = 0.1
_LATELY = 1.0
#: seconds between looks at the ends of lanes
_LOOK = 0.25
#: seconds that records may lie on the full shelf before the lanes are held, so that polling can go on
_PATIENCE = 1.0
#: seconds between two looks whether there is room
_BETWEEN_LOOKS = 0.05
#: bytes of a record, before any was seen
_FIRST_GUESS = 1024.0
#: the core has the lane, and nobody has told it that it goes
_BEGUN = (Phase.ACTIVE, Phase.STUCK)


class Member:
    def __init__(
        self,
        connect: Callable[[Mapping[str, Any]], Consumer],
        topics: Collection[str],
        shelf: Shelf,
        listener: Listener,
        *,
        grace: float,
        on_trial: bool,
        sieve: Callable[[list[Message]], list[Message]] | None = None,
    ) -> None:
        """`connect` makes the consumer, with these callbacks. `on_trial`: end with `UnknownProtocol` if the broker
        does not know the group protocol. `sieve` takes out what is not for this member."""
        self._connect = connect
        self._topics = list(topics)
        self._shelf = shelf
        self._listener = listener
        self._on_trial = on_trial
        self._sieve = sieve
        self._readings: dict[Lane, Reading] = {}
        self.waste = Waste()
        self._commits = Commits(self._readings, self._vanished)
        self._steering = Steering(self._readings, shelf, self.waste)
        self._rebalance = Rebalance(
            self._readings,
            self._commits,
            shelf,
            grace,
            arrived=self._arrived,
            watch=listener.watch,
            meanwhile=self._meanwhile,
        )
        self._consumer: Consumer
        self._inbox = Inbox()
        self._stopping = False
        self._raised: BaseException | None = None
        self._looked = 0.0
        self._full_since: float | None = None
        self._record_bytes = _FIRST_GUESS
        #: what the core takes at a time: no more than that is made ready
        self._limits = (1, 1)
        #: replaced, never changed
        self.ends: Mapping[Lane, LaneEnd] = {}
        self._thread = threading.Thread(target=self._run, name="offramp-kafka-poll", daemon=True)

    # From the event loop.

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Leave the group and end. Returns at once; the listener is told when it is done."""
        self._stopping = self._rebalance.closing = True
        self._inbox.wake()

    def want(self, max_records: int, max_bytes: int) -> None:
        """The core takes so much at a time, and may have taken something just now."""
        self._limits = (max_records, max_bytes)
        if self._full_since is not None:
            self._inbox.wake()

    def commit(self, request: Request) -> None:
        self._inbox.put(lambda: self._commits.submit(request))

    def confirm(self, request: Request, told: Mapping[Lane, tuple[int, str]]) -> None:
        self._inbox.put(lambda: self._commits.confirm(request, told))

    def release(self, lanes: Collection[Lane]) -> None:
        self._inbox.put(lambda: self._rebalance.released([*lanes]))

    def pause(self, lanes: Collection[Lane]) -> None:
        self._inbox.put(lambda: self._steering.pause([*lanes]))

    def resume(self, lanes: Collection[Lane]) -> None:
        self._inbox.put(lambda: self._steering.resume([*lanes]))

    def begin(self, beginnings: Mapping[Reading, Beginning]) -> None:
        self._inbox.put_later(lambda: self._begin(beginnings))

    def begin_anew(self, lanes: Collection[Lane]) -> None:
        """Let go of lanes, and find out where they start, as if they were assigned just now."""
        self._inbox.put_later(lambda: self._begin_anew(lanes))

    def restart(self, reading: Reading, beginning: Beginning) -> None:
        self._inbox.put_later(lambda: self._steering.restart(reading, beginning))

    def move(self, positions: Mapping[Lane, int], moved: Callable[[], None]) -> None:
        self._inbox.put_later(lambda: self._steering.move(positions, moved))

    def note_ends(self, ends: Mapping[Lane, LaneEnd]) -> None:
        self._inbox.put(lambda: self._steering.note_ends(ends))

    @property
    def revoke_seconds(self) -> float:
        return self._rebalance.waited

    def has(self, reading: Reading) -> bool:
        return self._readings.get(reading.lane) is reading

    # The thread.

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            callbacks = {
                "stats_cb": self._guarded(self.waste.report),
                "on_commit": self._guarded(self._commits.answered),
                "error_cb": self._guarded(self._broker_error),
            }
            self._consumer = self._commits.consumer = self._steering.consumer = self._connect(callbacks)
            try:
                self._consumer.subscribe(
                    self._topics,
                    on_assign=self._guarded(self._rebalance.assigned),
                    on_revoke=self._guarded(self._rebalance.revoked),
                    on_lost=self._guarded(self._rebalance.lost),
                )
                while not self._stopping:
                    self._turn()
            finally:
                self._leave()
        except BaseException as error:
            failure = error
        self._listener.ended(failure)

    def _guarded(self, callback: Callable[..., None]) -> Callable[..., None]:
        """The library cannot carry an error from within a poll to its caller: it is kept until then."""

        def call(*args: Any) -> None:
            try:
                callback(*args)
            except BaseException as error:
                self._raised = self._raised or error

        return call

    def _leave(self) -> None:
        self._rebalance.closing = True
        self._commits.end()
        lanes = [lane for lane, reading in self._readings.items() if reading.phase is not Phase.ARRIVING]
        if lanes and not self._stopping:
            # Nobody asked for it: something went wrong.
            self._shelf.forget(lanes)
            self._shelf.tell(Lost(frozenset(lanes)))
        self.ends = {}
        self._consumer.close()

    def _turn(self) -> None:
        self._inbox.work_all()
        self._steering.mend()
        self._commits.serve()
        if self._is_full():
            self._wait_for_room()
        else:
            if self._full_since is not None:
                self._full_since = None
                self._steering.let_go()
            lately = time.monotonic() - self._inbox.asked < _LATELY or not self._commits.idle
            self._fetch(_POLL if lately else _IDLE_POLL)
        self._look()

    def _meanwhile(self, seconds: float) -> None:
        self._inbox.rest(min(seconds, _BETWEEN_LOOKS))
        self._inbox.work()

    def _fetch(self, timeout: float) -> None:
        first = self._consumer.poll(timeout)
        if self._raised is not None:
            raise self._raised
        if first is None:
            return
        max_records, max_bytes = self._limits
        most = min(max_records, max(1, int(max_bytes / self._record_bytes)))
        self._take_in([first, *self._consumer.consume(most - 1, 0)] if most > 1 else [first])

    def _take_in(self, messages: list[Message]) -> None:
        if self._sieve is not None:
            messages = self._sieve(messages)
        taken, tidings = encode(messages)
        good: list[Taken] = []
        for each in taken:
            reading = self._readings.get(each.lane)
            if reading is None or not reading.delivers:
                continue
            fresh = each.starting_at(reading.next)
            if fresh.frames and reading.believes(fresh.positions[0]):
                reading.next = fresh.positions[-1] + 1
                self.waste.took(each.lane, len(fresh.frames))
                good.append(fresh)
        if good:
            frames = good[-1].frames
            self._record_bytes += 0.25 * (sum(map(len, frames)) / len(frames) - self._record_bytes)
            self._shelf.put(good)
        for message in tidings:
            self._hear(message)

    def _is_full(self) -> bool:
        max_records, max_bytes = self._limits
        return self._shelf.records >= max_records or self._shelf.bytes >= max_bytes

    def _wait_for_room(self) -> None:
        """The core has not taken what is there: fetch nothing, but go on polling, or the group would give us up."""
        now = time.monotonic()
        if self._full_since is None:
            self._full_since = now
        self._inbox.rest(_BETWEEN_LOOKS)
        if now - self._full_since > _PATIENCE:
            self._steering.hold()
            message = self._consumer.poll(0)
            if message is not None:
                self._take_in([message])

    def _look(self) -> None:
        """What the library knows of the ends; it hears of them with each fetch."""
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return
        self._looked = now
        ends: dict[Lane, LaneEnd] = {}
        for lane, reading in self._readings.items():
            if reading.end is None:
                continue
            low, high = self._consumer.get_watermark_offsets(reading.partition, cached=True) or (-1, -1)
            before = reading.end
            reading.end = ends[lane] = LaneEnd(max(low, before.start), max(high, before.end, reading.next))
        self.ends = ends

    def _begin(self, beginnings: Mapping[Reading, Beginning]) -> None:
        self.ends = {**self.ends, **self._steering.begin(beginnings)}

    def _begin_anew(self, lanes: Collection[Lane]) -> None:
        known = [lane for lane in lanes if lane in self._readings and self._readings[lane].phase in _BEGUN]
        if known:
            self._shelf.forget(known)
            self._shelf.tell(Lost(frozenset(known)))
            self._vanished(known)

    # What Kafka tells.

    def _arrived(self, readings: list[Reading]) -> None:
        self._on_trial = False
        self._listener.arrived(readings)

    def _vanished(self, lanes: list[Lane]) -> None:
        """Kafka does not know lanes that are ours, or not for us. Their topic was deleted, or only its metadata was
        away for a moment, or the right to it is: then nobody revokes them, and the core has let go of them. So they
        begin anew, once Kafka knows them."""
        readings = [Reading(lane) for lane in lanes if self._readings[lane].phase in _BEGUN]
        if readings:
            self._consumer.pause([reading.partition for reading in readings])
            self._shelf.forget([reading.lane for reading in readings])
            self._readings.update((reading.lane, reading) for reading in readings)
            self._arrived(readings)

    def _hear(self, message: Message) -> None:
        error = message.error()
        topic, number, position = message.topic(), message.partition(), message.offset()
        assert error is not None
        code = error.code()
        reading = self._readings.get(Lane(topic, number)) if topic is not None and number is not None else None
        if code == KafkaError._PARTITION_EOF:
            at = position or 0
            if reading is not None and reading.delivers and at > reading.next and reading.believes(at):
                reading.next = at
                self._shelf.tell(Advanced(reading.lane, at))
        elif code == KafkaError._AUTO_OFFSET_RESET:
            # One from before it was put to its place says nothing of its place. Of a log that was cut it tells none.
            if reading is not None and reading.delivers and (position is None or position >= reading.next):
                reading.phase = Phase.STUCK
                self._listener.strayed(reading)
        else:
            self._broker_error(error, topic)

    def _broker_error(self, error: KafkaError, topic: str | None = None) -> None:
        if self._on_trial and says_no_consumer_protocol(error):
            raise UnknownProtocol(error.str())
        if is_fatal(error):
            raise KafkaException(error)
        self._listener.failed(error, topic)

"""The thread that owns a consumer. It polls always: that keeps the lanes ours, however long a handler takes.

The library lets one thread at a time into a consumer, and calls back within a poll. So everything else that is done
with the consumer is handed to this thread, and done between two polls.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from sidecar.brokers.base import Advanced, Assigned, LaneEnd, Trouble
from sidecar.brokers.kafka.commits import Commits, Request
from sidecar.brokers.kafka.errors import NO_CONSUMER_PROTOCOL, translate
from sidecar.brokers.kafka.lanes import Phase, Reading
from sidecar.brokers.kafka.rebalance import Rebalance
from sidecar.brokers.kafka.records import Taken, encode
from sidecar.brokers.kafka.shelf import Shelf
from sidecar.brokers.kafka.starting import Beginning
from sidecar.errors import BrokerError, Refused
from sidecar.logs import Log
from sidecar.model import Lane

log = Log("kafka")

#: seconds that a poll waits: what is asked of the thread waits as long
_POLL = 0.02
#: seconds that it waits when nobody asked for anything lately
_IDLE_POLL = 0.1
_LATELY = 1.0
#: seconds between looks at the ends of lanes
_LOOK = 0.25
#: seconds that records may lie on the shelf before the lanes are paused, so that polling can go on
_PATIENCE = 1.0
#: bytes of a record, before any was seen
_FIRST_GUESS = 1024.0


class Listener(Protocol):
    """Who is told on the poll thread, and must not wait."""

    def arrived(self, readings: list[Reading]) -> None:
        """Lanes were assigned; `Member.begin` is to be called when it is known where they start."""

    def strayed(self, reading: Reading) -> None:
        """The position of a lane is not there any more; `Member.restart` is to be called."""

    def failed(self, error: BrokerError) -> None:
        """The group or the connection does not work."""

    def ended(self, error: BaseException | None) -> None:
        """The thread is over."""


class UnknownProtocol(Exception):
    """The broker does not speak the group protocol that was tried."""


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
        """`connect` makes the consumer, with these callbacks. `on_trial`: raise `UnknownProtocol` to the listener
        if the broker does not know the group protocol. `sieve` takes out what is not for this member."""
        self._connect = connect
        self._topics = list(topics)
        self._shelf = shelf
        self._listener = listener
        self._on_trial = on_trial
        self._sieve = sieve
        self._readings: dict[Lane, Reading] = {}
        self._commits = Commits(self._readings)
        self._rebalance = Rebalance(
            self._readings, self._commits, shelf, grace, arrived=self._arrived, meanwhile=self._meanwhile
        )
        self._consumer: Consumer
        self._commands: deque[Callable[[], None]] = deque()
        #: those that must not be done within a poll
        self._moves: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._asked = time.monotonic()
        self._looked = 0.0
        self._held: set[Reading] = set()
        self._record_bytes = _FIRST_GUESS
        #: what the core takes at a time: no more than that is made ready
        self.limits = (1, 1)
        #: replaced, never changed
        self.ends: Mapping[Lane, LaneEnd] = {}
        self._thread = threading.Thread(target=self._run, name="offramp-kafka-poll", daemon=True)

    # From the event loop.

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Leave the group and end. Returns at once; the listener is told when it is done."""
        self._stopping = self._rebalance.closing = True
        self._notify()

    def want(self, limits: tuple[int, int]) -> None:
        """The core takes so many records and bytes at a time, and has just taken some."""
        self.limits = limits
        if self._shelf_was_full:
            self._notify()

    def commit(self, request: Request) -> None:
        self._do(lambda: self._commits.submit(request))

    def release(self, lanes: Collection[Lane]) -> None:
        self._do(lambda: self._rebalance.released([*lanes]))

    def pause(self, lanes: Collection[Lane]) -> None:
        self._do(lambda: self._pause([*lanes]))

    def resume(self, lanes: Collection[Lane]) -> None:
        self._do(lambda: self._resume([*lanes]))

    def begin(self, beginnings: Mapping[Reading, Beginning]) -> None:
        """It is known where lanes start."""
        self._do(lambda: self._moves.append(lambda: self._begin(beginnings)))

    def restart(self, reading: Reading, beginning: Beginning) -> None:
        """It is known where a lane goes on whose position was not there any more."""
        self._do(lambda: self._moves.append(lambda: self._restart(reading, beginning)))

    def move(self, positions: Mapping[Lane, int], moved: Callable[[], None]) -> None:
        """Seek. Kafka has the positions already."""
        self._do(lambda: self._moves.append(lambda: self._move(positions, moved)))

    def has(self, reading: Reading) -> bool:
        return self._readings.get(reading.lane) is reading

    # The thread.

    _shelf_was_full = False

    def _do(self, command: Callable[[], None]) -> None:
        self._commands.append(command)
        self._notify()

    def _notify(self) -> None:
        with self._wake:
            self._wake.notify_all()

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            callbacks = {"on_commit": self._commits.answered, "error_cb": self._broker_error}
            self._consumer = self._commits.consumer = self._connect(callbacks)
            try:
                self._consumer.subscribe(
                    self._topics,
                    on_assign=self._rebalance.assigned,
                    on_revoke=self._rebalance.revoked,
                    on_lost=self._rebalance.lost,
                )
                while not self._stopping:
                    self._turn()
            finally:
                self._rebalance.closing = True
                self._commits.end()
                self._consumer.close()
        except BaseException as error:
            failure = error
        self._listener.ended(failure)

    def _turn(self) -> None:
        self._obey()
        while self._moves:
            self._moves.popleft()()
        self._mend()
        self._commits.serve()
        limits = self.limits
        self._shelf_was_full = self._shelf.records >= limits[0] or self._shelf.bytes >= limits[1]
        if self._shelf_was_full:
            self._wait_for_room()
        else:
            self._let_go()
            lately = time.monotonic() - self._asked < _LATELY or not self._commits.idle
            self._fetch(_POLL if lately else _IDLE_POLL)
        self._look()

    def _obey(self) -> None:
        if self._commands:
            self._asked = time.monotonic()
        while self._commands:
            self._commands.popleft()()

    def _meanwhile(self, seconds: float) -> None:
        with self._wake:
            if not self._commands and not self._stopping:
                self._wake.wait(min(seconds, 0.05))
        self._obey()

    def _fetch(self, timeout: float) -> None:
        first = self._consumer.poll(timeout)
        if first is None:
            return
        most = min(self.limits[0], max(1, int(self.limits[1] / self._record_bytes)))
        messages = [first, *self._consumer.consume(most - 1, 0)] if most > 1 else [first]
        if self._sieve is not None:
            messages = self._sieve(messages)
        taken, tidings = encode(messages)
        self._shelve(taken)
        for message in tidings:
            self._hear(message)

    def _shelve(self, taken: list[Taken]) -> None:
        """Put aside what is ours and new."""
        good: list[Taken] = []
        for each in taken:
            reading = self._readings.get(each.lane)
            if reading is None or reading.phase is not Phase.ACTIVE or reading.astray:
                continue
            fresh = each.starting_at(reading.next)
            if fresh.frames:
                reading.next = fresh.positions[-1] + 1
                good.append(fresh)
        if good:
            frames = good[-1].frames
            self._record_bytes += 0.25 * (sum(map(len, frames)) / len(frames) - self._record_bytes)
            self._shelf.put(good)

    def _wait_for_room(self) -> None:
        """The core has not taken what is there: fetch nothing, but go on polling, or the group would give us up."""
        deadline = time.monotonic() + _PATIENCE
        while self._shelf.records >= self.limits[0] or self._shelf.bytes >= self.limits[1]:
            with self._wake:
                if not self._commands and not self._stopping:
                    self._wake.wait(0.05)
            if self._commands or self._stopping or time.monotonic() > deadline:
                break
        else:
            return
        if time.monotonic() > deadline:
            self._hold()
            message = self._consumer.poll(0)
            if message is not None:
                taken, tidings = encode([message])
                self._shelve(taken)
                for each in tidings:
                    self._hear(each)

    def _hold(self) -> None:
        readings = [reading for reading in self._readings.values() if self._flows(reading)]
        if readings:
            self._consumer.pause([reading.partition for reading in readings])
            self._held.update(readings)

    def _let_go(self) -> None:
        if self._held:
            held, self._held = self._held, set()
            for reading in held:
                reading.astray = self.has(reading)
            self._mend()

    def _flows(self, reading: Reading) -> bool:
        return reading.phase is Phase.ACTIVE and not reading.paused and reading not in self._held

    def _look(self) -> None:
        """What the library knows of the ends; it hears of them with each fetch."""
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return
        self._looked = now
        ends: dict[Lane, LaneEnd] = {}
        for lane, reading in self._readings.items():
            if reading.end is None or reading.phase is Phase.ARRIVING:
                continue
            low, high = self._consumer.get_watermark_offsets(reading.partition, cached=True) or (-1, -1)
            before = reading.end
            reading.end = LaneEnd(max(low, before.start), max(high, before.end, reading.next))
            ends[lane] = reading.end
        self.ends = ends

    # What was asked.

    def _pause(self, lanes: list[Lane]) -> None:
        for lane in lanes:
            reading = self._readings.get(lane)
            if reading is not None and not reading.paused:
                if self._flows(reading):
                    self._consumer.pause([reading.partition])
                reading.paused = True
                # They would take the room of others.
                start = self._shelf.withdraw(lane)
                reading.next = reading.next if start is None else start

    def _resume(self, lanes: list[Lane]) -> None:
        for lane in lanes:
            reading = self._readings.get(lane)
            if reading is not None and reading.paused:
                reading.paused = False
                reading.astray = True
        self._mend()

    def _begin(self, beginnings: Mapping[Reading, Beginning]) -> None:
        ends = dict(self.ends)
        for reading, beginning in beginnings.items():
            if not self.has(reading) or reading.phase is not Phase.ARRIVING:
                continue
            reading.phase, reading.next, reading.end = Phase.ACTIVE, beginning.at, beginning.end
            ends[reading.lane] = beginning.end
            self._shelf.resume([reading.lane])
            self._shelf.tell(Assigned(reading.lane, beginning.start, beginning.settled, beginning.first))
            self._skip(reading, beginning)
            self._place(reading)
        self.ends = ends

    def _restart(self, reading: Reading, beginning: Beginning) -> None:
        if not self.has(reading) or reading.phase is not Phase.STUCK:
            return
        reading.phase, reading.end = Phase.ACTIVE, beginning.end
        if beginning.at < reading.next:
            self._shelf.forget([reading.lane])
            self._shelf.tell(Assigned(reading.lane, beginning.at))
        reading.next = beginning.at
        self._place(reading)
        self._skip(reading, beginning)

    def _skip(self, reading: Reading, beginning: Beginning) -> None:
        if beginning.at > beginning.start:
            self._shelf.tell(Advanced(reading.lane, beginning.at, beginning.lost))
        if beginning.lost:
            reading.lost += beginning.lost
            text = (
                f"{reading.lost:,} records of {reading.lane} were removed by the broker's retention before they could "
                f"be read: it went on at {beginning.at}"
            )
            self._shelf.tell(Trouble(f"skipped in {reading.lane}", text))

    def _move(self, positions: Mapping[Lane, int], moved: Callable[[], None]) -> None:
        for lane, position in positions.items():
            reading = self._readings.get(lane)
            if reading is None or reading.phase not in (Phase.ACTIVE, Phase.STUCK):
                continue
            self._shelf.forget([lane])
            self._shelf.tell(Assigned(lane, position))
            if reading.phase is Phase.STUCK and reading.end is not None:
                self._restart(reading, Beginning(position, (), False, reading.end, position))
                continue
            reading.next, reading.astray = position, True
        self._mend()
        moved()

    def _mend(self) -> None:
        """Put lanes back to where the core is in them, and let them flow."""
        for reading in [reading for reading in self._readings.values() if reading.astray]:
            if reading.phase is not Phase.ACTIVE:
                reading.astray = reading.phase is not Phase.LEAVING
                continue
            reading.astray = False
            try:
                self._consumer.seek(reading.at(reading.next))
            except KafkaException:
                # It does not seek before a lane has begun, nor after an error.
                self._place(reading)
                continue
            if self._flows(reading):
                self._consumer.resume([reading.partition])

    def _place(self, reading: Reading) -> None:
        """Give the lane to the library anew, at the position where the core is in it."""
        self._consumer.incremental_unassign([reading.partition])
        self._consumer.incremental_assign([reading.at(reading.next)])
        if self._flows(reading):
            self._consumer.resume([reading.partition])
        else:
            self._consumer.pause([reading.partition])

    # What Kafka tells.

    def _arrived(self, readings: list[Reading]) -> None:
        self._on_trial = False
        self._listener.arrived(readings)

    def _hear(self, message: Message) -> None:
        error = message.error()
        topic, number = message.topic(), message.partition()
        assert error is not None
        code = error.code()
        reading = self._readings.get(Lane(topic, number)) if topic is not None and number is not None else None
        if code == KafkaError._PARTITION_EOF:
            position = message.offset() or 0
            if reading is not None and reading.phase is Phase.ACTIVE and not reading.astray and position > reading.next:
                reading.next = position
                self._shelf.tell(Advanced(reading.lane, position))
        elif code == KafkaError._AUTO_OFFSET_RESET:
            stale = (message.offset() or 0) < reading.next if reading is not None else True
            if reading is not None and reading.phase is Phase.ACTIVE and not reading.astray and not stale:
                reading.phase = Phase.STUCK
                self._listener.strayed(reading)
        elif code in NO_CONSUMER_PROTOCOL and self._on_trial:
            raise UnknownProtocol(error.str())
        elif topic is not None and code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED):
            self._shelf.tell(Trouble(f"topic {topic}", str(translate(error, f"consume {topic}"))))
        else:
            self._broker_error(error)

    def _broker_error(self, error: KafkaError) -> None:
        if error.code() in NO_CONSUMER_PROTOCOL and self._on_trial:
            raise UnknownProtocol(error.str())
        if error.fatal():
            self._listener.failed(Refused(str(translate(error, "consume"))))
        else:
            self._listener.failed(translate(error, "consume"))

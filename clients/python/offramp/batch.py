"""Batches and their records: what a worker has in hand under one lease."""

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count, repeat
from typing import NamedTuple, Protocol, overload

from offramp._internal import settlements
from offramp._internal.event_headers import CONTENT_TYPE, EVENT_TIME, parse_time
from offramp.answers import Answer, SettleResult
from offramp.errors import AlreadySettled
from offramp.outcomes import ACK, RELEASE, Outcome
from offramp.v1 import record_pb2 as pb

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Header(NamedTuple):
    name: str
    #: None is a header without a value, which is not the same as an empty one
    value: bytes | None


class Record:
    """A view of one broker message, made on access and cheap to make again.

    `ack`, `nack`, `reject`, `release` and `overloaded` mark this record. Nothing is sent before the batch is settled or
    flushed; until then a later mark replaces an earlier one. Records without a mark get the outcome of their batch.
    """

    __slots__ = ("_message", "batch", "index")

    def __init__(self, batch: "Batch", index: int, message: pb.Record) -> None:
        self.batch = batch
        #: index in the batch
        self.index = index
        self._message = message

    @property
    def key(self) -> bytes | None:
        """None: the message has no key, which is not the same as an empty one."""
        # Looks at what is there first: protobuf takes longer to say whether a field is present.
        return self._message.key or (b"" if self._message.HasField("key") else None)

    @property
    def value(self) -> bytes | None:
        """None: a null value (a tombstone on a compacted topic), which is not the same as an empty one."""
        return self._message.value or (b"" if self._message.HasField("value") else None)

    @property
    def headers(self) -> tuple[Header, ...]:
        """In the order of the message; names may repeat."""
        return tuple(self._headers())

    def header(self, name: str) -> bytes | None:
        """The value of the last header of this name; None if there is none."""
        value = None
        for header in self._headers():
            if header.name == name:
                value = header.value
        return value

    def _headers(self) -> Iterator[Header]:
        for header in self._message.headers:
            yield Header(header.name, header.value if header.HasField("value") else None)

    @property
    def event_time(self) -> datetime | None:
        """When what it tells of happened, in UTC: the header `ce_time`. None if there is none."""
        return parse_time(self.header(EVENT_TIME))

    @property
    def content_type(self) -> str | None:
        """How the value is encoded: the header `content-type`. None if there is none."""
        value = self.header(CONTENT_TYPE)
        return None if value is None else value.decode(errors="replace")

    @property
    def topic(self) -> str:
        return self.batch.topic

    @property
    def lane(self) -> int:
        """The ordered stream within the topic: a Kafka partition, for example."""
        return self._message.lane

    @property
    def position(self) -> int:
        """The position in the lane: a Kafka offset, for example."""
        return self._message.position

    @property
    def id(self) -> str:
        """The broker's own identity of the record, the same at every delivery and in dead letters: an idempotency key.
        Opaque."""
        return self.batch.id_of(self._message.lane, self._message.position)

    @property
    def ref(self) -> bytes:
        """The broker's own id of the record, if it needs one (a Pulsar message id); else empty."""
        return self._message.ref

    @property
    def timestamp_ms(self) -> int:
        """The broker's timestamp, in milliseconds since 1970; 0 if it has none."""
        return self._message.timestamp_ms

    @property
    def timestamp(self) -> datetime | None:
        """The broker's timestamp, in UTC; None if it has none."""
        milliseconds = self._message.timestamp_ms
        return _EPOCH + timedelta(milliseconds=milliseconds) if milliseconds else None

    @property
    def attempt(self) -> int:
        """1 for the first delivery, one more after each failed one."""
        return self.batch.redelivery(self.index)[0]

    @property
    def possibly_processed(self) -> bool:
        """The outcome of an earlier delivery is unknown: the record may have been processed already."""
        return self.batch.redelivery(self.index)[1]

    def ack(self) -> None:
        """Done."""
        self.batch.mark(self.index, ACK)

    def nack(self, reason: str | BaseException = "", *, after: float | None = None) -> None:
        """Failed: retry in `after` seconds, or after the subscription's backoff. Counts as an attempt."""
        self.batch.mark(self.index, Outcome.of(pb.OUTCOME_NACK, reason, after))

    def reject(self, reason: str | BaseException) -> None:
        """Will never succeed: dead-letter it now."""
        self.batch.mark(self.index, Outcome.of(pb.OUTCOME_REJECT, reason))

    def release(self) -> None:
        """Not tried: deliver it again at once. Does not count as an attempt."""
        self.batch.mark(self.index, RELEASE)

    def overloaded(self, reason: str | BaseException = "", *, after: float | None = None) -> None:
        """A service behind the handler asks for less: deliver it again later. Does not count as an attempt."""
        self.batch.mark(self.index, Outcome.of(pb.OUTCOME_OVERLOADED, reason, after))

    def __repr__(self) -> str:
        return f"<Record {self.id} attempt={self.attempt}>"


class Settler(Protocol):
    """Sends settlements and extensions to the sidecar. Any thread may call it.

    `automatic`: the client settles, not a worker, so a settlement that does not count is not logged.
    """

    def ack(self, batch: "Batch", *, automatic: bool) -> Answer[SettleResult]:
        """All records of the batch are done. Nearly every settlement is one of these, so it has the shortest way."""

    def settle(self, batch: "Batch", settlement: pb.Settlement, *, automatic: bool) -> Answer[SettleResult]: ...

    def extend(self, batch: "Batch", seconds: float) -> Answer[float]: ...


class Batch(Sequence[Record]):
    """Records of one topic, leased to this process until they are settled.

    Settle it once, by one of `ack`, `nack`, `reject`, `release` and `overloaded`: this sets the outcome of all records
    that were not marked one by one (see `Record`). These calls return at once and may come from any thread; waiting for
    the answer is optional. All methods are safe to call when the lease is lost: the answer says so.
    """

    __slots__ = (
        "_answer", "_flushed", "_lock", "_marks", "_message", "_redelivered", "_settled_rest", "_settler", "lease",
        "lost", "received_at", "taken_at",
    )  # fmt: skip

    def __init__(self, message: pb.Batch, settler: Settler, received_at: float) -> None:
        self._message = message
        #: the sidecar's id of this delivery. Opaque
        self.lease = message.lease
        self._settler = settler
        self._lock = threading.Lock()
        self._marks: dict[int, Outcome] = {}
        #: indexes that were settled while the rest stayed in hand
        self._flushed: set[int] | None = None
        #: every record that was not flushed is settled
        self._settled_rest = False
        self._answer: Answer[SettleResult] | None = None
        self._redelivered: list[int] | None = None
        #: True when the session ended or a lane moved away: the records are, or soon will be, delivered to another.
        #: A handler that can stop early should.
        self.lost = False
        #: on the monotonic clock: when it came, and when a worker took it (0.0: not yet)
        self.received_at = received_at
        self.taken_at = 0.0

    # Records

    def __len__(self) -> int:
        return len(self._message.records)

    def __iter__(self) -> Iterator[Record]:
        return map(Record, repeat(self), count(), self._message.records)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        records = self._message.records
        if isinstance(index, slice):
            return [Record(self, place, records[place]) for place in range(*index.indices(len(records)))]
        # The message accepts negative indexes; marks need the real one.
        return Record(self, index + len(records) if index < 0 else index, records[index])

    @property
    def topic(self) -> str:
        return self._message.topic

    def id_of(self, lane: int, position: int) -> str:
        """For `Record`."""
        topic_id = self._message.topic_id
        return f"{self.topic}/{lane}/{position}@{topic_id}" if topic_id else f"{self.topic}/{lane}/{position}"

    @property
    def lanes(self) -> tuple[int, ...]:
        """The distinct lanes of the records."""
        return tuple(self._message.lanes)

    @property
    def lease_for(self) -> float:
        """Seconds that the lease lasts from its delivery. 0: as long as the session."""
        return self._message.lease_for_ms / 1_000

    @property
    def message(self) -> pb.Batch:
        """The batch as it was received, for the fastest access. Do not change it."""
        return self._message

    def redelivery(self, index: int) -> tuple[int, bool]:
        """(attempt, possibly_processed) of a record."""
        ranges = self._message.redeliveries
        if not ranges:
            return 1, False
        if self._redelivered is None:
            self._redelivered = [one.first for one in ranges]
        place = bisect_right(self._redelivered, index) - 1
        if place >= 0:
            one = ranges[place]
            if index < one.first + one.count:
                return max(one.attempt, 1), one.possibly_processed
        return 1, False

    # Settling

    @property
    def settled(self) -> bool:
        """Every record is settled."""
        return self._settled_rest or (self._flushed is not None and len(self._flushed) == len(self))

    def ack(self) -> Answer[SettleResult]:
        """Done. Its positions may be committed."""
        return self._settle(ACK)

    def nack(self, reason: str | BaseException = "", *, after: float | None = None) -> Answer[SettleResult]:
        """Failed: retry in `after` seconds, or after the subscription's backoff.

        Counts as an attempt for a record alone; a failing batch is first split to find the record that fails.
        """
        return self._settle(Outcome.of(pb.OUTCOME_NACK, reason, after))

    def reject(self, reason: str | BaseException) -> Answer[SettleResult]:
        """Will never succeed: dead-letter it now."""
        return self._settle(Outcome.of(pb.OUTCOME_REJECT, reason))

    def release(self) -> Answer[SettleResult]:
        """Not tried: deliver it again at once, to any free worker. Does not count as an attempt."""
        return self._settle(RELEASE)

    def overloaded(self, reason: str | BaseException = "", *, after: float | None = None) -> Answer[SettleResult]:
        """A service behind the handler asks for less: deliver it again later, and keep fewer batches in flight."""
        return self._settle(Outcome.of(pb.OUTCOME_OVERLOADED, reason, after))

    def flush(self) -> Answer[SettleResult] | None:
        """Settle the records marked so far, and keep the others in hand. None if no record was marked since."""
        with self._lock:
            self._check_open()
            if not self._marks:
                return None
            settlement = settlements.marked(self.lease, self._marks)
            self._flushed = (self._flushed or set()) | self._marks.keys()
            self._marks = {}
            return self._send(settlement, automatic=False)

    def extend(self, seconds: float) -> Answer[float]:
        """Ask for the lease to last `seconds` from now, or longer if it does already.

        The answer is how many seconds it lasts from now; 0.0 if it is lost, which is logged. Only needed with a `lease`
        option: without one a lease lasts as long as the session, up to the subscription's `lease.max`.
        """
        if not seconds > 0:
            raise ValueError(f"a lease cannot be extended by {seconds} seconds; it must be more than 0")
        return self._settler.extend(self, seconds)

    def settle_rest(self, outcome: Outcome, *, automatic: bool = False) -> Answer[SettleResult] | None:
        """Settle what is not settled yet, if anything. For code that runs handlers."""
        with self._lock:
            return None if self.settled else self._settle_unsettled(outcome, automatic)

    def unmark(self) -> None:
        """Drop the marks of records that are still in hand. For code that calls a handler again."""
        with self._lock:
            self._marks = {}

    def mark(self, index: int, outcome: Outcome) -> None:
        """For `Record`."""
        with self._lock:
            self._check_open()
            if self._flushed is not None and index in self._flushed:
                raise AlreadySettled(f"record {index} of {self!r} is settled already")
            self._marks[index] = outcome

    def _settle(self, outcome: Outcome) -> Answer[SettleResult]:
        with self._lock:
            self._check_open()
            if self.settled and self._answer is not None:
                # Flushed to the last record: nothing is left to send.
                self._settled_rest = True
                return self._answer
            return self._settle_unsettled(outcome, automatic=False)

    def _settle_unsettled(self, outcome: Outcome, automatic: bool) -> Answer[SettleResult]:
        if outcome is ACK and self._flushed is None and not self._marks:
            self._settled_rest = True
            self._answer = self._settler.ack(self, automatic=automatic)
            return self._answer
        if self._flushed is None:
            settlement = settlements.whole(self.lease, outcome, self._marks)
        else:
            settlement = settlements.rest(self.lease, len(self), self._flushed, outcome, self._marks)
        self._settled_rest = True
        return self._send(settlement, automatic)

    def _send(self, settlement: pb.Settlement, automatic: bool) -> Answer[SettleResult]:
        # Last, with all other state up to date: from here on the settler reads `settled` at any time.
        self._answer = self._settler.settle(self, settlement, automatic=automatic)
        return self._answer

    def _check_open(self) -> None:
        if self._settled_rest:
            raise AlreadySettled(f"{self!r} is settled already")

    def __repr__(self) -> str:
        return f"<Batch {self.lease.hex()} {self.topic}: {len(self)} records>"

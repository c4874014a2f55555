"""The records that one worker has in hand under one lease."""

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Protocol, overload

from offramp import settlements
from offramp.answers import Answer, SettleResult
from offramp.errors import AlreadySettled
from offramp.records import Record
from offramp.v1 import record_pb2 as pb
from offramp.verdicts import ACK, RELEASE, Verdict, verdict


class Desk(Protocol):
    """Where settlements are handed in. Any thread may."""

    def settle(self, batch: "Batch", settlement: pb.Settlement, *, ours: bool) -> Answer[SettleResult]:
        """`ours`: no worker said it, so no worker needs to hear what became of it."""

    def extend(self, batch: "Batch", seconds: float) -> Answer[float]: ...


class Batch(Sequence[Record]):
    """Records of one topic, leased to this process until they are settled.

    Settle it once, by one of `ack`, `nack`, `reject`, `release` and `overloaded`: that says how all records fared
    that were not marked one by one (see `Record`). These calls return at once and may come from any thread; the
    answer may be waited for but need not be. All methods are safe to call when the lease is lost: the answer says so.
    """

    __slots__ = (
        "_answer", "_concluded", "_desk", "_flushed", "_lock", "_marks", "_message", "_redelivered", "lost",
        "received_at", "taken_at",
    )  # fmt: skip

    def __init__(self, message: pb.Batch, desk: Desk, received_at: float) -> None:
        self._message = message
        self._desk = desk
        self._lock = threading.Lock()
        self._marks: dict[int, Verdict] = {}
        #: indexes that were settled while the rest stayed in hand
        self._flushed: set[int] | None = None
        self._concluded = False
        self._answer: Answer[SettleResult] | None = None
        self._redelivered: list[int] | None = None
        #: True when the session ended or a lane moved away: the records are somebody else's, or will be soon.
        #: A handler that can stop early should.
        self.lost = False
        #: on the monotonic clock: when it came, and when a worker took it (0.0: none has)
        self.received_at = received_at
        self.taken_at = 0.0

    # The records

    def __len__(self) -> int:
        return len(self._message.records)

    def __iter__(self) -> Iterator[Record]:
        for index, message in enumerate(self._message.records):
            yield Record(self, index, message)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        records = self._message.records
        if isinstance(index, slice):
            return [Record(self, place, records[place]) for place in range(*index.indices(len(records)))]
        # The message takes negative indexes as a list does; marks must not.
        return Record(self, index + len(records) if index < 0 else index, records[index])

    @property
    def topic(self) -> str:
        return self._message.topic

    @property
    def lanes(self) -> tuple[int, ...]:
        """The distinct lanes of the records."""
        return tuple(self._message.lanes)

    @property
    def lease(self) -> bytes:
        """Names this delivery to the sidecar. Opaque."""
        return self._message.lease

    @property
    def lease_for(self) -> float:
        """Seconds that the lease lasts from its delivery. 0: as long as the session lives."""
        return self._message.lease_for_ms / 1_000

    @property
    def message(self) -> pb.Batch:
        """The batch as it came, for those who want the last bit of speed. Do not change it."""
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
        """Nothing of it is left to settle."""
        return self._concluded or (self._flushed is not None and len(self._flushed) == len(self))

    def ack(self) -> Answer[SettleResult]:
        """Done. Its positions may be committed."""
        return self._settle(ACK)

    def nack(self, reason: str | BaseException = "", *, after: float | None = None) -> Answer[SettleResult]:
        """Failed, try again: after so many seconds, or after the subscription's backoff.

        Counts as an attempt for a record alone; a failing batch is first split to find the record that fails.
        """
        return self._settle(verdict(pb.OUTCOME_NACK, reason, after))

    def reject(self, reason: str | BaseException) -> Answer[SettleResult]:
        """Will never succeed: dead-letter it now."""
        return self._settle(verdict(pb.OUTCOME_REJECT, reason))

    def release(self) -> Answer[SettleResult]:
        """Not tried: deliver it again at once, to whoever is free. Does not count."""
        return self._settle(RELEASE)

    def overloaded(self, reason: str | BaseException = "", *, after: float | None = None) -> Answer[SettleResult]:
        """What is behind the handler asks for less: deliver it again later, and keep fewer batches in flight."""
        return self._settle(verdict(pb.OUTCOME_OVERLOADED, reason, after))

    def flush(self) -> Answer[SettleResult] | None:
        """Settle the records marked so far, and keep the others in hand. None if no record was marked since."""
        with self._lock:
            self._check_open()
            if not self._marks:
                return None
            settlement = settlements.marked(self.lease, self._marks)
            self._flushed = (self._flushed or set()) | self._marks.keys()
            self._marks = {}
            return self._hand_in(settlement, ours=False)

    def extend(self, seconds: float) -> Answer[float]:
        """Ask for the lease to last so many seconds from now, or longer if it does already.

        The answer is how many it lasts from now; 0.0 if it is lost, which is logged. Only needed with a `lease`
        option: without one a lease lasts as long as the session, up to the subscription's `lease.max`.
        """
        if not seconds > 0:
            raise ValueError(f"a lease cannot be extended by {seconds} seconds; it must be more than 0")
        return self._desk.extend(self, seconds)

    def settle_rest(self, said: Verdict, *, ours: bool = False) -> Answer[SettleResult] | None:
        """Settle what is left of it, if anything is. For whoever runs handlers."""
        with self._lock:
            return None if self.settled else self._conclude(said, ours)

    def unmark(self) -> None:
        """Forget the marks of records that are still in hand. For whoever calls a handler again."""
        with self._lock:
            self._marks = {}

    def mark(self, index: int, said: Verdict) -> None:
        """For `Record`."""
        with self._lock:
            self._check_open()
            if self._flushed is not None and index in self._flushed:
                raise AlreadySettled(f"record {index} of {self!r} is settled already")
            self._marks[index] = said

    def _settle(self, said: Verdict) -> Answer[SettleResult]:
        with self._lock:
            self._check_open()
            if self.settled and self._answer is not None:
                # Flushed to the last record: there is nothing left to say.
                self._concluded = True
                return self._answer
            return self._conclude(said, ours=False)

    def _conclude(self, said: Verdict, ours: bool) -> Answer[SettleResult]:
        if self._flushed is None:
            settlement = settlements.whole(self.lease, said, self._marks)
        else:
            settlement = settlements.rest(self.lease, len(self), self._flushed, said, self._marks)
        self._concluded = True
        return self._hand_in(settlement, ours)

    def _hand_in(self, settlement: pb.Settlement, ours: bool) -> Answer[SettleResult]:
        # Called with all else up to date: the desk asks at any time after this whether the batch is `settled`.
        self._answer = self._desk.settle(self, settlement, ours=ours)
        return self._answer

    def _check_open(self) -> None:
        if self._concluded:
            raise AlreadySettled(f"{self!r} is settled already")

    def __repr__(self) -> str:
        return f"<Batch {self.lease.hex()} {self.topic}: {len(self)} records>"

"""Batches in the hands of workers. Pure: grant, extend, settle, expire(now)."""

import heapq
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable
from typing import Generic

from sidecar.lease import (
    Holder,
    Lease,
    LeasePhase,
    Settled,
    check_parts,
    forget_unless_waiting,
    note_outcome,
    positions_in,
    settled_otherwise,
    spread,
    still_waiting,
    take_from_heirs,
    unsettled,
)
from sidecar.model import Extended, Outcome, Part, Range, Run, Settlement, SettleResult, SettleStatus
from sidecar.runs import RunSet
from sidecar.spans import Parcel, Span, between

#: leases that ended are remembered so far back, so that settling twice, or too late, is answered truthfully
REMEMBERED = 10_000


class Leases(Generic[Holder]):
    """All leases of a subscription."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._number = 0
        self._held: dict[bytes, Lease[Holder]] = {}
        self._ended: OrderedDict[bytes, Lease[Holder]] = OrderedDict()
        #: a lease may stand here several times; only its own deadline counts
        self._deadlines: list[tuple[float, int, Lease[Holder]]] = []

    def __len__(self) -> int:
        return len(self._held)

    def held(self) -> Iterable[Lease[Holder]]:
        return self._held.values()

    def grant(self, holder: Holder, spans: list[Span], now: float, limit: float, longest: float) -> Lease[Holder]:
        """A lease that ends `limit` seconds after it was written, or `longest` from now if it never is."""
        self._number += 1
        id_ = self._prefix + self._number.to_bytes(6, "big")
        lease = Lease(self._number, id_, holder, spans, now, limit)
        self._held[id_] = lease
        self._set_deadline(lease, now + longest)
        return lease

    def written(self, id_: bytes, now: float) -> None:
        """The batch was written to the worker: its time starts now."""
        lease = self._held.get(id_)
        if lease is not None and not lease.written:
            lease.written = True
            lease.granted = now
            self._set_deadline(lease, now + lease.limit)

    def extend(self, id_: bytes, seconds: float, longest: float, now: float) -> Extended:
        """Let it end so many seconds from now, if that is later; never past `longest` from its delivery."""
        lease = self._held.get(id_)
        if lease is None:
            status = SettleStatus.STALE if id_ in self._ended else SettleStatus.UNKNOWN
            return Extended(id_, status)
        if not lease.written:
            # Not written yet: the time that was asked for starts with the writing.
            lease.limit = min(max(lease.limit, seconds), longest)
            return Extended(id_, None, lease.limit)
        deadline = min(now + seconds, lease.granted + longest)
        if deadline > lease.deadline:
            self._set_deadline(lease, deadline)
        return Extended(id_, None, max(0.0, lease.deadline - now))

    def next_deadline(self) -> float | None:
        while self._deadlines:
            deadline, _, lease = self._deadlines[0]
            if lease.phase is LeasePhase.HELD and lease.deadline == deadline:
                return deadline
            heapq.heappop(self._deadlines)
        return None

    def expire(self, now: float) -> list[Lease[Holder]]:
        """Leases whose time is over. The caller ends them."""
        out = []
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            lease = heapq.heappop(self._deadlines)[2]
            lease.deadline = float("inf")
            out.append(lease)
        return out

    def end(self, lease: Lease[Holder]) -> list[Span]:
        """The lease ended without a word. Answers what is unsettled of it; the caller names its heirs."""
        del self._held[lease.id]
        lease.phase = LeasePhase.ENDED
        self._remember(lease)
        return unsettled(lease)

    def check(self, settlements: Iterable[Settlement]) -> None:
        """Raises `InvalidRequest` if the parts of any settlement do not fit its batch."""
        for settlement in settlements:
            if settlement.parts:
                lease = self._held.get(settlement.lease) or self._ended.get(settlement.lease)
                if lease is not None:
                    check_parts(lease.records, settlement)

    def settle(self, settlement: Settlement) -> tuple[SettleResult, Lease[Holder] | None, list[Settled]]:
        """Take a worker's word, which must have passed `check`. Answers the result, the lease, and what was settled."""
        id_ = settlement.lease
        lease = self._held.get(id_)
        if lease is None:
            return self._settle_ended(settlement)
        if not settlement.parts and settlement.outcome is not None and lease.settled is None:
            # The usual case: one word for the whole batch.
            lease.outcomes.append((0, lease.records, settlement.outcome))
            self._close(lease)
            part = Part(0, lease.records, settlement.outcome, settlement.reason, settlement.retry_after)
            return SettleResult(id_, SettleStatus.SETTLED), lease, [Settled(lease.spans, part, False, lease.records)]
        settled = lease.settled if lease.settled is not None else RunSet()
        done: list[Settled] = []
        parts = spread(lease.records, settlement)
        missing = [settled.missing(Run(part.first, part.first + part.count)) for part in parts]
        own_words = set(map(id, settlement.parts))
        others = sum(positions_in(runs) for part, runs in zip(parts, missing, strict=True) if id(part) not in own_words)
        for part, runs in zip(parts, missing, strict=True):
            meant = positions_in(runs) if id(part) in own_words else others
            for start, stop in runs:
                piece = Part(start, stop - start, part.outcome, part.reason, part.retry_after)
                named = piece.count < lease.records
                done.append(Settled(between(lease.spans, start, stop - start), piece, named, meant))
        stale = settled_otherwise(lease, parts)
        for settled_now in done:
            part = settled_now.part
            settled.add(Run(part.first, part.first + part.count))
            note_outcome(lease, part.first, part.count, part.outcome)
        lease.settled = settled
        if len(settled) == lease.records:
            self._close(lease)
        status = SettleStatus.STALE if stale else SettleStatus.SETTLED
        detail = "settled otherwise before" if stale else ""
        return SettleResult(id_, status, stale, detail), lease, done

    def left(self, parcel: Parcel) -> None:
        """The parcel stopped waiting. An ended lease whose records wait no more keeps only what was said of it."""
        if parcel.ancestor is not None:
            forget_unless_waiting(parcel.ancestor)

    def _settle_ended(self, settlement: Settlement) -> tuple[SettleResult, Lease[Holder] | None, list[Settled]]:
        lease = self._ended.get(settlement.lease)
        if lease is None:
            detail = "no such lease: it is from before a restart, was settled long ago, or never was"
            return SettleResult(settlement.lease, SettleStatus.UNKNOWN, (), detail), None, []
        parts = spread(lease.records, settlement)
        stale = RunSet(Run(part.first, part.first + part.count) for part in parts)
        for first, records, _ in lease.outcomes:
            stale.discard(Run(first, first + records))
        for range_ in settled_otherwise(lease, parts):
            stale.add(Run(range_.first, range_.first + range_.count))
        done: list[Settled] = []
        firsts = [part.first for part in parts]
        for index, single in still_waiting(lease):
            at = bisect_right(firsts, index) - 1
            if at < 0 or index >= parts[at].first + parts[at].count:
                continue
            part = parts[at]
            stale.discard(Run(index, index + 1))
            # What is to be retried waits for that already; an ack or a reject that comes late spares the retry.
            if part.outcome in (Outcome.ACK, Outcome.REJECT):
                piece = Part(index, 1, part.outcome, part.reason, part.retry_after)
                done.append(Settled([single], piece, named=True, meant=1))
                note_outcome(lease, index, 1, part.outcome)
        take_from_heirs(lease, done)
        forget_unless_waiting(lease)
        ranges = tuple(Range(run.start, run.stop - run.start) for run in stale)
        if not ranges:
            return SettleResult(lease.id, SettleStatus.SETTLED), lease, done
        detail = "settled otherwise before, or the lease ended and its records were given out again"
        return SettleResult(lease.id, SettleStatus.STALE, ranges, detail), lease, done

    def _close(self, lease: Lease[Holder]) -> None:
        del self._held[lease.id]
        lease.phase = LeasePhase.SETTLED
        lease.settled = None
        self._remember(lease)

    def _remember(self, lease: Lease[Holder]) -> None:
        self._ended[lease.id] = lease
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

    def _set_deadline(self, lease: Lease[Holder], deadline: float) -> None:
        lease.deadline = deadline
        heapq.heappush(self._deadlines, (deadline, lease.number, lease))
        if len(self._deadlines) > 4 * len(self._held) + 1000:
            # Deadlines of leases that were settled long before them would pile up.
            self._deadlines = [(held.deadline, held.number, held) for held in self._held.values()]
            heapq.heapify(self._deadlines)

"""Batches held by workers: grant, extend, settle, expire. Pure."""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum
from itertools import chain
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

from sidecar.core.state.deadlines import NO_ROW, Deadlines
from sidecar.core.state.lane import LanePhase
from sidecar.core.state.record_slices import RecordSlice, RedeliveryGroup, RedeliveryState, between, count, size
from sidecar.model.reasons import Reason
from sidecar.model.records import (
    Extended,
    ExtendStatus,
    Outcome,
    Part,
    Range,
    Run,
    Settlement,
    SettleResult,
    SettleStatus,
)
from sidecar.model.run_set import RunSet

Holder = TypeVar("Holder")

_FIRST = itemgetter(0)


class LeasePhase(Enum):
    """HELD -> SETTLED (all of it, by the worker), or HELD -> ENDED (expired, or its session ended).

    An ENDED lease can still be settled while its records wait for their next delivery.
    """

    HELD = "held"
    SETTLED = "settled"
    ENDED = "ended"


class SettledPart(NamedTuple):
    """Records that a settlement gave one outcome."""

    slices: list[RecordSlice]
    part: Part
    #: the worker singled these records out: the rest of the batch had another outcome
    blamed: bool
    #: unsettled records that the settlement covers: which record failed is known only if there is one
    covered: int
    #: it came late and is not final: its records go on waiting for their next delivery
    waits: bool = False


class Lease(Generic[Holder]):
    """One batch held by a worker, from its delivery until it is forgotten."""

    __slots__ = (
        "deadline",
        "first_lease",
        "granted",
        "holder",
        "id",
        "isolated",
        "limit",
        "number",
        "outcomes",
        "phase",
        "records",
        "redeliveries",
        "row",
        "settled",
        "size",
        "slices",
        "stale_indexes",
        "uncounted_failures",
        "written",
    )

    def __init__(
        self, number: int, id_: bytes, holder: Holder, slices: list[RecordSlice], now: float, limit: float
    ) -> None:
        self.number = number
        self.id = id_
        self.holder = holder
        self.slices = slices
        self.records = count(slices)
        self.size = size(slices)
        self.phase = LeasePhase.HELD
        self.granted = now
        #: it expires this many seconds after the delivery
        self.limit = limit
        #: the batch was written to the worker: its time runs
        self.written = False
        #: on the loop's clock
        self.deadline = float("inf")
        #: the time of its row in `Deadlines`
        self.row = NO_ROW
        #: the number of the lease that failed first with these records
        self.first_lease = number
        self.uncounted_failures = 0
        #: these records are delivered with no others
        self.isolated = False
        #: indexes that are settled; None: none or, once the lease is SETTLED, all
        self.settled: RunSet | None = None
        #: (first index, count, outcome) of what was settled, ascending and merged, to compare repeated settlements with
        self.outcomes: list[tuple[int, int, Outcome]] = []
        #: indexes that were settled when their lane was gone already; None: none
        self.stale_indexes: RunSet | None = None
        #: the groups in which its records waited after it ended
        self.redeliveries: list[RedeliveryGroup] = []

    @property
    def ended(self) -> bool:
        """It expired, or its session ended, before all of it was settled."""
        return self.phase is LeasePhase.ENDED

    def note_outcome(self, first: int, records: int, outcome: Outcome) -> None:
        """Remember the outcome of indexes that had none so far."""
        known = self.outcomes
        low = high = bisect_right(known, first, key=_FIRST)
        if low and known[low - 1][2] is outcome and known[low - 1][0] + known[low - 1][1] == first:
            low -= 1
            first, records = known[low][0], known[low][1] + records
        if high < len(known) and known[high][2] is outcome and first + records == known[high][0]:
            records += known[high][1]
            high += 1
        known[low:high] = [(first, records, outcome)]

    def forget_records(self) -> None:
        """Drop the records of a finished lease. Its outcomes are kept."""
        self.slices = []
        self.redeliveries = []

    def forget_unless_waiting(self) -> None:
        """As `forget_records`, once none of them waits for its next delivery: until then the lease can be settled."""
        if all(group.state is not RedeliveryState.WAITING for group in self.redeliveries):
            self.forget_records()

    def unsettled(self) -> list[RecordSlice]:
        if self.settled is None:
            return self.slices
        return [*chain.from_iterable(between(self.slices, self.settled.missing(Run(0, self.records))))]

    def settled_otherwise(self, parts: Iterable[Part]) -> tuple[Range, ...]:
        """Ranges of the parts that were settled with another outcome, or were stale, before."""
        stale = RunSet()
        known = self.outcomes
        for part in parts:
            end = part.first + part.count
            # None of them overlap, so each part looks only at those that it meets.
            begin = max(0, bisect_right(known, part.first, key=_FIRST) - 1)
            for first, records, outcome in known[begin : bisect_left(known, end, key=_FIRST)]:
                if outcome is not part.outcome:
                    stale.add(Run(max(first, part.first), min(first + records, end)))
            for run in self.stale_indexes.meeting(Run(part.first, end)) if self.stale_indexes else ():
                stale.add(Run(max(run.start, part.first), min(run.stop, end)))
        return tuple(Range(run.start, run.stop - run.start) for run in stale)

    def still_waiting(self) -> list[tuple[int, RecordSlice]]:
        """Records of an ended lease that were not delivered again yet, with their indexes. By record, as it is rare."""
        waiting = {
            (id(single.chunk), single.start)
            for group in self.redeliveries
            if group.state is RedeliveryState.WAITING
            for slice_ in group.slices
            for single in slice_.singles()
        }
        singles = (single for slice_ in self.slices for single in slice_.singles())
        return [(index, single) for index, single in enumerate(singles) if (id(single.chunk), single.start) in waiting]

    def remove_from_redelivery(self, done: Sequence[SettledPart]) -> None:
        """These records of an ended lease were settled late. They do not wait any more, unless the part says so."""
        taken = {(id(slice_.chunk), slice_.start) for part in done if not part.waits for slice_ in part.slices}
        if not taken:
            return
        for group in self.redeliveries:
            if group.state is RedeliveryState.WAITING:
                group.slices = [
                    s for slice_ in group.slices for s in slice_.singles() if (id(s.chunk), s.start) not in taken
                ]
                if not group.slices:
                    group.state = RedeliveryState.GONE

    def drop_revoked(
        self, result: SettleResult, settled: Sequence[SettledPart]
    ) -> tuple[SettleResult, list[SettledPart]]:
        """The result with the ranges whose lanes are gone as stale, and the parts without them.

        Remembers these ranges, so that the same settlement gets the same answer again.
        """
        stale = RunSet(Run(each.first, each.first + each.count) for each in result.stale)
        self.stale_indexes = stale_indexes = self.stale_indexes or RunSet()
        left: list[SettledPart] = []
        for each in settled:
            index = each.part.first
            for slice_ in each.slices:
                if slice_.lane.phase is LanePhase.GONE:
                    stale.add(Run(index, index + slice_.records))
                    stale_indexes.add(Run(index, index + slice_.records))
                else:
                    part = replace(each.part, first=index, count=slice_.records)
                    left.append(each._replace(slices=[slice_], part=part))
                index += slice_.records
        ranges = tuple(Range(run.start, run.stop - run.start) for run in stale)
        return result._replace(status=SettleStatus.STALE, stale=ranges, detail="a lane moved to another sidecar"), left


def _positions_in(runs: Iterable[Run]) -> int:
    return sum(run.stop - run.start for run in runs)


def _refuse_parts(records: int, settlement: Settlement) -> SettleResult | None:
    """The result for a settlement whose parts do not fit the batch; None if they do."""
    after = 0
    for part in settlement.parts:
        if part.count < 1 or part.first < after or part.first + part.count > records:
            detail = (
                f"the part of {part.count} records from {part.first} on does not fit: parts must ascend, must not "
                f"overlap, and the batch has {records} records"
            )
            return SettleResult(settlement.lease, SettleStatus.REFUSED, (), detail, Reason.INVALID_PARTS)
        after = part.first + part.count
    return None


def _rest(settlement: Settlement, first: int, records: int) -> Part:
    """Records that no part of the settlement names."""
    assert settlement.outcome is not None
    return Part(
        first, records, settlement.outcome, settlement.reason, settlement.retry_after, settlement.possibly_processed
    )


def _expand_parts(records: int, settlement: Settlement) -> list[Part]:
    """The settlement as parts: those it lists and, unless it is partial, the rest of the batch."""
    if settlement.outcome is None:
        return list(settlement.parts)
    out: list[Part] = []
    at = 0
    for part in [*settlement.parts, None]:
        stop = part.first if part else records
        if stop > at:
            out.append(_rest(settlement, at, stop - at))
        if part:
            out.append(part)
            at = part.first + part.count
    return out


#: finished leases that are remembered, so that repeated and late settlements get a true answer
REMEMBERED = 10_000
#: runs of records with one outcome that all of these may have together: some 15 MB
REMEMBERED_OUTCOMES = 100_000


class Leases(Generic[Holder]):
    """All leases of a subscription."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._number = 0
        self._held: dict[bytes, Lease[Holder]] = {}
        self._finished: OrderedDict[bytes, Lease[Holder]] = OrderedDict()
        #: runs of outcomes of the finished leases
        self._outcomes = 0
        self._deadlines: Deadlines[Lease[Holder]] = Deadlines()

    def __len__(self) -> int:
        return len(self._held)

    def held(self) -> Iterable[Lease[Holder]]:
        return self._held.values()

    def grant(
        self, holder: Holder, slices: list[RecordSlice], now: float, limit: float, longest: float
    ) -> Lease[Holder]:
        """A lease that ends `limit` seconds after it was written, or `longest` from now if it never is."""
        self._number += 1
        id_ = self._prefix + self._number.to_bytes(6, "big")
        lease = Lease(self._number, id_, holder, slices, now, limit)
        self._held[id_] = lease
        self._deadlines.set(lease, now + longest)
        return lease

    def mark_written(self, ids: Iterable[bytes], now: float) -> None:
        """These batches were written to the worker: the time of their leases starts now."""
        for id_ in ids:
            lease = self._held.get(id_)
            if lease is not None and not lease.written:
                lease.written = True
                lease.granted = now
                self._deadlines.set(lease, now + lease.limit)

    def extend(self, id_: bytes, seconds: float, longest: float, now: float) -> Extended:
        """Move the deadline to this many seconds from now, if that is later; never past `longest` from the delivery."""
        lease = self._held.get(id_)
        if lease is None:
            return Extended(id_, ExtendStatus.ENDED if id_ in self._finished else ExtendStatus.UNKNOWN)
        if not lease.written:
            # The requested time starts once the batch is written.
            lease.limit = min(max(lease.limit, seconds), longest)
            return Extended(id_, ExtendStatus.EXTENDED, lease.limit)
        self._deadlines.set(lease, max(lease.deadline, min(now + seconds, lease.granted + longest)))
        return Extended(id_, ExtendStatus.EXTENDED, max(0.0, lease.deadline - now))

    def get(self, id_: bytes) -> Lease[Holder] | None:
        """The lease, while a worker holds it."""
        return self._held.get(id_)

    def next_deadline(self) -> float | None:
        """A time before which no lease expires, and at which one may."""
        return self._deadlines.next()

    def expire(self, now: float) -> list[Lease[Holder]]:
        """Leases whose deadline has passed, in the order of their deadlines. The caller ends them."""
        return self._deadlines.expire(now)

    def end(self, lease: Lease[Holder]) -> list[RecordSlice]:
        """The lease ended without a settlement. Returns its unsettled records; the caller adds the groups in which
        they wait to `Lease.redeliveries`."""
        del self._held[lease.id]
        self._deadlines.remove(lease)
        lease.phase = LeasePhase.ENDED
        self._remember(lease)
        return lease.unsettled()

    def close_acked(self, settlement: Settlement) -> Lease[Holder] | None:
        """Apply a settlement that acks a whole batch, of which nothing was settled before and no lane is gone. Returns
        None for any other, and applies nothing."""
        lease = self._held.get(settlement.lease)
        if lease is None or settlement.outcome is not Outcome.ACK or settlement.parts or lease.settled is not None:
            return None
        for slice_ in lease.slices:
            if slice_.lane.phase is LanePhase.GONE:
                return None
        lease.outcomes.append((0, lease.records, Outcome.ACK))
        self._close(lease)
        return lease

    def settle(self, settlement: Settlement) -> tuple[SettleResult, Lease[Holder] | None, list[SettledPart]]:
        """Apply a settlement. Returns the result, the lease unless it is UNKNOWN or the settlement is REFUSED, and the
        parts that took effect."""
        id_ = settlement.lease
        lease = self._held.get(id_)
        if lease is None:
            return self._settle_ended(settlement)
        if not settlement.parts and settlement.outcome is not None and lease.settled is None:
            # The usual case: one outcome for the whole batch.
            lease.outcomes.append((0, lease.records, settlement.outcome))
            self._close(lease)
            part = _rest(settlement, 0, lease.records)
            return (
                SettleResult(id_, SettleStatus.SETTLED),
                lease,
                [SettledPart(lease.slices, part, False, lease.records)],
            )
        refused = _refuse_parts(lease.records, settlement)
        if refused is not None:
            return refused, None, []
        settled = lease.settled if lease.settled is not None else RunSet()
        done: list[SettledPart] = []
        parts = _expand_parts(lease.records, settlement)
        missing = [settled.missing(Run(part.first, part.first + part.count)) for part in parts]
        listed = set(map(id, settlement.parts))
        rest = sum(_positions_in(runs) for part, runs in zip(parts, missing, strict=True) if id(part) not in listed)
        pieces = between(lease.slices, chain.from_iterable(missing))
        for part, runs in zip(parts, missing, strict=True):
            covered = _positions_in(runs) if id(part) in listed else rest
            for start, stop in runs:
                piece = Part(start, stop - start, part.outcome, part.reason, part.retry_after, part.possibly_processed)
                done.append(SettledPart(next(pieces), piece, piece.count < lease.records, covered))
        stale = lease.settled_otherwise(parts)
        for settled_now in done:
            part = settled_now.part
            settled.add(Run(part.first, part.first + part.count))
            lease.note_outcome(part.first, part.count, part.outcome)
        lease.settled = settled
        if len(settled) == lease.records:
            self._close(lease)
        status = SettleStatus.STALE if stale else SettleStatus.SETTLED
        detail = "settled otherwise before" if stale else ""
        return SettleResult(id_, status, stale, detail), lease, done

    def group_finished(self, group: RedeliveryGroup) -> None:
        """The group stopped waiting. An ended lease none of whose records waits any more keeps only its outcomes."""
        if group.expired_lease is not None:
            group.expired_lease.forget_unless_waiting()

    def _settle_ended(self, settlement: Settlement) -> tuple[SettleResult, Lease[Holder] | None, list[SettledPart]]:
        lease = self._finished.get(settlement.lease)
        if lease is None:
            detail = "no such lease: it is from before a restart, was settled long ago, or never existed"
            return SettleResult(settlement.lease, SettleStatus.UNKNOWN, (), detail), None, []
        refused = _refuse_parts(lease.records, settlement)
        if refused is not None:
            return refused, None, []
        parts = _expand_parts(lease.records, settlement)
        stale = RunSet(Run(part.first, part.first + part.count) for part in parts)
        for first, records, _ in lease.outcomes:
            stale.discard(Run(first, first + records))
        for range_ in lease.settled_otherwise(parts):
            stale.add(Run(range_.first, range_.first + range_.count))
        done: list[SettledPart] = []
        outcomes_before = len(lease.outcomes)
        said = RunSet(Run(first, first + records) for first, records, _ in lease.outcomes)
        firsts = [part.first for part in parts]
        for index, single in lease.still_waiting():
            at = bisect_right(firsts, index) - 1
            if at < 0 or index >= parts[at].first + parts[at].count or index in said:
                continue
            part = parts[at]
            stale.discard(Run(index, index + 1))
            lease.note_outcome(index, 1, part.outcome)
            piece = replace(part, first=index, count=1)
            waits = part.outcome not in (Outcome.ACK, Outcome.REJECT)
            done.append(SettledPart([single], piece, blamed=True, covered=1, waits=waits))
        lease.remove_from_redelivery(done)
        lease.forget_unless_waiting()
        self._outcomes += len(lease.outcomes) - outcomes_before
        self._forget_oldest()
        ranges = tuple(Range(run.start, run.stop - run.start) for run in stale)
        if not ranges:
            return SettleResult(lease.id, SettleStatus.SETTLED), lease, done
        detail = "settled otherwise before, or the lease ended and its records were delivered again"
        return SettleResult(lease.id, SettleStatus.STALE, ranges, detail), lease, done

    def _close(self, lease: Lease[Holder]) -> None:
        del self._held[lease.id]
        self._deadlines.remove(lease)
        lease.phase = LeasePhase.SETTLED
        lease.settled = None
        self._remember(lease)

    def _remember(self, lease: Lease[Holder]) -> None:
        self._finished[lease.id] = lease
        self._outcomes += len(lease.outcomes)
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        while len(self._finished) > REMEMBERED or self._outcomes > REMEMBERED_OUTCOMES:
            self._outcomes -= len(self._finished.popitem(last=False)[1].outcomes)

"""Batches in the hands of workers: grant, extend, settle, expire. Pure."""

import heapq
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from sidecar.core.state.lane import LanePhase
from sidecar.core.state.record_slices import RecordSlice, RedeliveryGroup, RedeliveryState, between, count, size
from sidecar.model.errors import InvalidRequest
from sidecar.model.records import Extended, Outcome, Part, Range, Run, Settlement, SettleResult, SettleStatus
from sidecar.model.run_set import RunSet

Holder = TypeVar("Holder")


class LeasePhase(Enum):
    """HELD -> SETTLED (the worker said how it went), or HELD -> ENDED (expired, or its session ended).

    An ENDED lease may still be settled as long as its records wait for their next delivery.
    """

    HELD = "held"
    SETTLED = "settled"
    ENDED = "ended"


class Lease(Generic[Holder]):
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
        #: seconds from the delivery after which it ends whatever happens
        self.limit = limit
        #: its time starts when the batch was written to the worker
        self.written = False
        #: on the loop's clock
        self.deadline = float("inf")
        #: the lease that first failed with these records
        self.first_lease = number
        self.uncounted_failures = 0
        #: these records are delivered with nothing else
        self.isolated = False
        #: indexes that are settled; None: none or, once it is SETTLED, all
        self.settled: RunSet | None = None
        #: what was said of which indexes, for settling twice: ascending, and neighbours with one outcome are one
        self.outcomes: list[tuple[int, int, Outcome]] = []
        #: indexes of records that were settled when they were this sidecar's no more; None: none
        self.stale_indexes: RunSet | None = None
        #: where the records went when it ended
        self.redeliveries: list[RedeliveryGroup] = []

    @property
    def ended(self) -> bool:
        """It ended without a settlement: it expired, or its session ended."""
        return self.phase is LeasePhase.ENDED


class SettledPart(NamedTuple):
    """Records that were settled just now, with one outcome."""

    slices: list[RecordSlice]
    part: Part
    #: the worker named these records: the rest of the batch fared otherwise
    blamed: bool
    #: of how many unsettled records that was said in one breath: only of one alone is it known that it failed
    covered: int


def note_outcome(lease: Lease[Holder], first: int, records: int, outcome: Outcome) -> None:
    """Something was said of indexes of which nothing was said before."""
    said = lease.outcomes
    low = high = bisect_right(said, first, key=_first_of)
    if low and said[low - 1][2] is outcome and said[low - 1][0] + said[low - 1][1] == first:
        low -= 1
        first, records = said[low][0], said[low][1] + records
    if high < len(said) and said[high][2] is outcome and first + records == said[high][0]:
        records += said[high][1]
        high += 1
    said[low:high] = [(first, records, outcome)]


def _first_of(said: tuple[int, int, Outcome]) -> int:
    return said[0]


def forget_records(lease: Lease[Holder]) -> None:
    """Drop what a finished lease refers to: only what was said of it is kept."""
    lease.slices = []
    lease.redeliveries = []


def forget_unless_waiting(lease: Lease[Holder]) -> None:
    if all(group.state is not RedeliveryState.WAITING for group in lease.redeliveries):
        forget_records(lease)


def unsettled(lease: Lease[Holder]) -> list[RecordSlice]:
    if lease.settled is None:
        return lease.slices
    out: list[RecordSlice] = []
    for start, stop in lease.settled.missing(Run(0, lease.records)):
        out.extend(between(lease.slices, start, stop - start))
    return out


def positions_in(runs: Iterable[Run]) -> int:
    return sum(run.stop - run.start for run in runs)


def check_parts(records: int, settlement: Settlement) -> None:
    after = 0
    for part in settlement.parts:
        if part.count < 1 or part.first < after or part.first + part.count > records:
            raise InvalidRequest(
                f"settlement of lease {settlement.lease.hex()}: the part of {part.count} records from {part.first} on "
                f"does not fit: parts must ascend, must not overlap, and the batch has {records} records"
            )
        after = part.first + part.count


def expand_parts(records: int, settlement: Settlement) -> list[Part]:
    """The settlement as parts: those it names and, unless it is partial, the rest."""
    if settlement.outcome is None:
        return list(settlement.parts)
    out: list[Part] = []
    at = 0
    for part in [*settlement.parts, None]:
        stop = part.first if part else records
        if stop > at:
            out.append(Part(at, stop - at, settlement.outcome, settlement.reason, settlement.retry_after))
        if part:
            out.append(part)
            at = part.first + part.count
    return out


def settled_otherwise(lease: Lease[Holder], parts: Iterable[Part]) -> tuple[Range, ...]:
    """Ranges of the parts that were settled before with another outcome, or refused before."""
    stale = RunSet()
    said = lease.outcomes
    for part in parts:
        end = part.first + part.count
        # No two of them overlap, so each part looks only at those that it meets.
        for first, records, outcome in islice(said, max(0, bisect_right(said, part.first, key=_first_of) - 1), None):
            if first >= end:
                break
            if outcome is not part.outcome:
                stale.add(Run(max(first, part.first), min(first + records, end)))
        for run in lease.stale_indexes or ():
            stale.add(Run(max(run.start, part.first), min(run.stop, part.first + part.count)))
    return tuple(Range(run.start, run.stop - run.start) for run in stale)


def still_waiting(lease: Lease[Holder]) -> list[tuple[int, RecordSlice]]:
    """Records of an ended lease that were not given out again, with their indexes. Record by record: this is rare."""
    waiting = {
        (id(single.chunk), single.start)
        for group in lease.redeliveries
        if group.state is RedeliveryState.WAITING
        for slice_ in group.slices
        for single in slice_.singles()
    }
    singles = (single for slice_ in lease.slices for single in slice_.singles())
    return [(index, single) for index, single in enumerate(singles) if (id(single.chunk), single.start) in waiting]


def remove_from_redelivery(lease: Lease[Holder], done: Sequence[SettledPart]) -> None:
    taken = {(id(slice_.chunk), slice_.start) for settled in done for slice_ in settled.slices}
    if not taken:
        return
    for group in lease.redeliveries:
        if group.state is RedeliveryState.WAITING:
            group.slices = [
                s for slice_ in group.slices for s in slice_.singles() if (id(s.chunk), s.start) not in taken
            ]
            if not group.slices:
                group.state = RedeliveryState.GONE


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

    def grant(
        self, holder: Holder, slices: list[RecordSlice], now: float, limit: float, longest: float
    ) -> Lease[Holder]:
        """A lease that ends `limit` seconds after it was written, or `longest` from now if it never is."""
        self._number += 1
        id_ = self._prefix + self._number.to_bytes(6, "big")
        lease = Lease(self._number, id_, holder, slices, now, limit)
        self._held[id_] = lease
        self._set_deadline(lease, now + longest)
        return lease

    def mark_written(self, id_: bytes, now: float) -> None:
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

    def end(self, lease: Lease[Holder]) -> list[RecordSlice]:
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

    def settle(self, settlement: Settlement) -> tuple[SettleResult, Lease[Holder] | None, list[SettledPart]]:
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
            return (
                SettleResult(id_, SettleStatus.SETTLED),
                lease,
                [SettledPart(lease.slices, part, False, lease.records)],
            )
        settled = lease.settled if lease.settled is not None else RunSet()
        done: list[SettledPart] = []
        parts = expand_parts(lease.records, settlement)
        missing = [settled.missing(Run(part.first, part.first + part.count)) for part in parts]
        own_words = set(map(id, settlement.parts))
        others = sum(positions_in(runs) for part, runs in zip(parts, missing, strict=True) if id(part) not in own_words)
        for part, runs in zip(parts, missing, strict=True):
            covered = positions_in(runs) if id(part) in own_words else others
            for start, stop in runs:
                piece = Part(start, stop - start, part.outcome, part.reason, part.retry_after)
                blamed = piece.count < lease.records
                done.append(SettledPart(between(lease.slices, start, stop - start), piece, blamed, covered))
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

    def group_finished(self, group: RedeliveryGroup) -> None:
        """The parcel stopped waiting. An ended lease whose records wait no more keeps only what was said of it."""
        if group.expired_lease is not None:
            forget_unless_waiting(group.expired_lease)

    def _settle_ended(self, settlement: Settlement) -> tuple[SettleResult, Lease[Holder] | None, list[SettledPart]]:
        lease = self._ended.get(settlement.lease)
        if lease is None:
            detail = "no such lease: it is from before a restart, was settled long ago, or never was"
            return SettleResult(settlement.lease, SettleStatus.UNKNOWN, (), detail), None, []
        parts = expand_parts(lease.records, settlement)
        stale = RunSet(Run(part.first, part.first + part.count) for part in parts)
        for first, records, _ in lease.outcomes:
            stale.discard(Run(first, first + records))
        for range_ in settled_otherwise(lease, parts):
            stale.add(Run(range_.first, range_.first + range_.count))
        done: list[SettledPart] = []
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
                done.append(SettledPart([single], piece, blamed=True, covered=1))
                note_outcome(lease, index, 1, part.outcome)
        remove_from_redelivery(lease, done)
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


def drop_revoked(
    lease: Lease[Holder], result: SettleResult, settled: Sequence[SettledPart]
) -> tuple[SettleResult, list[SettledPart]]:
    """What is left of a settlement, and its result with the ranges named that are stale.

    The lease remembers what was refused, so that saying it again gets the same answer.
    """
    stale = RunSet(Run(each.first, each.first + each.count) for each in result.stale)
    lease.stale_indexes = stale_indexes = lease.stale_indexes or RunSet()
    left: list[SettledPart] = []
    for each in settled:
        index = each.part.first
        for slice_ in each.slices:
            if slice_.lane.phase is LanePhase.GONE:
                stale.add(Run(index, index + slice_.records))
                stale_indexes.add(Run(index, index + slice_.records))
            else:
                part = replace(each.part, first=index, count=slice_.records)
                left.append(SettledPart([slice_], part, each.blamed, each.covered))
            index += slice_.records
    ranges = tuple(Range(run.start, run.stop - run.start) for run in stale)
    return result._replace(status=SettleStatus.STALE, stale=ranges, detail="a lane moved to another sidecar"), left

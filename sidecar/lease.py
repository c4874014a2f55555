"""One batch in the hands of one worker, and what its settlements mean. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from sidecar.errors import InvalidRequest
from sidecar.model import Outcome, Part, Range, Run, Settlement
from sidecar.runs import RunSet
from sidecar.spans import Parcel, ParcelState, Span, between, count, size

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
        "apart",
        "deadline",
        "granted",
        "heirs",
        "holder",
        "id",
        "limit",
        "number",
        "origin",
        "outcomes",
        "phase",
        "records",
        "refused",
        "setbacks",
        "settled",
        "size",
        "spans",
        "written",
    )

    def __init__(self, number: int, id_: bytes, holder: Holder, spans: list[Span], now: float, limit: float) -> None:
        self.number = number
        self.id = id_
        self.holder = holder
        self.spans = spans
        self.records = count(spans)
        self.size = size(spans)
        self.phase = LeasePhase.HELD
        self.granted = now
        #: seconds from the delivery after which it ends whatever happens
        self.limit = limit
        #: its time starts when the batch was written to the worker
        self.written = False
        #: on the loop's clock
        self.deadline = float("inf")
        #: the lease that first failed with these records
        self.origin = number
        self.setbacks = 0
        #: these records are delivered with nothing else
        self.apart = False
        #: indexes that are settled; None: none or, once it is SETTLED, all
        self.settled: RunSet | None = None
        #: what was said of which indexes, for settling twice: ascending, and neighbours with one outcome are one
        self.outcomes: list[tuple[int, int, Outcome]] = []
        #: indexes of records that were settled when they were this sidecar's no more; None: none
        self.refused: RunSet | None = None
        #: where the records went when it ended
        self.heirs: list[Parcel] = []


class Settled(NamedTuple):
    """Records that were settled just now, with one outcome."""

    spans: list[Span]
    part: Part
    #: the worker named these records: the rest of the batch fared otherwise
    named: bool
    #: of how many unsettled records that was said in one breath: only of one alone is it known that it failed
    meant: int


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
    lease.spans = []
    lease.heirs = []


def forget_unless_waiting(lease: Lease[Holder]) -> None:
    if all(heir.state is not ParcelState.WAITING for heir in lease.heirs):
        forget_records(lease)


def unsettled(lease: Lease[Holder]) -> list[Span]:
    if lease.settled is None:
        return lease.spans
    out: list[Span] = []
    for start, stop in lease.settled.missing(Run(0, lease.records)):
        out.extend(between(lease.spans, start, stop - start))
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


def spread(records: int, settlement: Settlement) -> list[Part]:
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
        for run in lease.refused or ():
            stale.add(Run(max(run.start, part.first), min(run.stop, part.first + part.count)))
    return tuple(Range(run.start, run.stop - run.start) for run in stale)


def still_waiting(lease: Lease[Holder]) -> list[tuple[int, Span]]:
    """Records of an ended lease that were not given out again, with their indexes. Record by record: this is rare."""
    waiting = {
        (id(single.chunk), single.start)
        for heir in lease.heirs
        if heir.state is ParcelState.WAITING
        for span in heir.spans
        for single in span.singles()
    }
    singles = (single for span in lease.spans for single in span.singles())
    return [(index, single) for index, single in enumerate(singles) if (id(single.chunk), single.start) in waiting]


def take_from_heirs(lease: Lease[Holder], done: Sequence[Settled]) -> None:
    taken = {(id(span.chunk), span.start) for settled in done for span in settled.spans}
    if not taken:
        return
    for heir in lease.heirs:
        if heir.state is ParcelState.WAITING:
            heir.spans = [s for span in heir.spans for s in span.singles() if (id(s.chunk), s.start) not in taken]
            if not heir.spans:
                heir.state = ParcelState.GONE

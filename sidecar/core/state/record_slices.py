"""Records on the move: spans of a chunk with their history, and parcels of spans that travel together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from sidecar.model.records import Chunk, Redelivery, Run

if TYPE_CHECKING:
    from sidecar.core.state.lane import LaneState
    from sidecar.core.state.leases import Lease


class History(NamedTuple):
    """What happened to records before this delivery."""

    #: counted outcomes: nacks and expiries of the record alone, and lost sessions
    failures: int = 0
    #: those of them that speak against the record: not while the handler was known to be down
    counted_failures: int = 0
    #: lost sessions among those that speak against it
    worker_crashes: int = 0
    #: an earlier outcome is not known
    possibly_processed: bool = False
    #: when they first failed, on the loop's clock
    first_failed: float | None = None
    #: deliver in batches of at most this many records; 0: no limit. Survives parking, where groups do not.
    max_batch_size: int = 0


#: workers that must have died with a record in hand before it is suspected
SUSPECTED = 2

FRESH = History()
POSSIBLY_PROCESSED = History(possibly_processed=True)


class RecordSlice:
    """Consecutive records of one chunk with one history. Immutable by convention; slots because there are many."""

    __slots__ = ("chunk", "history", "lane", "low", "records", "size", "start", "stop")

    def __init__(self, lane: "LaneState", chunk: Chunk, start: int, stop: int, low: int, history: History = FRESH):
        self.lane = lane
        self.chunk = chunk
        self.start = start
        self.stop = stop
        #: the first record answers for the positions from here on
        self.low = low
        self.history = history
        self.records = stop - start
        #: bytes, also after the frames were dropped
        self.size = chunk.size(start, stop)

    @property
    def run(self) -> Run:
        """The positions that these records answer for."""
        return Run(self.low, self.chunk.positions[self.stop - 1] + 1)

    def cut(self, at: int) -> tuple["RecordSlice", "RecordSlice"]:
        """The first `at` records and the rest. Both must be non-empty."""
        middle = self.start + at
        return (
            RecordSlice(self.lane, self.chunk, self.start, middle, self.low, self.history),
            RecordSlice(self.lane, self.chunk, middle, self.stop, self.chunk.positions[middle - 1] + 1, self.history),
        )

    def slice(self, first: int, stop: int) -> "RecordSlice":
        """Records first <= i < stop of this span."""
        if first == 0 and stop == self.stop - self.start:
            return self
        low = self.low if first == 0 else self.chunk.positions[self.start + first - 1] + 1
        return RecordSlice(self.lane, self.chunk, self.start + first, self.start + stop, low, self.history)

    def with_history(self, history: History) -> "RecordSlice":
        return RecordSlice(self.lane, self.chunk, self.start, self.stop, self.low, history)

    def singles(self) -> "Iterable[RecordSlice]":
        for at in range(self.stop - self.start):
            yield self.slice(at, at + 1)


def count(slices: Sequence[RecordSlice]) -> int:
    return slices[0].records if len(slices) == 1 else sum([slice_.records for slice_ in slices])


def size(slices: Sequence[RecordSlice]) -> int:
    return slices[0].size if len(slices) == 1 else sum([slice_.size for slice_ in slices])


def cut(slices: Sequence[RecordSlice], at: int) -> tuple[list[RecordSlice], list[RecordSlice]]:
    """The first `at` records and the rest."""
    head: list[RecordSlice] = []
    for index, slice_ in enumerate(slices):
        if at >= slice_.records:
            head.append(slice_)
            at -= slice_.records
            continue
        if at == 0:
            return head, list(slices[index:])
        first, rest = slice_.cut(at)
        head.append(first)
        return head, [rest, *slices[index + 1 :]]
    return head, []


def between(slices: Sequence[RecordSlice], first: int, records: int) -> list[RecordSlice]:
    """Records first <= i < first + records."""
    return cut(cut(slices, first)[1], records)[0]


def redeliveries(slices: Sequence[RecordSlice]) -> tuple[Redelivery, ...]:
    """What a batch of these spans says of earlier deliveries."""
    if len(slices) == 1 and slices[0].history is FRESH:
        return ()
    out: list[Redelivery] = []
    first = 0
    for slice_ in slices:
        records = slice_.stop - slice_.start
        history = slice_.history
        if history.failures or history.possibly_processed:
            attempt = history.failures + 1
            last = out[-1] if out else None
            if last and (last.first + last.count, last.attempt, last.possibly_processed) == (
                first,
                attempt,
                history.possibly_processed,
            ):
                out[-1] = replace(last, count=last.count + records)
            else:
                out.append(Redelivery(first, records, attempt, history.possibly_processed))
        first += records
    return tuple(out)


def joined(singles: Sequence[RecordSlice]) -> list[RecordSlice]:
    """Neighbours of one chunk become one span again, so that settling them costs one run."""
    out: list[RecordSlice] = []
    for single in singles:
        last = out[-1] if out else None
        if last and last.chunk is single.chunk and last.stop == single.start and last.history == single.history:
            out[-1] = RecordSlice(last.lane, last.chunk, last.start, single.stop, last.low, last.history)
        else:
            out.append(single)
    return out


def sort_by_position(slices: Sequence[RecordSlice]) -> list[RecordSlice]:
    """By lane and position, as a batch has them."""
    lanes: dict[int, int] = {}
    for slice_ in slices:
        lanes.setdefault(id(slice_.lane), len(lanes))
    return joined(sorted(slices, key=lambda slice_: (lanes[id(slice_.lane)], slice_.chunk.positions[slice_.start])))


class RedeliveryState(Enum):
    """WAITING -> LEASED (delivered), ASIDE (being dead-lettered or parked) or GONE (settled late, or lane gone).

    LEASED and ASIDE parcels never come back as the same parcel: what fails again travels in a new one.
    """

    WAITING = "waiting"
    LEASED = "leased"
    ASIDE = "aside"
    GONE = "gone"


@dataclass(slots=True, eq=False)
class RedeliveryGroup:
    """Records that came back and wait for their next delivery, together."""

    slices: list[RecordSlice]
    #: when it may go, on the loop's clock
    due: float
    #: deliver exactly this, with nothing else: one of these records may be poison
    isolated: bool = False
    #: the lease that first failed, so that an outage is told by different batches failing
    first_lease: int = 0
    #: failures of the whole parcel that did not count against its records
    uncounted_failures: int = 0
    #: the lease that ended with these records: it may still be settled while they wait
    expired_lease: "Lease[Any] | None" = None
    #: cannot be parked
    stays: bool = False
    state: RedeliveryState = RedeliveryState.WAITING

    @property
    def records(self) -> int:
        return count(self.slices)

    @property
    def suspected(self) -> bool:
        """Its record was there when two workers died. By then it travels alone."""
        return self.slices[0].history.worker_crashes >= SUSPECTED

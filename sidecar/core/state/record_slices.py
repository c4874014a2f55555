"""Consecutive records of a chunk with what happened to them, and groups of them that are redelivered together. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from sidecar.model.records import Chunk, Redelivery, Run

if TYPE_CHECKING:
    from sidecar.core.state.lane import LaneState
    from sidecar.core.state.leases import Lease


class DeliveryHistory(NamedTuple):
    """What happened to records before this delivery."""

    #: nacks and expiries of the record alone, and lost sessions: shown as `attempt`
    failures: int = 0
    #: those that count against the record: not the ones during an outage of the handler
    counted_failures: int = 0
    #: lost sessions that count against it
    worker_crashes: int = 0
    #: the outcome of an earlier delivery is not known
    possibly_processed: bool = False
    #: when they first failed, on the loop's clock
    first_failed: float | None = None
    #: deliver in batches of at most this many records; 0: no limit. Survives parking, which groups do not.
    max_batch_size: int = 0


#: worker crashes after which a record is suspected to cause them
SUSPECTED = 2

FRESH = DeliveryHistory()
POSSIBLY_PROCESSED = DeliveryHistory(possibly_processed=True)


class RecordSlice:
    """Consecutive records of one chunk with one history. Only `take_first` changes one."""

    __slots__ = ("chunk", "history", "lane", "low", "records", "size", "start", "stop")

    def __init__(
        self, lane: "LaneState", chunk: Chunk, start: int, stop: int, low: int, history: DeliveryHistory = FRESH
    ):
        self.lane = lane
        self.chunk = chunk
        self.start = start
        self.stop = stop
        #: settling the first record settles the positions from here on: those of the gap before it
        self.low = low
        self.history = history
        self.records = stop - start
        #: bytes, also after the frames were dropped
        self.size = chunk.size(start, stop)

    @property
    def topic(self) -> tuple[str, str]:
        """The topic that workers see, and its identity."""
        chunk = self.chunk
        if chunk.origin is not None:
            return chunk.origin.topic, chunk.topic_id
        return chunk.lane.topic, self.lane.topic_id

    @property
    def run(self) -> Run:
        """The positions that are settled with these records."""
        return Run(self.low, self.chunk.positions[self.stop - 1] + 1)

    def cut(self, at: int) -> tuple["RecordSlice", "RecordSlice"]:
        """The first `at` records and the rest. Both must be non-empty."""
        middle = self.start + at
        return (
            RecordSlice(self.lane, self.chunk, self.start, middle, self.low, self.history),
            RecordSlice(self.lane, self.chunk, middle, self.stop, self.chunk.positions[middle - 1] + 1, self.history),
        )

    def take_first(self, records: int) -> "RecordSlice":
        """The first records, which leave this slice. Some must be left. For slices that nobody else has: it is cheaper
        than `cut`."""
        chunk, middle = self.chunk, self.start + records
        head = RecordSlice(self.lane, chunk, self.start, middle, self.low, self.history)
        self.start = middle
        self.low = chunk.positions[middle - 1] + 1
        self.records -= records
        self.size -= head.size
        return head

    def slice(self, first: int, stop: int) -> "RecordSlice":
        """Records first <= i < stop of this slice."""
        if first == 0 and stop == self.stop - self.start:
            return self
        low = self.low if first == 0 else self.chunk.positions[self.start + first - 1] + 1
        return RecordSlice(self.lane, self.chunk, self.start + first, self.start + stop, low, self.history)

    def with_history(self, history: DeliveryHistory) -> "RecordSlice":
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


def between(slices: Sequence[RecordSlice], runs: Iterable[Run]) -> Iterator[list[RecordSlice]]:
    """The records of each run of indexes. The runs ascend, so the slices are passed once."""
    number = before = 0
    for start, stop in runs:
        records: list[RecordSlice] = []
        while True:
            slice_ = slices[number]
            after = before + slice_.records
            if start < after:
                records.append(slice_.slice(max(start, before) - before, min(stop, after) - before))
            if stop <= after:
                break
            number, before = number + 1, after
        yield records


def redeliveries(slices: Sequence[RecordSlice]) -> tuple[Redelivery, ...]:
    """What a batch of these slices tells its worker of earlier deliveries."""
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
    """Neighbours of one chunk become one slice again, so that settling them costs one run."""
    out: list[RecordSlice] = []
    for single in singles:
        last = out[-1] if out else None
        if last and last.chunk is single.chunk and last.stop == single.start and last.history == single.history:
            out[-1] = RecordSlice(last.lane, last.chunk, last.start, single.stop, last.low, last.history)
        else:
            out.append(single)
    return out


def sort_by_position(slices: Sequence[RecordSlice]) -> list[RecordSlice]:
    """By lane and position, as in a batch."""
    lanes: dict[int, int] = {}
    for slice_ in slices:
        lanes.setdefault(id(slice_.lane), len(lanes))
    return joined(sorted(slices, key=lambda slice_: (lanes[id(slice_.lane)], slice_.chunk.positions[slice_.start])))


class RedeliveryState(Enum):
    """WAITING -> LEASED (delivered), ASIDE (being written to a side topic) or GONE (settled late, or lane gone).

    A group never waits again: records that fail again get a new one.
    """

    WAITING = "waiting"
    LEASED = "leased"
    ASIDE = "aside"
    GONE = "gone"


@dataclass(slots=True, eq=False)
class RedeliveryGroup:
    """Records that wait for their next delivery together."""

    slices: list[RecordSlice]
    #: when it may be delivered, on the loop's clock
    due: float
    #: deliver these records with no others: one of them may be poison
    isolated: bool = False
    #: the lease that failed first, so that an outage shows in different batches failing
    first_lease: int = 0
    #: failures of the whole group that did not count against its records
    uncounted_failures: int = 0
    #: the lease that ended with these records: it can still be settled while they wait
    expired_lease: "Lease[Any] | None" = None
    #: the retry topic does not take it
    never_park: bool = False
    state: RedeliveryState = RedeliveryState.WAITING

    @property
    def records(self) -> int:
        return count(self.slices)

    @property
    def suspected(self) -> bool:
        """Workers that held its record crashed. By then it is in a group of its own."""
        return self.slices[0].history.worker_crashes >= SUSPECTED

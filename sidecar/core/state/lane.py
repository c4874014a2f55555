"""One lane as the subscription has it, from its assignment to its end."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import groupby

from sidecar.core.state.ledger import Ledger
from sidecar.core.state.ordering import make_ordering
from sidecar.core.state.record_slices import POSSIBLY_PROCESSED, History, RecordSlice
from sidecar.core.state.window import Window
from sidecar.model.records import Assigned, Chunk, Lane, Order
from sidecar.settings import WindowSettings


class LanePhase(Enum):
    """ACTIVE -> LEAVING (revoked, within its grace) -> GONE; or ACTIVE -> GONE (lost, sought, closed).

    Only an ACTIVE lane is delivered. An ACTIVE or LEAVING lane takes settlements and is committed. For a GONE
    lane every settlement is stale and nothing is ever committed.
    """

    ACTIVE = "active"
    LEAVING = "leaving"
    GONE = "gone"


class LaneState:
    """The books of one lane in one epoch. A lane that is assigned again, or sought, gets a new one."""

    def __init__(self, assigned: Assigned, order: Order, window: WindowSettings, *, parked: bool) -> None:
        self.lane: Lane = assigned.lane
        #: the lane is one of the group's retry topic: its records are parked
        self.parked = parked
        self.phase = LanePhase.ACTIVE
        self.ledger = Ledger(assigned.start, assigned.settled)
        self.ordering = make_ordering(Order.NONE if parked else order)
        self.window = Window(window, assigned.start)
        # What was delivered in an earlier life lies within one window of the start; how it ended is not known.
        self._doubtful_before = assigned.start if assigned.first else assigned.start + window.span
        self._doubtful_records = window.records
        # The first record is within the window however large the gap before it.
        self._first_is_doubtful = not assigned.first
        #: first and last position of what arrived, and when, to know how long fresh records have waited
        self._arrivals: deque[tuple[int, int, float]] = deque()
        self.in_flight = 0
        self.waiting = 0
        #: being dead-lettered or parked
        self.aside = 0
        #: fetched and not settled
        self.unsettled_records = 0
        self.unsettled_bytes = 0
        #: settled, and not yet told to the broker
        self.uncommitted = 0
        #: the broker was asked to send nothing of this lane; None: not known, a seek may have left it paused
        self.paused: bool | None = None
        self.held_by = ""

    def track(self, chunk: Chunk, now: float) -> list[RecordSlice]:
        """Take in a chunk. Answers what is new and unsettled; the caller says where it goes."""
        slices = []
        before = self.ledger.tracked
        new = bisect_left(chunk.positions, before)
        possibly_processed = min(bisect_left(chunk.positions, self._doubtful_before), new + self._doubtful_records)
        if self._first_is_doubtful and new < len(chunk.positions):
            possibly_processed = max(possibly_processed, new + 1)
            self._first_is_doubtful = False
        self._doubtful_records = max(0, self._doubtful_records - len(chunk.positions) + new)
        if chunk.possibly_processed:
            possibly_processed = len(chunk.positions)
        for start, stop, low in self.ledger.track(chunk.positions):
            self.unsettled_records += stop - start
            self.unsettled_bytes += chunk.size(start, stop)
            edge = min(max(possibly_processed, start), stop)
            if edge > start:
                slices.append(RecordSlice(self, chunk, start, edge, low, POSSIBLY_PROCESSED))
            if stop > edge:
                slices.append(
                    RecordSlice(self, chunk, edge, stop, chunk.positions[edge - 1] + 1 if edge > start else low)
                )
        if chunk.delivered_before is not None:
            slices = [part for slice_ in slices for part in _counted(slice_, chunk.delivered_before)]
        self.window.track(chunk, now)
        if slices and not self.parked:
            self._forget_arrivals()
            self._arrivals.append((chunk.positions[slices[0].start], chunk.positions[-1], now))
        return slices

    def fresh_since(self) -> float:
        """When the record arrived that would go next. One that waited for its key has waited long enough."""
        next_to_go = self._forget_arrivals()
        if next_to_go is None or not self._arrivals or next_to_go < self._arrivals[0][0]:
            return 0.0
        return self._arrivals[0][2]

    def settle(self, slices: Sequence[RecordSlice]) -> int:
        """These records of this lane are settled for good. Answers how many bytes that frees."""
        # Leaving first: the ordering reads the keys, and dropping frees them.
        self.ordering.leave(slices)
        freed = 0
        for slice_ in slices:
            self.ledger.settle(slice_.run)
            freed += slice_.size
            records = slice_.stop - slice_.start
            self.unsettled_records -= records
            self.uncommitted += records
            slice_.chunk.drop(slice_.start, slice_.stop)
        self.unsettled_bytes -= freed
        return freed

    def would_be_replayed(self, *, keeps_acks_beyond: bool) -> int:
        """Records that were delivered and that the broker does not know to be settled."""
        unknown = self.uncommitted if keeps_acks_beyond else self.window.records - self.unsettled_records
        return self.in_flight + self.waiting + self.aside + unknown

    def _forget_arrivals(self) -> int | None:
        """Of what went already. Answers the position of the record that would go next."""
        next_to_go = self.ordering.first_position()
        while self._arrivals and (next_to_go is None or self._arrivals[0][1] < next_to_go):
            self._arrivals.popleft()
        return next_to_go


def _counted(slice_: RecordSlice, delivered_before: Sequence[int]) -> Iterator[RecordSlice]:
    """The same records, apart by how often the broker says that it delivered them before. That shows in `attempt`, and
    speaks against no record: the broker does not say how it ended."""
    at = slice_.start
    for count, same in groupby(delivered_before[slice_.start : slice_.stop]):
        stop = at + len(list(same))
        part = slice_.slice(at - slice_.start, stop - slice_.start)
        yield part.with_history(History(failures=count, possibly_processed=True)) if count else part
        at = stop

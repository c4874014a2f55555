"""The state of one lane, from its assignment to its end. Pure."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from itertools import groupby
from sys import maxsize

from sidecar.core.state.ledger import Ledger
from sidecar.core.state.ordering import make_ordering
from sidecar.core.state.record_slices import (
    POSSIBLY_PROCESSED,
    DeliveryHistory,
    RecordSlice,
    RedeliveryGroup,
    RedeliveryState,
)
from sidecar.core.state.window import Window
from sidecar.model.records import Assigned, Chunk, Commit, Lane, Order, Run
from sidecar.settings import WindowSettings

#: groups that stopped waiting and are kept all the same: pruning costs more
_PRUNE_SLACK = 1000


class LanePhase(Enum):
    """ACTIVE -> LEAVING (revoked, within its grace period) -> GONE; or ACTIVE -> GONE (lost, sought, closed).

    Only ACTIVE lanes are delivered. ACTIVE and LEAVING lanes accept settlements and are committed. For a GONE lane
    every settlement is stale and nothing is committed. `RecordTracker` alone changes the phase.
    """

    ACTIVE = "active"
    LEAVING = "leaving"
    GONE = "gone"


class LaneState:
    """One epoch of a lane. A lane that is assigned again, or sought, gets a new `LaneState`.

    `RecordTracker` alone changes the counts of records.
    """

    def __init__(self, assigned: Assigned, order: Order, window: WindowSettings, *, parked: bool) -> None:
        self.lane: Lane = assigned.lane
        self.topic_id = assigned.topic_id
        #: the lane belongs to the group's retry topic: its records were parked
        self.parked = parked
        self.phase = LanePhase.ACTIVE
        self.ledger = Ledger(assigned.start, assigned.settled)
        self.ordering = make_ordering(Order.NONE if parked else order)
        self.window = Window(window, assigned.start, assigned.reach)
        # Records that an earlier run of the group delivered lie before the reach; if it is not known, within one window
        # of the start. How those deliveries ended is not known, so these records are possibly processed: before this
        # position, and this many of them.
        known = assigned.start if assigned.first or assigned.chunks_tell else assigned.reach
        self._flag_before = assigned.start + window.span if known is None else known
        self._flag_records = window.records if known is None else maxsize
        # The first record is within the window however large the gap before it is.
        self._flag_first = known is None
        #: nothing more of the lane will be delivered
        self.stopped = False
        #: first and last position of each arrival and its time, to know how long fresh records have waited
        self._arrivals: deque[tuple[int, int, float]] = deque()
        self.in_flight = 0
        self.waiting = 0
        #: groups with some of these records that may be parked, and others that stopped waiting
        self.to_park: list[RedeliveryGroup] = []
        #: records that are being written to a side topic
        self.aside = 0
        #: fetched and not settled
        self.unsettled_records = 0
        self.unsettled_bytes = 0
        #: settled and not yet committed
        self.uncommitted = 0
        #: whether the broker was told to send nothing of this lane; None: not known, a seek may have left it paused
        self.paused: bool | None = None
        #: why the lane is paused, for people; empty while it is not
        self.held_by = ""

    def track(self, chunk: Chunk, now: float) -> list[RecordSlice]:
        """Records arrived. Returns those that are new and unsettled; the tracker says where they go."""
        slices = []
        new = bisect_left(chunk.positions, self.ledger.tracked)
        #: the index up to which records are flagged
        possibly_processed = min(bisect_left(chunk.positions, self._flag_before), new + self._flag_records)
        if self._flag_first and new < len(chunk.positions):
            possibly_processed = max(possibly_processed, new + 1)
            self._flag_first = False
        if 0 < self._flag_records <= len(chunk.positions) - new:
            self._flag_before = min(self._flag_before, chunk.positions[new + self._flag_records - 1] + 1)
        self._flag_records = max(0, self._flag_records - len(chunk.positions) + new)
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
            slices = [part for slice_ in slices for part in _with_failures(slice_, chunk.delivered_before)]
        self.window.track(chunk, now)
        if slices and not self.parked:
            self._forget_arrivals()
            self._arrivals.append((chunk.positions[slices[0].start], chunk.positions[-1], now))
        return slices

    def fresh_since(self) -> float:
        """When the record arrived that is delivered next; 0 for one that waited for its key: that was long enough."""
        next_to_go = self._forget_arrivals()
        if next_to_go is None or not self._arrivals or next_to_go < self._arrivals[0][0]:
            return 0.0
        return self._arrivals[0][2]

    def next_commit(self, *, with_beyond: bool, with_reach: bool) -> Commit | None:
        """The next commit; None if the broker has all of it. With what it can store: settled runs beyond the position,
        and the reach."""
        commit = self.ledger.committable(with_beyond=with_beyond)
        if not with_reach:
            return commit
        at = self.ledger.low_watermark
        reach = self._next_reach(at)
        due = reach != self.window.reach if self.stopped else self.window.short_of_reach()
        if commit is None and not due:
            return None
        return replace(commit or self.ledger.commit(with_beyond=with_beyond), reach=reach)

    def _next_reach(self, position: int) -> int:
        # What waited in a lane that leaves was dropped, so there it does not show. Acks beyond the position may not all
        # be stored, and then those records come again.
        in_hand = self.in_flight or self.waiting or self.aside or self.ledger.settled_beyond
        if self.stopped and self.phase is LanePhase.ACTIVE and not in_hand:
            # All that was delivered in this epoch is settled. But an earlier owner that was frozen may wake up and
            # deliver what it had fetched.
            return max(position, self._flag_before)
        # It never falls: if the answer to a commit is lost, deliveries go on by the one before.
        return max(position, self._flag_before, self.window.reach or 0, self.window.next_reach(position))

    def commit_sent(self, commit: Commit) -> None:
        """A commit is on its way; what is settled from now on needs another one."""
        self.ledger.commit_sent()
        if self.window.reach is None:
            # The broker may have it before we know. Until then no reach was stored, and nothing limited deliveries.
            self.window.reach = commit.reach

    def commit_done(self, commit: Commit, uncommitted: int) -> None:
        """The broker has stored a commit, and with it this many records that were `uncommitted` when it was sent."""
        self.ledger.commit_done(commit)
        self.window.commit(commit.position, commit.reach)
        self.uncommitted -= uncommitted

    def settle(self, slices: Sequence[RecordSlice]) -> int:
        """Settle these records of this lane: at least one. Returns how many bytes that frees."""
        # First the ordering, which reads the keys; dropping the frames frees them.
        self.ordering.leave(slices)
        freed = records = 0
        low = stop = slices[0].low
        for slice_ in slices:
            chunk = slice_.chunk
            if slice_.low != stop:
                self.ledger.settle(Run(low, stop))
                low = slice_.low
            # Neighbours are one run: workers mostly settle in the order of delivery.
            stop = chunk.positions[slice_.stop - 1] + 1
            freed += slice_.size
            records += slice_.records
            chunk.drop(slice_.start, slice_.stop)
        self.ledger.settle(Run(low, stop))
        self.unsettled_records -= records
        self.unsettled_bytes -= freed
        self.uncommitted += records
        return freed

    def note_to_park(self, group: RedeliveryGroup) -> None:
        """Records of this lane wait in this group for their time: they are parked if the window becomes full."""
        self.to_park.append(group)
        if len(self.to_park) > 2 * self.waiting + _PRUNE_SLACK:
            self.to_park = [group for group in self.to_park if group.state is RedeliveryState.WAITING]

    def would_be_replayed(self, *, keeps_acks_beyond: bool) -> int:
        """Records that were delivered and that the broker would send again after a crash."""
        settled = self.uncommitted if keeps_acks_beyond else self.window.records - self.unsettled_records
        return self.in_flight + self.waiting + self.aside + settled

    def _forget_arrivals(self) -> int | None:
        """Forget those that were delivered whole. Returns the position of the record that is delivered next."""
        next_to_go = self.ordering.first_position()
        while self._arrivals and (next_to_go is None or self._arrivals[0][1] < next_to_go):
            self._arrivals.popleft()
        return next_to_go


def _with_failures(slice_: RecordSlice, delivered_before: Sequence[int]) -> Iterator[RecordSlice]:
    """The same records, split by how often the broker says that it delivered them before. That counts in `attempt`,
    but not against a record: the broker does not say how those deliveries ended."""
    at = slice_.start
    for count, same in groupby(delivered_before[slice_.start : slice_.stop]):
        stop = at + len(list(same))
        part = slice_.slice(at - slice_.start, stop - slice_.start)
        yield part.with_history(DeliveryHistory(failures=count, possibly_processed=True)) if count else part
        at = stop

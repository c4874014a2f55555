"""Records that wait for their next delivery, and which of them are delivered next. Pure."""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

from sidecar.core.scheduling.selection import Batching, Capacity, Selection
from sidecar.core.state.lane import LaneState
from sidecar.core.state.record_slices import (
    FRESH,
    POSSIBLY_PROCESSED,
    RecordSlice,
    RedeliveryGroup,
    RedeliveryState,
    count,
    cut,
    size,
    sort_by_position,
)
from sidecar.model.records import ClosedBy, Order

#: groups that stopped waiting and are kept all the same: pruning costs more
_PRUNE_SLACK = 1000


class DueQueue:
    """Groups by the time at which they become due. Groups that stopped waiting elsewhere are skipped, and pruned when
    there are many."""

    def __init__(self) -> None:
        self._later: list[tuple[float, int, RedeliveryGroup]] = []
        self._now: deque[RedeliveryGroup] = deque()
        self._count = 0
        #: at this length most of them may have stopped waiting
        self._prune_at = _PRUNE_SLACK

    def put_back(self, group: RedeliveryGroup, now: float) -> None:
        if group.due <= now:
            self._now.append(group)
        else:
            self._count += 1
            heapq.heappush(self._later, (group.due, self._count, group))
            if len(self._later) > self._prune_at:
                self.prune()

    def prune(self) -> None:
        """Drop groups that stopped waiting, which may be due in an hour only. Not while a result of `due` is in use."""
        self._now = deque(group for group in self._now if group.state is RedeliveryState.WAITING)
        self._later = [entry for entry in self._later if entry[2].state is RedeliveryState.WAITING]
        heapq.heapify(self._later)
        self._prune_at = 2 * len(self._later) + _PRUNE_SLACK

    def next_due(self) -> float | None:
        """When the next group becomes due that is not due yet."""
        while self._later and self._later[0][2].state is not RedeliveryState.WAITING:
            heapq.heappop(self._later)
        return self._later[0][0] if self._later else None

    def due(self, now: float) -> "deque[RedeliveryGroup]":
        """Groups that are due, oldest first; the order may still forbid to deliver them. Between them, not first, may
        be groups that stopped waiting. The caller removes what it takes."""
        while self._later and self._later[0][0] <= now:
            self._now.append(heapq.heappop(self._later)[2])
        while self._now and self._now[0].state is not RedeliveryState.WAITING:
            self._now.popleft()
        return self._now

    def __iter__(self) -> Iterator[RedeliveryGroup]:
        """All groups that wait, in no particular order."""
        for group in self._now:
            if group.state is RedeliveryState.WAITING:
                yield group
        for _, _, group in self._later:
            if group.state is RedeliveryState.WAITING:
                yield group


class RetryQueue(DueQueue):
    """Redelivers groups: records that failed together go together, and with no others if the group is isolated."""

    def __init__(self, batching: Batching, order: Order, too_large: list[RedeliveryGroup]) -> None:
        super().__init__()
        self._batching = batching
        self._order = order
        #: gets records that are too large for the worker at hand, each in a group of its own
        self._too_large = too_large
        #: groups that the selection at hand uses up
        self._leased: list[RedeliveryGroup] = []

    def could_go(self, now: float, hard_bytes: int | None) -> bool:
        """Whether something can be delivered to a worker that takes this many bytes; None: to any worker."""
        due = self.due(now)
        if not due:
            # The usual case, once for each batch.
            return False
        waiting = (group for group in due if group.state is RedeliveryState.WAITING)
        ready = (go for group in waiting if (go := self._eligible(group.slices)[0]))
        return any(hard_bytes is None or _first_size(go) <= hard_bytes for go in ready)

    def select(self, capacity: Capacity, now: float) -> Selection | None:
        return self._select(capacity, now, None, probing=False)

    def probe(self, capacity: Capacity, now: float, last: LaneState | None) -> Selection | None:
        """A single record, preferably from another lane than `last`."""
        return self._select(capacity, now, last, probing=True)

    def _select(self, capacity: Capacity, now: float, last: LaneState | None, *, probing: bool) -> Selection | None:
        due = self.due(now)
        if not due:
            # The usual case, once for each batch.
            return None
        passed: list[RedeliveryGroup] = []
        self._leased = []
        selection: Selection | None = None
        while due and selection is None:
            group = due.popleft()
            if group.state is not RedeliveryState.WAITING:
                continue
            if probing:
                group.slices.sort(key=lambda slice_: slice_.lane is last)
            slices = self._takable(group, capacity, 1 if probing else None)
            if not slices:
                passed.append(group)
                continue
            if group.state is RedeliveryState.WAITING:
                # The next batch may come from this group again; the next probe should come from another one.
                (due if probing else passed).append(group)
            if not group.isolated and not probing:
                more = self._companions(slices, capacity, due)
                slices = sort_by_position(slices + more) if more else slices
            selection = Selection(
                slices,
                self._closed_by(group, slices),
                group.isolated,
                group.first_lease,
                group.uncounted_failures,
                tuple(self._leased),
                waited=True,
            )
        due.extendleft(reversed(passed))
        return selection

    def _closed_by(self, group: RedeliveryGroup, slices: list[RecordSlice]) -> ClosedBy:
        """RETRY for what failed, which workers may have to keep apart. What was only released is as good as new."""
        if any(slice_.history not in (FRESH, POSSIBLY_PROCESSED) for slice_ in slices):
            return ClosedBy.RETRY
        if not group.first_lease:
            # A record that waits here for its first delivery is a large one.
            return ClosedBy.BYTES
        if group.isolated or group.uncounted_failures:
            return ClosedBy.RETRY
        return ClosedBy.RECORDS if count(slices) >= self._batching.records else ClosedBy.LINGER

    def _companions(
        self, slices: list[RecordSlice], capacity: Capacity, due: Iterable[RedeliveryGroup]
    ) -> list[RecordSlice]:
        """More returned records for the same batch."""
        topic = slices[0].topic
        records, bytes_ = count(slices), size(slices)
        most = min(self._batching.records, capacity.records)
        more: list[RecordSlice] = []
        # Among as many groups as could fill the batch: there may be any number that cannot join it.
        for group in islice(due, self._batching.records):
            if records >= most or bytes_ >= capacity.bytes or self._order is Order.LANE:
                break
            if group.state is not RedeliveryState.WAITING or group.isolated:
                continue
            if group.slices[0].topic != topic:
                continue
            taken = self._takable(group, Capacity(capacity.bytes - bytes_, 0), most - records)
            more += taken
            records += count(taken)
            bytes_ += size(taken)
        return more

    def _takable(self, group: RedeliveryGroup, capacity: Capacity, most: int | None) -> list[RecordSlice]:
        """What can be delivered of a group now. If that is all the group is LEASED, otherwise it keeps the rest."""
        while True:
            go, stay = self._eligible(group.slices)
            fits = min(most or self._batching.records, capacity.records, _fitting(go, capacity.bytes))
            if fits or not go or not capacity.hard_bytes:
                break
            if _first_size(go) <= capacity.hard_bytes:
                fits = 1
                break
            alone = self._split_first(group, go, stay)
            self._too_large.append(alone)
            if alone is group:
                return []
        go, rest = cut(go, fits)
        if not go:
            return []
        if not stay and not rest:
            group.state = RedeliveryState.LEASED
            self._leased.append(group)
        else:
            group.slices = sort_by_position(rest + stay)
        return go

    def _split_first(self, group: RedeliveryGroup, go: list[RecordSlice], stay: list[RecordSlice]) -> RedeliveryGroup:
        """Move the first of these records to a group of its own, so that its size holds up no other."""
        if group.records == 1:
            return group
        first, rest = cut(go, 1)
        group.slices = sort_by_position(rest + stay)
        alone = RedeliveryGroup(first, 0.0, True, group.first_lease, group.uncounted_failures, group.expired_lease)
        if alone.expired_lease is not None:
            alone.expired_lease.redeliveries.append(alone)
        self.put_back(alone, 0.0)
        return alone

    def _eligible(self, slices: list[RecordSlice]) -> tuple[list[RecordSlice], list[RecordSlice]]:
        topic = slices[0].topic
        if self._order is Order.NONE and all(_may_go(slice_, topic) for slice_ in slices):
            return slices, []
        go: list[RecordSlice] = []
        stay: list[RecordSlice] = []
        by_lane: dict[LaneState, list[RecordSlice]] = {}
        for slice_ in slices:
            if _may_go(slice_, topic):
                by_lane.setdefault(slice_.lane, []).append(slice_)
            else:
                stay.append(slice_)
        for lane, mine in by_lane.items():
            may, must_wait = lane.ordering.eligible(mine)
            go += may
            stay += must_wait
        return go, stay


def _may_go(slice_: RecordSlice, topic: tuple[str, str]) -> bool:
    """A batch has one topic. Parked records are held to the window of their lane here, because they are never fresh."""
    if slice_.topic != topic:
        return False
    return not slice_.lane.parked or slice_.chunk.positions[slice_.stop - 1] < slice_.lane.window.delivery_limit()


def _first_size(slices: list[RecordSlice]) -> int:
    first = slices[0]
    return first.chunk.size(first.start, first.start + 1)


def _fitting(slices: list[RecordSlice], budget: int) -> int:
    """How many of these records fit into this many bytes."""
    fits = 0
    for slice_ in slices:
        if slice_.size <= budget:
            fits += slice_.records
            budget -= slice_.size
            continue
        for single in slice_.singles():
            if single.size > budget:
                return fits
            fits += 1
            budget -= single.size
    return fits

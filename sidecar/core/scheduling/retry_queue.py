"""Records that wait for their next delivery, and which of them go next. Pure."""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator

from sidecar.core.scheduling.selection import Batching, Capacity, Selection
from sidecar.core.state.lane import LaneState
from sidecar.core.state.record_slices import (
    DOUBTFUL,
    FRESH,
    RecordSlice,
    RedeliveryGroup,
    RedeliveryState,
    count,
    cut,
    size,
    sort_by_position,
)
from sidecar.model.records import ClosedBy, Order

#: parcels that stopped waiting and may be kept all the same
_FEW = 1000


class _DueQueue:
    """Parcels by the time at which they may go. Those that stopped waiting are skipped when met, and most of them are
    let go before."""

    def __init__(self) -> None:
        self._later: list[tuple[float, int, RedeliveryGroup]] = []
        self._now: deque[RedeliveryGroup] = deque()
        self._count = 0
        #: so many that most of them may have stopped waiting
        self._prune_at = _FEW

    def add(self, parcel: RedeliveryGroup, now: float) -> None:
        if parcel.due <= now:
            self._now.append(parcel)
        else:
            self._count += 1
            heapq.heappush(self._later, (parcel.due, self._count, parcel))
            if len(self._later) > self._prune_at:
                self.prune()

    def prune(self) -> None:
        """Let go of those that stopped waiting: they may be due in an hour. Not while what `due` gave is in use."""
        self._now = deque(parcel for parcel in self._now if parcel.state is RedeliveryState.WAITING)
        self._later = [entry for entry in self._later if entry[2].state is RedeliveryState.WAITING]
        heapq.heapify(self._later)
        self._prune_at = 2 * len(self._later) + _FEW

    def next_due(self) -> float | None:
        """When the next parcel becomes due that is not due yet."""
        while self._later and self._later[0][2].state is not RedeliveryState.WAITING:
            heapq.heappop(self._later)
        return self._later[0][0] if self._later else None

    def due(self, now: float) -> "deque[RedeliveryGroup]":
        """Parcels that may go as far as time is concerned, oldest first. The caller removes what it takes."""
        while self._later and self._later[0][0] <= now:
            self._now.append(heapq.heappop(self._later)[2])
        while self._now and self._now[0].state is not RedeliveryState.WAITING:
            self._now.popleft()
        return self._now

    def __iter__(self) -> Iterator[RedeliveryGroup]:
        """All that wait, in no particular order."""
        for parcel in self._now:
            if parcel.state is RedeliveryState.WAITING:
                yield parcel
        for _, _, parcel in self._later:
            if parcel.state is RedeliveryState.WAITING:
                yield parcel


class RetryQueue:
    """What failed together goes together, and by itself if it must."""

    def __init__(self, batching: Batching, order: Order, too_large: list[RedeliveryGroup]) -> None:
        self._batching = batching
        self._order = order
        #: records that were too large for the worker at hand, each in a parcel of its own
        self._too_large = too_large
        self._returns = _DueQueue()
        #: parcels that the pick at hand has used up
        self._leased: list[RedeliveryGroup] = []

    def __iter__(self) -> Iterator[RedeliveryGroup]:
        """All that wait, in no particular order."""
        return iter(self._returns)

    def put_back(self, parcel: RedeliveryGroup, now: float) -> None:
        self._returns.add(parcel, now)

    def prune(self) -> None:
        """Let go of parcels that stopped waiting."""
        self._returns.prune()

    def next_due(self) -> float | None:
        """When the next parcel becomes due that is not due yet."""
        return self._returns.next_due()

    def any_due(self, now: float) -> bool:
        """Whether time lets something go; order may not."""
        return bool(self._returns.due(now))

    def could_go(self, now: float, hard_bytes: int | None) -> bool:
        """Whether something can go to a worker that takes so many bytes, or to one with enough room."""
        due = self._returns.due(now)
        if not due:
            # The usual case, once for each batch.
            return False
        waiting = (parcel for parcel in due if parcel.state is RedeliveryState.WAITING)
        ready = (go for parcel in waiting if (go := self._eligible(parcel.spans)[0]))
        return any(hard_bytes is None or _first_size(go) <= hard_bytes for go in ready)

    def pick(self, room: Capacity, now: float) -> Selection | None:
        return self._pick(room, now, None, probing=False)

    def probe(self, room: Capacity, now: float, last: LaneState | None) -> Selection | None:
        """A single record, from another lane than the last one if there is one."""
        return self._pick(room, now, last, probing=True)

    def _pick(self, room: Capacity, now: float, last: LaneState | None, *, probing: bool) -> Selection | None:
        due = self._returns.due(now)
        if not due:
            # The usual case, once for each batch.
            return None
        passed: list[RedeliveryGroup] = []
        self._leased = []
        pick: Selection | None = None
        while due and pick is None:
            parcel = due.popleft()
            if parcel.state is not RedeliveryState.WAITING:
                continue
            if probing:
                parcel.spans.sort(key=lambda span: span.lane is last)
            spans = self._takable(parcel, room, 1 if probing else None)
            if not spans:
                passed.append(parcel)
                continue
            if parcel.state is RedeliveryState.WAITING:
                # The next batch may come from here again, the next probe should come from elsewhere.
                (due if probing else passed).append(parcel)
            if not parcel.apart and not probing:
                company = self._company(spans, room, due)
                spans = sort_by_position(spans + company) if company else spans
            # A first delivery only waited here because it is large.
            first_time = not parcel.origin and spans[0].history in (FRESH, DOUBTFUL)
            why = ClosedBy.BYTES if first_time else ClosedBy.RETRY
            pick = Selection(spans, why, parcel.apart, parcel.origin, parcel.uncounted_failures, tuple(self._leased))
        due.extendleft(reversed(passed))
        return pick

    def _company(self, spans: list[RecordSlice], room: Capacity, due: Iterable[RedeliveryGroup]) -> list[RecordSlice]:
        """More returned records that may travel with these."""
        topic = spans[0].chunk.shown.topic
        records, bytes_ = count(spans), size(spans)
        more: list[RecordSlice] = []
        for parcel in due:
            if records >= self._batching.records or bytes_ >= room.bytes or self._order is Order.LANE:
                break
            if parcel.state is not RedeliveryState.WAITING or parcel.apart:
                continue
            if parcel.spans[0].chunk.shown.topic != topic:
                continue
            taken = self._takable(parcel, Capacity(room.bytes - bytes_, 0), self._batching.records - records)
            more += taken
            records += count(taken)
            bytes_ += size(taken)
        return more

    def _takable(self, parcel: RedeliveryGroup, room: Capacity, most: int | None) -> list[RecordSlice]:
        """What may go of a parcel now. If that is all of it the parcel is LEASED, otherwise it keeps the rest."""
        while True:
            go, stay = self._eligible(parcel.spans)
            fits = min(most or self._batching.records, _fitting(go, room.bytes))
            if fits or not go or not room.hard_bytes:
                break
            if _first_size(go) <= room.hard_bytes:
                fits = 1
                break
            alone = self._first_apart(parcel, go, stay)
            self._too_large.append(alone)
            if alone is parcel:
                return []
        go, rest = cut(go, fits)
        if not go:
            return []
        if not stay and not rest:
            parcel.state = RedeliveryState.LEASED
            self._leased.append(parcel)
        else:
            parcel.spans = sort_by_position(rest + stay)
        for span in go:
            span.lane.waiting -= span.records
        return go

    def _first_apart(self, parcel: RedeliveryGroup, go: list[RecordSlice], stay: list[RecordSlice]) -> RedeliveryGroup:
        """The first of these records in a parcel of its own, so that what is said of it holds for no other."""
        if parcel.records == 1:
            return parcel
        first, rest = cut(go, 1)
        parcel.spans = sort_by_position(rest + stay)
        alone = RedeliveryGroup(first, 0.0, True, parcel.origin, parcel.uncounted_failures, parcel.expired_lease)
        if alone.expired_lease is not None:
            alone.expired_lease.redeliveries.append(alone)
        self._returns.add(alone, 0.0)
        return alone

    def _eligible(self, spans: list[RecordSlice]) -> tuple[list[RecordSlice], list[RecordSlice]]:
        topic = spans[0].chunk.shown.topic
        if self._order is Order.NONE and all(_may_go(span, topic) for span in spans):
            return spans, []
        go: list[RecordSlice] = []
        stay: list[RecordSlice] = []
        by_lane: dict[LaneState, list[RecordSlice]] = {}
        for span in spans:
            if _may_go(span, topic):
                by_lane.setdefault(span.lane, []).append(span)
            else:
                stay.append(span)
        for lane, mine in by_lane.items():
            may, must_wait = lane.ordering.eligible(mine)
            go += may
            stay += must_wait
        return go, stay


def _may_go(span: RecordSlice, topic: str) -> bool:
    """A batch is of one topic. Records of a retry lane were not held to its window when they arrived."""
    if span.chunk.shown.topic != topic:
        return False
    return not span.lane.parked or span.chunk.positions[span.stop - 1] < span.lane.window.before()


def _first_size(spans: list[RecordSlice]) -> int:
    first = spans[0]
    return first.chunk.size(first.start, first.start + 1)


def _fitting(spans: list[RecordSlice], room: int) -> int:
    """How many of the records fit into so many bytes."""
    fits = 0
    for span in spans:
        if span.size <= room:
            fits += span.records
            room -= span.size
            continue
        for single in span.singles():
            if single.size > room:
                return fits
            fits += 1
            room -= single.size
    return fits

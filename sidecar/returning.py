"""Records that came back, and which of them go next. Pure."""

from collections.abc import Iterable, Iterator

from sidecar.batching import Batching
from sidecar.lanes import LaneState
from sidecar.model import ClosedBy, Order
from sidecar.picks import Pick, Room
from sidecar.retry import in_order
from sidecar.returns import Returns
from sidecar.spans import DOUBTFUL, FRESH, Parcel, ParcelState, Span, count, cut, size


class Returning:
    """What failed together goes together, and by itself if it must."""

    def __init__(self, batching: Batching, order: Order, too_large: list[Parcel]) -> None:
        self._batching = batching
        self._order = order
        #: records that were too large for the worker at hand, each in a parcel of its own
        self._too_large = too_large
        self._returns = Returns()
        #: parcels that the pick at hand has used up
        self._leased: list[Parcel] = []

    def __iter__(self) -> Iterator[Parcel]:
        """All that wait, in no particular order."""
        return iter(self._returns)

    def put_back(self, parcel: Parcel, now: float) -> None:
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
        waiting = (parcel for parcel in due if parcel.state is ParcelState.WAITING)
        ready = (go for parcel in waiting if (go := self._eligible(parcel.spans)[0]))
        return any(hard_bytes is None or _first_size(go) <= hard_bytes for go in ready)

    def pick(self, room: Room, now: float) -> Pick | None:
        return self._pick(room, now, None, probing=False)

    def probe(self, room: Room, now: float, last: LaneState | None) -> Pick | None:
        """A single record, from another lane than the last one if there is one."""
        return self._pick(room, now, last, probing=True)

    def _pick(self, room: Room, now: float, last: LaneState | None, *, probing: bool) -> Pick | None:
        due = self._returns.due(now)
        if not due:
            # The usual case, once for each batch.
            return None
        passed: list[Parcel] = []
        self._leased = []
        pick: Pick | None = None
        while due and pick is None:
            parcel = due.popleft()
            if parcel.state is not ParcelState.WAITING:
                continue
            if probing:
                parcel.spans.sort(key=lambda span: span.lane is last)
            spans = self._takable(parcel, room, 1 if probing else None)
            if not spans:
                passed.append(parcel)
                continue
            if parcel.state is ParcelState.WAITING:
                # The next batch may come from here again, the next probe should come from elsewhere.
                (due if probing else passed).append(parcel)
            if not parcel.apart and not probing:
                company = self._company(spans, room, due)
                spans = in_order(spans + company) if company else spans
            # A first delivery only waited here because it is large.
            first_time = not parcel.origin and spans[0].history in (FRESH, DOUBTFUL)
            why = ClosedBy.BYTES if first_time else ClosedBy.RETRY
            pick = Pick(spans, why, parcel.apart, parcel.origin, parcel.setbacks, tuple(self._leased))
        due.extendleft(reversed(passed))
        return pick

    def _company(self, spans: list[Span], room: Room, due: Iterable[Parcel]) -> list[Span]:
        """More returned records that may travel with these."""
        topic = spans[0].chunk.shown.topic
        records, bytes_ = count(spans), size(spans)
        more: list[Span] = []
        for parcel in due:
            if records >= self._batching.records or bytes_ >= room.bytes or self._order is Order.LANE:
                break
            if parcel.state is not ParcelState.WAITING or parcel.apart:
                continue
            if parcel.spans[0].chunk.shown.topic != topic:
                continue
            taken = self._takable(parcel, Room(room.bytes - bytes_, 0), self._batching.records - records)
            more += taken
            records += count(taken)
            bytes_ += size(taken)
        return more

    def _takable(self, parcel: Parcel, room: Room, most: int | None) -> list[Span]:
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
            parcel.state = ParcelState.LEASED
            self._leased.append(parcel)
        else:
            parcel.spans = in_order(rest + stay)
        for span in go:
            span.lane.waiting -= span.records
        return go

    def _first_apart(self, parcel: Parcel, go: list[Span], stay: list[Span]) -> Parcel:
        """The first of these records in a parcel of its own, so that what is said of it holds for no other."""
        if parcel.records == 1:
            return parcel
        first, rest = cut(go, 1)
        parcel.spans = in_order(rest + stay)
        alone = Parcel(first, 0.0, True, parcel.origin, parcel.setbacks, parcel.ancestor)
        if alone.ancestor is not None:
            alone.ancestor.heirs.append(alone)
        self._returns.add(alone, 0.0)
        return alone

    def _eligible(self, spans: list[Span]) -> tuple[list[Span], list[Span]]:
        topic = spans[0].chunk.shown.topic
        if self._order is Order.NONE and all(_may_go(span, topic) for span in spans):
            return spans, []
        go: list[Span] = []
        stay: list[Span] = []
        by_lane: dict[LaneState, list[Span]] = {}
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


def _may_go(span: Span, topic: str) -> bool:
    """A batch is of one topic. Records of a retry lane were not held to its window when they arrived."""
    if span.chunk.shown.topic != topic:
        return False
    return not span.lane.parked or span.chunk.positions[span.stop - 1] < span.lane.window.before()


def _first_size(spans: list[Span]) -> int:
    first = spans[0]
    return first.chunk.size(first.start, first.start + 1)


def _fitting(spans: list[Span], room: int) -> int:
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

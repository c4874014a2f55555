"""Which records go into the next batch. Pure: lanes and returned parcels in, spans out.

Fair to lanes: lanes with something ready stand in a ring, and each batch starts with the next one. Returned
records and fresh ones take turns, so that neither starves the other.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from sidecar.batching import Batching
from sidecar.lanes import LanePhase, LaneState
from sidecar.model import ClosedBy, Order
from sidecar.retry import in_order
from sidecar.returns import Returns
from sidecar.spans import DOUBTFUL, FRESH, Parcel, ParcelState, Span, count, cut, size


class Room(NamedTuple):
    """What the worker that waits can take."""

    #: most bytes of a batch; a single record may exceed it
    bytes: int
    #: most bytes that its connection takes at all; 0: no record beyond `bytes` is wanted
    hard_bytes: int


class Pick(NamedTuple):
    """Records that go out together."""

    spans: list[Span]
    closed_by: ClosedBy
    apart: bool = False
    origin: int = 0
    setbacks: int = 0
    #: parcels that wait no more
    parcels: tuple[Parcel, ...] = ()
    #: the session that gets it has nothing else in hand, and gets nothing else meanwhile
    solitary: bool = False


class Dispatcher:
    def __init__(self, batching: Batching, order: Order) -> None:
        self._batching = batching
        self._order = order
        self.returns = Returns()
        #: of those that came back, the ones whose next delivery must tell whether they kill their worker
        self._suspects = Returns()
        #: lanes that may have fresh records to give, in turn
        self._ring: dict[LaneState, None] = {}
        self._returns_turn = True
        #: records met by `pick` that were too large for the worker at hand
        self.too_large: list[Parcel] = []
        self._leased: list[Parcel] = []
        #: the lane of the last returned record that was a probe
        self._probed: LaneState | None = None

    def wake(self, lane: LaneState) -> None:
        """The lane may have something to give: records arrived or were settled, or its window moved."""
        if lane.phase is LanePhase.ACTIVE and lane not in self._ring and lane.ordering.fresh_records:
            self._ring[lane] = None

    def put_back(self, parcel: Parcel, now: float) -> None:
        """Records came back, and wait."""
        (self._suspects if parcel.suspected else self.returns).add(parcel, now)

    def waiting(self) -> Iterator[Parcel]:
        """All that came back and wait, in no particular order."""
        return chain(self.returns, self._suspects)

    def next_due(self) -> float | None:
        """When the next parcel becomes due that is not due yet."""
        return min(
            (due for due in (self.returns.next_due(), self._suspects.next_due()) if due is not None), default=None
        )

    def forget(self, lane: LaneState) -> list[Parcel]:
        """The lane goes: nothing of it is delivered any more. Answers the parcels that shrank."""
        self._ring.pop(lane, None)
        lane.ordering.clear()
        touched = []
        for parcel in self.waiting():
            left = [span for span in parcel.spans if span.lane is not lane]
            if len(left) < len(parcel.spans):
                parcel.spans = left
                if not left:
                    parcel.state = ParcelState.GONE
                touched.append(parcel)
        return touched

    def idle(self, now: float) -> bool:
        """Nothing can be picked now, whoever asks."""
        return not self._ring and not self.returns.due(now) and not self._suspects.due(now)

    def pick(self, room: Room, now: float) -> Pick | None:
        """The next batch for a worker with this room; None if there is nothing for it now.

        What it answers is out: fresh records left the ring, parcels are LEASED.
        """
        self.too_large = []
        first, second = (self._returned, self._fresh) if self._returns_turn else (self._fresh, self._returned)
        pick = first(room, now)
        if pick is None:
            return second(room, now)
        self._returns_turn = not self._returns_turn
        return pick

    def has_suspect(self, now: float) -> bool:
        """Whether `suspect` has something to give."""
        due = self._suspects.due(now)
        return bool(due) and any(p.state is ParcelState.WAITING and self._eligible(p.spans)[0] for p in due)

    def suspect(self, room: Room, now: float) -> Pick | None:
        """A record that was there when two workers died."""
        self.too_large = []
        return self._returned(room, now, self._suspects)

    def probe(self, room: Room, now: float) -> Pick | None:
        """A single record, each time from the next lane that has one."""
        self.too_large = []
        for lane in sorted(self._ring, key=lambda lane: lane is self._probed):
            spans = self._take(lane, 1, room)
            if spans:
                self._probed = lane
                return Pick(spans, ClosedBy.PROBE, apart=True)
        pick = self._returned(room, now, probing=True) or self._returned(room, now, self._suspects, probing=True)
        if pick is None:
            return None
        self._probed = pick.spans[0].lane
        return pick._replace(closed_by=ClosedBy.PROBE, apart=True)

    def linger_ends(self, now: float) -> float | None:
        """When the next fresh records that wait for company go without it."""
        if self._batching.linger == 0.0:
            return None
        ends = (_oldest(lanes) + self._batching.linger for lanes in self._by_topic().values())
        return min((end for end in ends if end > now), default=None)

    def _fresh(self, room: Room, now: float) -> Pick | None:
        batching = self._batching
        waiting_topics = self._lingering(now) if batching.linger else ()
        for first in [*self._ring]:
            if first.lane.topic in waiting_topics:
                continue
            spans = self._take(first, batching.records, room)
            if not spans:
                continue
            records, bytes_ = count(spans), size(spans)
            if self._order is not Order.LANE:
                for lane in [*self._ring]:
                    if records >= batching.records or bytes_ >= room.bytes:
                        break
                    if lane.lane.topic == first.lane.topic and lane is not first:
                        more = self._take(lane, batching.records - records, room, bytes_)
                        spans += more
                        records += count(more)
                        bytes_ += size(more)
            if records >= batching.records:
                return Pick(spans, ClosedBy.RECORDS)
            return Pick(spans, ClosedBy.BYTES if self._has_more(first) else ClosedBy.LINGER)
        return None

    def _has_more(self, first: LaneState) -> bool:
        """Whether there is more that could have gone into a batch which began with this lane."""
        if self._order is Order.LANE:
            return first in self._ring
        return any(lane.lane.topic == first.lane.topic for lane in self._ring)

    def _take(self, lane: LaneState, records: int, room: Room, used: int = 0) -> list[Span]:
        """Fresh records of a lane, which goes to the end of the ring, or out of it when it has no more."""
        while True:
            spans = lane.ordering.take(records, room.bytes - used, lane.window.before(), force=not used)
            if used and not spans:
                # Beside other lanes it found no room: it keeps its place, or it would never come first.
                return spans
            self._ring.pop(lane, None)
            if spans and lane.ordering.available():
                self._ring[lane] = None
            if used or size(spans) <= room.hard_bytes:
                return spans
            self._set_aside(spans)

    def _set_aside(self, spans: list[Span]) -> None:
        parcel = Parcel(spans, 0.0, apart=True)
        for span in spans:
            span.lane.waiting += span.records
        self.returns.add(parcel, 0.0)
        self.too_large.append(parcel)

    def _returned(
        self, room: Room, now: float, returns: Returns | None = None, *, probing: bool = False
    ) -> Pick | None:
        due = (self.returns if returns is None else returns).due(now)
        passed: list[Parcel] = []
        self._leased = []
        pick: Pick | None = None
        while due and pick is None:
            parcel = due.popleft()
            if parcel.state is not ParcelState.WAITING:
                continue
            if probing:
                parcel.spans.sort(key=lambda span: span.lane is self._probed)
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
            self.too_large.append(alone)
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
        self.returns.add(alone, 0.0)
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

    def _by_topic(self) -> dict[str, list[LaneState]]:
        out: dict[str, list[LaneState]] = {}
        for lane in self._ring:
            if lane.ordering.available():
                out.setdefault(lane.lane.topic, []).append(lane)
        return out

    def _lingering(self, now: float) -> set[str]:
        """Topics whose ready records should wait for more."""
        return {
            topic
            for topic, lanes in self._by_topic().items()
            if self._batching.closed_by(
                sum(lane.ordering.fresh_records for lane in lanes),
                sum(lane.ordering.fresh_bytes for lane in lanes),
                _oldest(lanes),
                now,
            )
            is None
        }


def _oldest(lanes: Iterable[LaneState]) -> float:
    return min(lane.fresh_since() for lane in lanes)


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

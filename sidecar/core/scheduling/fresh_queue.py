"""Lanes with fresh records, served in turn. Pure."""

from collections.abc import Iterable

from sidecar.core.scheduling.selection import Batching, Capacity, Selection
from sidecar.core.state.lane import LanePhase, LaneState
from sidecar.core.state.record_slices import RecordSlice, count, size
from sidecar.model.records import ClosedBy, Order


class FreshQueue:
    """Round robin: each batch starts with the lane that has waited longest."""

    def __init__(self, batching: Batching, order: Order) -> None:
        self._batching = batching
        self._order = order
        #: lanes that may have something to deliver, longest waiting first
        self._ready: dict[LaneState, None] = {}
        #: single records that are too large for the worker at hand. They are not fresh any more: whoever selects takes
        #: them from here.
        self.too_large: list[list[RecordSlice]] = []

    def __bool__(self) -> bool:
        """Whether any lane may have something to deliver."""
        return bool(self._ready)

    def wake(self, lane: LaneState) -> None:
        """The lane may have something to deliver: records arrived or were settled, or its window moved."""
        if lane.phase is LanePhase.ACTIVE and lane not in self._ready and lane.ordering.fresh_records:
            self._ready[lane] = None

    def forget(self, lane: LaneState) -> None:
        """The lane is not delivered any more."""
        self._ready.pop(lane, None)
        lane.ordering.clear()

    def probe(self, capacity: Capacity, last: LaneState | None) -> list[RecordSlice]:
        """A single record, preferably from another lane than `last`."""
        for lane in sorted(self._ready, key=lambda lane: lane is last):
            slices = self._take(lane, 1, capacity)
            if slices:
                return slices
        return []

    def linger_ends(self, now: float) -> float | None:
        """When the next topic stops waiting for more records to fill a batch."""
        if self._batching.linger == 0.0:
            return None
        ends = (_oldest(lanes) + self._batching.linger for lanes in self._by_topic().values())
        return min((end for end in ends if end > now), default=None)

    def select(self, capacity: Capacity, now: float) -> Selection | None:
        waiting_topics = self._lingering(now, capacity.records) if self._batching.linger else ()
        if self._ready and not waiting_topics:
            # The usual case: the lane whose turn it is has something. The others are not looked at.
            selection = self._select_from(next(iter(self._ready)), capacity)
            if selection is not None:
                return selection
        for first in [*self._ready]:
            if first.lane.topic not in waiting_topics:
                selection = self._select_from(first, capacity)
                if selection is not None:
                    return selection
        return None

    def _select_from(self, first: LaneState, capacity: Capacity) -> Selection | None:
        """A batch that starts with this lane."""
        most = min(self._batching.records, capacity.records)
        slices = self._take(first, most, capacity)
        if not slices:
            return None
        records, bytes_ = count(slices), size(slices)
        if records < most and self._order is not Order.LANE:
            for lane in [*self._ready]:
                if records >= most or bytes_ >= capacity.bytes:
                    break
                if lane.lane.topic == first.lane.topic and lane is not first:
                    more = self._take(lane, most - records, capacity, bytes_)
                    slices += more
                    records += count(more)
                    bytes_ += size(more)
        if records >= most:
            return Selection(slices, ClosedBy.RECORDS)
        return Selection(slices, ClosedBy.BYTES if self._has_more(first) else ClosedBy.LINGER)

    def _has_more(self, first: LaneState) -> bool:
        """Whether more could have gone into a batch that starts with this lane."""
        if self._order is Order.LANE:
            return first in self._ready
        return any(lane.lane.topic == first.lane.topic for lane in self._ready)

    def _take(self, lane: LaneState, records: int, capacity: Capacity, used: int = 0) -> list[RecordSlice]:
        """Fresh records of a lane, which then waits for its next turn, unless it has no more."""
        while True:
            slices = lane.ordering.take(records, capacity.bytes - used, lane.window.delivery_limit(), force=not used)
            if used and not slices:
                # No room left beside other lanes: it keeps its turn, otherwise it would never come first.
                return slices
            self._ready.pop(lane, None)
            if slices and lane.ordering.available():
                self._ready[lane] = None
            if used or size(slices) <= capacity.hard_bytes:
                return slices
            self.too_large.append(slices)

    def _by_topic(self) -> dict[str, list[LaneState]]:
        out: dict[str, list[LaneState]] = {}
        for lane in self._ready:
            if lane.ordering.available():
                out.setdefault(lane.lane.topic, []).append(lane)
        return out

    def _lingering(self, now: float, most: int) -> set[str]:
        """Topics whose ready records should wait for more, for a worker that takes this many."""
        return {
            topic
            for topic, lanes in self._by_topic().items()
            if self._batching.closed_by(
                sum(lane.ordering.fresh_records for lane in lanes),
                sum(lane.ordering.fresh_bytes for lane in lanes),
                _oldest(lanes),
                now,
                most,
            )
            is None
        }


def _oldest(lanes: Iterable[LaneState]) -> float:
    return min(lane.fresh_since() for lane in lanes)

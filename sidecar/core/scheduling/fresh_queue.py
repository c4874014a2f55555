"""Lanes with fresh records, in turn. Pure.

Fair to lanes: those with something ready stand in a ring, and each batch starts with the next one.
"""

from collections.abc import Callable, Iterable

from sidecar.core.scheduling.selection import Batching, Capacity, Selection
from sidecar.core.state.lane import LanePhase, LaneState
from sidecar.core.state.record_slices import RecordSlice, count, size
from sidecar.model.records import ClosedBy, Order


class FreshQueue:
    """`too_large` is called with a record that the worker at hand cannot take."""

    def __init__(self, batching: Batching, order: Order, too_large: Callable[[list[RecordSlice]], None]) -> None:
        self._batching = batching
        self._order = order
        self._too_large = too_large
        self._ring: dict[LaneState, None] = {}

    def __bool__(self) -> bool:
        """Whether any lane may have something to give."""
        return bool(self._ring)

    def wake(self, lane: LaneState) -> None:
        """The lane may have something to give: records arrived or were settled, or its window moved."""
        if lane.phase is LanePhase.ACTIVE and lane not in self._ring and lane.ordering.fresh_records:
            self._ring[lane] = None

    def forget(self, lane: LaneState) -> None:
        self._ring.pop(lane, None)
        lane.ordering.clear()

    def probe(self, capacity: Capacity, last: LaneState | None) -> list[RecordSlice]:
        """A single record, from another lane than the last one if there is one."""
        for lane in sorted(self._ring, key=lambda lane: lane is last):
            slices = self._take(lane, 1, capacity)
            if slices:
                return slices
        return []

    def linger_ends(self, now: float) -> float | None:
        """When the next fresh records that wait for company go without it."""
        if self._batching.linger == 0.0:
            return None
        ends = (_oldest(lanes) + self._batching.linger for lanes in self._by_topic().values())
        return min((end for end in ends if end > now), default=None)

    def select(self, capacity: Capacity, now: float) -> Selection | None:
        waiting_topics = self._lingering(now) if self._batching.linger else ()
        if self._ring and not waiting_topics:
            # The usual case: the lane whose turn it is has something. Others are not even looked at.
            selection = self._select_from(next(iter(self._ring)), capacity)
            if selection is not None:
                return selection
        for first in [*self._ring]:
            if first.lane.topic not in waiting_topics:
                selection = self._select_from(first, capacity)
                if selection is not None:
                    return selection
        return None

    def _select_from(self, first: LaneState, capacity: Capacity) -> Selection | None:
        """A batch that begins with this lane."""
        most = self._batching.records
        slices = self._take(first, most, capacity)
        if not slices:
            return None
        records, bytes_ = count(slices), size(slices)
        if records < most and self._order is not Order.LANE:
            for lane in [*self._ring]:
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
        """Whether there is more that could have gone into a batch which began with this lane."""
        if self._order is Order.LANE:
            return first in self._ring
        return any(lane.lane.topic == first.lane.topic for lane in self._ring)

    def _take(self, lane: LaneState, records: int, capacity: Capacity, used: int = 0) -> list[RecordSlice]:
        """Fresh records of a lane, which goes to the end of the ring, or out of it when it has no more."""
        while True:
            slices = lane.ordering.take(records, capacity.bytes - used, lane.window.before(), force=not used)
            if used and not slices:
                # Beside other lanes it found no room: it keeps its place, or it would never come first.
                return slices
            self._ring.pop(lane, None)
            if slices and lane.ordering.available():
                self._ring[lane] = None
            if used or size(slices) <= capacity.hard_bytes:
                return slices
            self._too_large(slices)

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

"""Which records go into the next batch. Pure: lanes and returned parcels in, spans out.

Returned records and fresh ones take turns, so that neither starves the other.
"""

from collections.abc import Collection, Iterator
from itertools import chain

from sidecar.core.scheduling.fresh_queue import FreshQueue
from sidecar.core.scheduling.retry_queue import RetryQueue
from sidecar.core.scheduling.selection import Batching, Capacity, Selection
from sidecar.core.state.lane import LaneState
from sidecar.core.state.record_slices import RecordSlice, RedeliveryGroup, RedeliveryState
from sidecar.model.records import ClosedBy, Order


class Dispatcher:
    def __init__(self, batching: Batching, order: Order) -> None:
        #: records met by the latest pick that were too large for the worker at hand
        self.too_large: list[RedeliveryGroup] = []
        self._fresh = FreshQueue(batching, order, self._set_aside)
        self._returned = RetryQueue(batching, order, self.too_large)
        #: of those that came back, the ones whose next delivery must tell whether they kill their worker
        self._suspects = RetryQueue(batching, order, self.too_large)
        self._returns_turn = True
        #: the lane of the last probe
        self._probed: LaneState | None = None

    def wake(self, lane: LaneState) -> None:
        """The lane may have something to give: records arrived or were settled, or its window moved."""
        self._fresh.wake(lane)

    def put_back(self, parcel: RedeliveryGroup, now: float) -> None:
        """Records came back, and wait."""
        (self._suspects if parcel.suspected else self._returned).put_back(parcel, now)

    def waiting(self) -> Iterator[RedeliveryGroup]:
        """All that came back and wait, in no particular order."""
        return chain(self._returned, self._suspects)

    def next_due(self) -> float | None:
        """When the next parcel becomes due that is not due yet."""
        dues = (self._returned.next_due(), self._suspects.next_due())
        return min((due for due in dues if due is not None), default=None)

    def linger_ends(self, now: float) -> float | None:
        """When the next fresh records that wait for company go without it."""
        return self._fresh.linger_ends(now)

    def forget(self, lanes: Collection[LaneState]) -> list[RedeliveryGroup]:
        """The lanes go: nothing of them is delivered any more. Answers the parcels that shrank."""
        for lane in lanes:
            self._fresh.forget(lane)
        going = set(lanes)
        touched = []
        for parcel in self.waiting():
            left = [span for span in parcel.spans if span.lane not in going]
            if len(left) < len(parcel.spans):
                parcel.spans = left
                if not left:
                    parcel.state = RedeliveryState.GONE
                touched.append(parcel)
        self._returned.prune()
        self._suspects.prune()
        return touched

    def idle(self, now: float) -> bool:
        """Nothing can be picked now, whoever asks."""
        return not self._fresh and not self._returned.any_due(now) and not self._suspects.any_due(now)

    def pick(self, room: Capacity, now: float) -> Selection | None:
        """The next batch for a worker with this room; None if there is nothing for it now.

        What it answers is out: fresh records left the ring, parcels are LEASED.
        """
        self.too_large.clear()
        first, second = (self._returned, self._fresh) if self._returns_turn else (self._fresh, self._returned)
        pick = first.pick(room, now)
        if pick is None:
            return second.pick(room, now)
        self._returns_turn = not self._returns_turn
        return pick

    def has_suspect(self, now: float, hard_bytes: int | None = None) -> bool:
        """Whether `suspect` has something to give, to a worker that takes so many bytes or to any."""
        return self._suspects.could_go(now, hard_bytes)

    def suspect(self, room: Capacity, now: float) -> Selection | None:
        """A record that was there when two workers died."""
        self.too_large.clear()
        pick = self._suspects.pick(room, now)
        return pick and pick._replace(exclusive=True)

    def probe(self, room: Capacity, now: float) -> Selection | None:
        """A single record, each time from the next lane that has one."""
        self.too_large.clear()
        pick: Selection | None
        if spans := self._fresh.probe(room, self._probed):
            pick = Selection(spans, ClosedBy.PROBE, apart=True)
        else:
            last = self._probed
            pick = self._returned.probe(room, now, last) or self._suspects.probe(room, now, last)
        if pick is None:
            return None
        self._probed = pick.spans[0].lane
        return pick._replace(closed_by=ClosedBy.PROBE, apart=True)

    def _set_aside(self, spans: list[RecordSlice]) -> None:
        """A fresh record that the worker at hand cannot take waits with those that came back."""
        parcel = RedeliveryGroup(spans, 0.0, apart=True)
        for span in spans:
            span.lane.waiting += span.records
        self._returned.put_back(parcel, 0.0)
        self.too_large.append(parcel)

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

    def put_back(self, group: RedeliveryGroup, now: float) -> None:
        """Records came back, and wait."""
        (self._suspects if group.suspected else self._returned).put_back(group, now)

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
        for group in self.waiting():
            left = [slice_ for slice_ in group.slices if slice_.lane not in going]
            if len(left) < len(group.slices):
                group.slices = left
                if not left:
                    group.state = RedeliveryState.GONE
                touched.append(group)
        self._returned.prune()
        self._suspects.prune()
        return touched

    def idle(self, now: float) -> bool:
        """Nothing can be picked now, whoever asks."""
        return not self._fresh and not self._returned.any_due(now) and not self._suspects.any_due(now)

    def select(self, capacity: Capacity, now: float) -> Selection | None:
        """The next batch for a worker with this room; None if there is nothing for it now.

        What it answers is out: fresh records left the ring, parcels are LEASED.
        """
        self.too_large.clear()
        first, second = (self._returned, self._fresh) if self._returns_turn else (self._fresh, self._returned)
        selection = first.select(capacity, now)
        if selection is None:
            return second.select(capacity, now)
        self._returns_turn = not self._returns_turn
        return selection

    def has_suspect(self, now: float, hard_bytes: int | None = None) -> bool:
        """Whether `suspect` has something to give, to a worker that takes so many bytes or to any."""
        return self._suspects.could_go(now, hard_bytes)

    def suspect(self, capacity: Capacity, now: float) -> Selection | None:
        """A record that was there when two workers died."""
        self.too_large.clear()
        selection = self._suspects.select(capacity, now)
        return selection and selection._replace(exclusive=True)

    def probe(self, capacity: Capacity, now: float) -> Selection | None:
        """A single record, each time from the next lane that has one."""
        self.too_large.clear()
        selection: Selection | None
        if slices := self._fresh.probe(capacity, self._probed):
            selection = Selection(slices, ClosedBy.PROBE, isolated=True)
        else:
            last = self._probed
            selection = self._returned.probe(capacity, now, last) or self._suspects.probe(capacity, now, last)
        if selection is None:
            return None
        self._probed = selection.slices[0].lane
        return selection._replace(closed_by=ClosedBy.PROBE, isolated=True)

    def _set_aside(self, slices: list[RecordSlice]) -> None:
        """A fresh record that the worker at hand cannot take waits with those that came back."""
        group = RedeliveryGroup(slices, 0.0, isolated=True)
        for slice_ in slices:
            slice_.lane.waiting += slice_.records
        self._returned.put_back(group, 0.0)
        self.too_large.append(group)

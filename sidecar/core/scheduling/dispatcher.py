"""Which records go into the next batch. Pure."""

from collections.abc import Collection, Iterator
from itertools import chain

from sidecar.core.scheduling.fresh_queue import FreshQueue
from sidecar.core.scheduling.retry_queue import RetryQueue
from sidecar.core.scheduling.selection import Batching, Capacity, Selection
from sidecar.core.state.lane import LaneState
from sidecar.core.state.record_slices import RedeliveryGroup, RedeliveryState
from sidecar.model.records import ClosedBy, Order


class Dispatcher:
    """Selects from fresh and returned records in turn, so that neither starves.

    What `select`, `suspect` and the probes return is out: fresh records have left their lane's ordering, and redelivery
    groups that are used up are LEASED. The tracker counts them when it grants the lease.
    """

    def __init__(self, batching: Batching, order: Order) -> None:
        #: groups of one record, which the latest selection found too large for the worker at hand
        self.too_large: list[RedeliveryGroup] = []
        self._fresh = FreshQueue(batching, order)
        #: the same for records that were fresh, and are in no queue now: see `RecordTracker.hold_too_large`
        self.too_large_fresh = self._fresh.too_large
        self._returned = RetryQueue(batching, order, self.too_large)
        #: returned records that are suspected to crash their worker: each travels alone
        self._suspects = RetryQueue(batching, order, self.too_large)
        self._returned_first = True
        #: the lane of the last probe
        self._probed: LaneState | None = None

    def wake(self, lane: LaneState) -> None:
        """The lane may have something to deliver: records arrived or were settled, or its window moved."""
        self._fresh.wake(lane)

    def put_back(self, group: RedeliveryGroup, now: float) -> None:
        """Records wait for their next delivery."""
        (self._suspects if group.suspected else self._returned).put_back(group, now)

    def waiting(self) -> Iterator[RedeliveryGroup]:
        """All groups that wait, in no particular order."""
        return chain(self._returned, self._suspects)

    def next_due(self) -> float | None:
        """When the next group becomes due that is not due yet."""
        dues = (self._returned.next_due(), self._suspects.next_due())
        return min((due for due in dues if due is not None), default=None)

    def linger_ends(self, now: float) -> float | None:
        """When the next topic stops waiting for more fresh records to fill a batch."""
        return self._fresh.linger_ends(now)

    def forget(self, lanes: Collection[LaneState]) -> list[RedeliveryGroup]:
        """The lanes are not delivered any more. Returns the groups that have lost records by that."""
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
        """Whether nothing can be selected now, whoever asks."""
        return not self._fresh and self.only_fresh(now)

    def only_fresh(self, now: float) -> bool:
        """Whether all that may be selected now is fresh."""
        return not self._returned.due(now) and not self._suspects.due(now)

    def select_fresh(self, capacity: Capacity, now: float) -> Selection | None:
        """What `select` returns while there is `only_fresh`."""
        self.too_large.clear()
        return self._fresh.select(capacity, now)

    def select(self, capacity: Capacity, now: float) -> Selection | None:
        """The next batch for a worker with this capacity; None if there is nothing for it now."""
        self.too_large.clear()
        first, second = (self._returned, self._fresh) if self._returned_first else (self._fresh, self._returned)
        selection = first.select(capacity, now)
        if selection is None:
            return second.select(capacity, now)
        self._returned_first = not self._returned_first
        return selection

    def has_suspect(self, now: float, hard_bytes: int | None = None) -> bool:
        """Whether `suspect` would return something, to a worker that takes this many bytes or to any."""
        return self._suspects.could_go(now, hard_bytes)

    def suspect(self, capacity: Capacity, now: float) -> Selection | None:
        """A single record that is suspected to crash its worker."""
        self.too_large.clear()
        selection = self._suspects.select(capacity, now)
        return selection and selection._replace(exclusive=True)

    def probe_fresh(self, capacity: Capacity, now: float) -> Selection | None:
        """A single fresh record, each time from the next lane that has one."""
        self.too_large.clear()
        slices = self._fresh.probe(capacity, self._probed)
        return self._as_probe(Selection(slices, ClosedBy.PROBE) if slices else None)

    def probe_returned(self, capacity: Capacity, now: float) -> Selection | None:
        """A single record that was delivered before, each time from the next lane that has one."""
        self.too_large.clear()
        last = self._probed
        return self._as_probe(self._returned.probe(capacity, now, last) or self._suspects.probe(capacity, now, last))

    def _as_probe(self, selection: Selection | None) -> Selection | None:
        if selection is None:
            return None
        self._probed = selection.slices[0].lane
        return selection._replace(closed_by=ClosedBy.PROBE, isolated=True)

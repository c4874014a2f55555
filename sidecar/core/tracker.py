"""The state of a subscription, and the moves that keep its counts true. No tasks, no clock."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Generic, TypeVar

from sidecar.core.failures.reason_counts import ReasonCounts
from sidecar.core.scheduling.dispatcher import Dispatcher
from sidecar.core.state.lane import LanePhase, LaneState
from sidecar.core.state.leases import Lease, Leases
from sidecar.core.state.record_slices import RecordSlice, RedeliveryGroup, RedeliveryState
from sidecar.model.records import Lane
from sidecar.observability.counters import Counters, Meters

#: who has records in hand: a session
Holder = TypeVar("Holder")


class RecordTracker(Generic[Holder]):
    """What a subscription knows of its lanes and records.

    A record is in exactly one place: fresh (in its lane's ordering), in flight (in a lease), waiting (in a returned
    parcel), aside (being dead-lettered or parked), or settled. Each move between places is one method here.
    """

    def __init__(self, dispatcher: Dispatcher, prefix: bytes) -> None:
        self.lanes: dict[Lane, LaneState] = {}
        self.dispatcher = dispatcher
        self.leases: Leases[Holder] = Leases(prefix)
        self.counters = Counters()
        self.meters = Meters()
        #: why records were dead-lettered and parked
        self.dead_for = ReasonCounts()
        self.parked_for = ReasonCounts()
        #: held in memory by lanes that are not gone
        self.records = 0
        self.bytes = 0

    def in_flight(self, slices: Iterable[RecordSlice]) -> None:
        """Picked records go to a worker."""
        for slice_ in slices:
            slice_.lane.in_flight += slice_.stop - slice_.start

    def leave_flight(self, slices: Iterable[RecordSlice]) -> None:
        """Records are in a worker's hands no more; another move says where they are now."""
        for slice_ in slices:
            slice_.lane.in_flight -= slice_.stop - slice_.start

    def settle(self, slices: Iterable[RecordSlice]) -> None:
        """Settled for good. They must not be of a lane that is gone."""
        for lane, mine in by_lane(slices):
            before = lane.unsettled_records
            self.bytes -= lane.settle(mine)
            self.records -= before - lane.unsettled_records
            self.dispatcher.wake(lane)

    def put_back(self, group: RedeliveryGroup, now: float) -> None:
        """Records wait for their next delivery."""
        for slice_ in group.slices:
            slice_.lane.waiting += slice_.records
        self.dispatcher.put_back(group, now)

    def remove_waiting_records(self, slices: Iterable[RecordSlice]) -> None:
        """Records were taken from the parcels that they waited in; another move says where they are now."""
        for slice_ in slices:
            slice_.lane.waiting -= slice_.stop - slice_.start

    def close_waiting_group(self, group: RedeliveryGroup, state: RedeliveryState) -> None:
        """A parcel that waited goes elsewhere, whole."""
        group.state = state
        for slice_ in group.slices:
            slice_.lane.waiting -= slice_.records
        self.leases.group_finished(group)

    def forget_waiting(self, states: Collection[LaneState]) -> None:
        """Nothing of the lanes is delivered any more. All that waits is looked at once, however many lanes go."""
        for group in self.dispatcher.forget(states):
            if group.state is RedeliveryState.GONE:
                self.leases.group_finished(group)
        for state in states:
            state.waiting = 0

    def lanes_are_gone(self, states: Collection[LaneState]) -> list[Lease[Holder]]:
        """Nothing of the lanes counts any more. Answers the leases that hold some of them."""
        self.forget_waiting(states)
        for state in states:
            state.phase = LanePhase.GONE
            self.records -= state.unsettled_records
            self.bytes -= state.unsettled_bytes
            if self.lanes.get(state.lane) is state:
                del self.lanes[state.lane]
            # Workers have their copies, and leases keep the lane as long as they are remembered.
            state.window.clear()
        going = set(states)
        touched = []
        for lease in self.leases.held():
            mine = [slice_ for slice_ in lease.slices if slice_.lane in going]
            for slice_ in mine:
                # What was parked has a copy that the window does not know.
                slice_.chunk.drop(slice_.start, slice_.stop)
            if mine:
                touched.append(lease)
        return touched


def by_lane(slices: Iterable[RecordSlice]) -> Iterator[tuple[LaneState, Sequence[RecordSlice]]]:
    """Neighbouring spans of one lane together."""
    if isinstance(slices, list) and len(slices) == 1:
        # The usual case, once for each batch of one.
        yield slices[0].lane, slices
        return
    for lane, mine in groupby(slices, attrgetter("lane")):
        yield lane, list(mine)

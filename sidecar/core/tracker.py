"""Where each record of a subscription is, and every move from one place to another. Pure."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from sidecar.core.failures.reason_counts import ReasonCounts
from sidecar.core.scheduling.dispatcher import Dispatcher
from sidecar.core.scheduling.selection import Selection
from sidecar.core.state.lane import LanePhase, LaneState
from sidecar.core.state.leases import Lease, LeasePhase, Leases, SettledPart
from sidecar.core.state.record_slices import DeliveryHistory, RecordSlice, RedeliveryGroup, RedeliveryState, count, size
from sidecar.model.records import Chunk, Lane, Settlement, SettleResult
from sidecar.observability.counters import Counters, Meters

#: who holds leases: a session
Holder = TypeVar("Holder")


class RecordTracker(Generic[Holder]):
    """The lanes, leases and records of one subscription. Each record is in exactly one place:

    | place | where that is | entered by | left by |
    |---|---|---|---|
    | fresh | the lane's ordering | `track` | `lease`, `hold_too_large` |
    | in flight | a lease | `lease` | `close_acked`, `settle_lease`, `end_lease` |
    | waiting | a redelivery group | `put_back`, `hold_too_large` | `lease`, `settle_lease` (late), `close_group` |
    | aside | being written to a side topic | `put_aside` | `settle_aside`, `return_from_aside` |
    | settled | the lane's ledger | `settle`, `settle_aside` | |

    Nothing else changes the counts of places in `LaneState`, nor the phase of a lane. A method that takes records out
    of a place without putting them into another one returns them, and its caller does that before anything else runs.
    Lanes that are gone are in no place: `end_lanes` drops all that they have.
    """

    def __init__(self, dispatcher: Dispatcher, prefix: bytes) -> None:
        #: for reading; `add_lane` and `end_lanes` change it
        self.lanes: dict[Lane, LaneState] = {}
        self.dispatcher = dispatcher
        self.leases: Leases[Holder] = Leases(prefix)
        self.counters = Counters()
        self.meters = Meters()
        #: why records were dead-lettered and parked
        self.dead_for = ReasonCounts()
        self.parked_for = ReasonCounts()
        #: records in memory, of lanes that are not gone
        self.records = 0
        self.bytes = 0

    # Lanes

    def add_lane(self, lane: LaneState) -> None:
        """A lane was assigned. An earlier epoch of it must have ended."""
        self.lanes[lane.lane] = lane

    def revoke_lanes(self, lanes: Collection[LaneState]) -> None:
        """The lanes are about to move: nothing more of them is delivered. What is in flight can still be settled."""
        for lane in lanes:
            lane.phase = LanePhase.LEAVING
        self._drop_waiting(lanes)

    def end_lanes(self, lanes: Collection[LaneState]) -> list[Lease[Holder]]:
        """The lanes are gone: nothing of them counts any more. Returns the leases that hold records of them."""
        self._drop_waiting(lanes)
        for lane in lanes:
            lane.phase = LanePhase.GONE
            self.records -= lane.unsettled_records
            self.bytes -= lane.unsettled_bytes
            if self.lanes.get(lane.lane) is lane:
                del self.lanes[lane.lane]
            # Workers have their copies, and leases keep the lane as long as they are remembered.
            lane.window.clear()
        gone = set(lanes)
        touched = self.leases_of(gone)
        for lease in touched:
            for slice_ in lease.slices:
                if slice_.lane in gone:
                    # A record that was parked has a copy that the window does not know.
                    slice_.chunk.drop(slice_.start, slice_.stop)
        return touched

    def leases_of(self, lanes: Collection[LaneState]) -> list[Lease[Holder]]:
        """The leases that hold records of these lanes."""
        among = set(lanes)
        return [lease for lease in self.leases.held() if any(slice_.lane in among for slice_ in lease.slices)]

    def _drop_waiting(self, lanes: Collection[LaneState]) -> None:
        # One pass over all that waits, however many lanes go.
        for group in self.dispatcher.forget(lanes):
            if group.state is RedeliveryState.GONE:
                self.leases.group_finished(group)
        for lane in lanes:
            lane.waiting = 0
            lane.to_park = []

    # Arrival

    def track(self, lane: LaneState, chunk: Chunk, now: float) -> list[RecordSlice]:
        """Records arrived. Returns those that are new and unsettled. They are fresh now, except for those of the retry
        topic: the caller restores them and puts them back."""
        slices = lane.track(chunk, now)
        records = count(slices)
        self.counters.fetched += records
        self.records += records
        self.bytes += size(slices)
        if not lane.parked:
            for slice_ in slices:
                lane.ordering.add(slice_)
            self.dispatcher.wake(lane)
        return slices

    def restore(self, parked: RecordSlice, original: Chunk, history: DeliveryHistory) -> RecordSlice:
        """Replace a record of the retry topic by its original form, which may have another size."""
        larger = original.ends[-1] - parked.size
        parked.lane.unsettled_bytes += larger
        self.bytes += larger
        parked.chunk.drop(parked.start, parked.stop)
        return RecordSlice(parked.lane, original, 0, 1, parked.low, history)

    # Leases

    def lease(self, selection: Selection, holder: Holder, now: float, limit: float, longest: float) -> Lease[Holder]:
        """Selected records go to a worker: they are in flight. For the times see `Leases.grant`."""
        lease = self.leases.grant(holder, selection.slices, now, limit, longest)
        lease.isolated = selection.isolated
        lease.first_lease = selection.first_lease or lease.number
        lease.uncounted_failures = selection.uncounted_failures
        for group in selection.groups:
            self.leases.group_finished(group)
        for slice_ in selection.slices:
            records = slice_.stop - slice_.start
            slice_.lane.in_flight += records
            if selection.waited:
                slice_.lane.waiting -= records
        return lease

    def close_acked(self, settlement: Settlement) -> Lease[Holder] | None:
        """Apply a settlement that acks a whole batch; the records are in no place until the caller settles them.
        Returns None for one that `settle_lease` must look at."""
        lease = self.leases.close_acked(settlement)
        if lease is not None:
            for slice_ in lease.slices:
                slice_.lane.in_flight -= slice_.records
        return lease

    def settle_lease(self, settlement: Settlement) -> tuple[SettleResult, Lease[Holder] | None, Sequence[SettledPart]]:
        """Apply a settlement. Returns what `Leases.settle` returns; the records of the parts are in no place until the
        caller puts them somewhere."""
        result, lease, parts = self.leases.settle(settlement)
        if lease is None:
            return result, None, parts
        late, revoked = lease.phase is LeasePhase.ENDED, False
        for part in parts:
            for slice_ in part.slices:
                if late:
                    slice_.lane.waiting -= 0 if part.waits else slice_.records
                else:
                    slice_.lane.in_flight -= slice_.records
                revoked = revoked or slice_.lane.phase is LanePhase.GONE
        if revoked:
            result, parts = lease.drop_revoked(result, parts)
        return result, lease, parts

    def end_lease(self, lease: Lease[Holder]) -> list[RecordSlice]:
        """End a lease without a settlement. Returns its unsettled records of lanes that are not gone; they are in no
        place until the caller puts them somewhere."""
        slices = self.leases.end(lease)
        for slice_ in slices:
            slice_.lane.in_flight -= slice_.records
        return [slice_ for slice_ in slices if slice_.lane.phase is not LanePhase.GONE]

    # Waiting for redelivery

    def put_back(self, group: RedeliveryGroup, now: float) -> None:
        """Records wait for their next delivery."""
        for slice_ in group.slices:
            slice_.lane.waiting += slice_.records
            if group.due > now and not group.never_park and not slice_.lane.parked:
                slice_.lane.note_to_park(group)
        self.dispatcher.put_back(group, now)

    def take_to_park(self, lane: LaneState, now: float) -> Iterator[RedeliveryGroup]:
        """Groups with records of this lane that wait for their time. Each comes once: the caller closes it."""
        groups, lane.to_park = lane.to_park, []
        # One by one: a group with several slices of the lane is there several times.
        return (group for group in groups if group.state is RedeliveryState.WAITING and group.due > now)

    def hold_too_large(self) -> list[RedeliveryGroup]:
        """Of the latest selection: the records that are too large for the worker it was for, each in a group of its
        own. Those that were fresh wait from now on, for a worker that takes larger batches."""
        fresh = [RedeliveryGroup(slices, 0.0, isolated=True) for slices in self.dispatcher.too_large_fresh]
        self.dispatcher.too_large_fresh.clear()
        for group in fresh:
            self.put_back(group, 0.0)
        return [*self.dispatcher.too_large, *fresh]

    def close_group(self, group: RedeliveryGroup) -> Sequence[RecordSlice]:
        """A group stops waiting, because its records are put aside. Returns them."""
        group.state = RedeliveryState.ASIDE
        for slice_ in group.slices:
            slice_.lane.waiting -= slice_.records
        self.leases.group_finished(group)
        return group.slices

    # Written to a side topic

    def put_aside(self, slice_: RecordSlice) -> None:
        """Records are about to be written to the retry or the dead-letter topic."""
        slice_.lane.aside += slice_.records

    def settle_aside(self, slices: Iterable[RecordSlice]) -> None:
        """Records are durable in a side topic, so they are settled. Those of lanes that are gone are ignored."""
        for slice_ in slices:
            if slice_.lane.phase is not LanePhase.GONE:
                slice_.lane.aside -= slice_.records
                self.settle([slice_])

    def return_from_aside(self, slice_: RecordSlice) -> bool:
        """Records cannot be written to a side topic. Returns whether their lane is still delivered: then the caller
        puts them back."""
        if slice_.lane.phase is not LanePhase.GONE:
            slice_.lane.aside -= slice_.records
        return slice_.lane.phase is LanePhase.ACTIVE

    # Settled

    def settle(self, slices: Iterable[RecordSlice]) -> None:
        """Records are settled for good. None of their lanes may be gone."""
        by_lane: dict[LaneState, list[RecordSlice]] = {}
        for slice_ in slices:
            mine = by_lane.get(slice_.lane)
            if mine is None:
                by_lane[slice_.lane] = [slice_]
            else:
                mine.append(slice_)
        for lane, mine in by_lane.items():
            before = lane.unsettled_records
            self.bytes -= lane.settle(mine)
            self.records -= before - lane.unsettled_records
            self.dispatcher.wake(lane)

"""The state of a subscription, and the moves that keep its counts true. No tasks, no clock."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from sidecar.core.failures.reason_counts import ReasonCounts
from sidecar.core.scheduling.dispatcher import Dispatcher
from sidecar.core.state.lane import LanePhase, LaneState
from sidecar.core.state.leases import Lease, Leases
from sidecar.core.state.record_slices import RecordSlice, RedeliveryGroup, RedeliveryState
from sidecar.model.records import Lane
from sidecar.observability.counters import Counters, Meters
from sidecar.observability.logs import Log
from sidecar.subscription.session import Session

log = Log("subscription")


class RecordTracker:
    """What a subscription knows of its lanes and records.

    A record is in exactly one place: fresh (in its lane's ordering), in flight (in a lease), waiting (in a returned
    parcel), aside (being dead-lettered or parked), or settled. Each move between places is one method here.
    """

    def __init__(self, name: str, dispatcher: Dispatcher, prefix: bytes) -> None:
        self.name = name
        self.lanes: dict[Lane, LaneState] = {}
        self.dispatcher = dispatcher
        self.leases: Leases[Session] = Leases(prefix)
        self.counters = Counters()
        self.meters = Meters()
        #: why records were dead-lettered and parked
        self.dead_for = ReasonCounts()
        self.parked_for = ReasonCounts()
        #: what is wrong, by kind
        self.troubles: dict[str, str] = {}
        #: held in memory by lanes that are not gone
        self.records = 0
        self.bytes = 0

    def note(self, kind: str, text: str) -> None:
        """Something is wrong, or with an empty text: it is over. Shown in the status, and logged when it is news."""
        before = self.troubles.get(kind, "")
        if text == before:
            return
        if text:
            self.troubles[kind] = text
            log.warning(text, subscription=self.name)
        else:
            del self.troubles[kind]
            log.info(f"no longer so: {before}", subscription=self.name)

    def in_flight(self, spans: Iterable[RecordSlice]) -> None:
        """Picked records go to a worker."""
        for span in spans:
            span.lane.in_flight += span.stop - span.start

    def leave_flight(self, spans: Iterable[RecordSlice]) -> None:
        """Records are in a worker's hands no more; another move says where they are now."""
        for span in spans:
            span.lane.in_flight -= span.stop - span.start

    def settle(self, spans: Iterable[RecordSlice]) -> None:
        """Settled for good. They must not be of a lane that is gone."""
        for lane, mine in by_lane(spans):
            before = lane.unsettled_records
            self.bytes -= lane.settle(mine)
            self.records -= before - lane.unsettled_records
            self.dispatcher.wake(lane)

    def put_back(self, parcel: RedeliveryGroup, now: float) -> None:
        """Records wait for their next delivery."""
        for span in parcel.spans:
            span.lane.waiting += span.records
        self.dispatcher.put_back(parcel, now)

    def remove_waiting_records(self, spans: Iterable[RecordSlice]) -> None:
        """Records were taken from the parcels that they waited in; another move says where they are now."""
        for span in spans:
            span.lane.waiting -= span.stop - span.start

    def close_waiting_group(self, parcel: RedeliveryGroup, state: RedeliveryState) -> None:
        """A parcel that waited goes elsewhere, whole."""
        parcel.state = state
        for span in parcel.spans:
            span.lane.waiting -= span.records
        self.leases.left(parcel)

    def forget_waiting(self, states: Collection[LaneState]) -> None:
        """Nothing of the lanes is delivered any more. All that waits is looked at once, however many lanes go."""
        for parcel in self.dispatcher.forget(states):
            if parcel.state is RedeliveryState.GONE:
                self.leases.left(parcel)
        for state in states:
            state.waiting = 0

    def lanes_are_gone(self, states: Collection[LaneState]) -> list[Lease[Session]]:
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
            mine = [span for span in lease.spans if span.lane in going]
            for span in mine:
                # What was parked has a copy that the window does not know.
                span.chunk.drop(span.start, span.stop)
            if mine:
                touched.append(lease)
        return touched


def by_lane(spans: Iterable[RecordSlice]) -> Iterator[tuple[LaneState, Sequence[RecordSlice]]]:
    """Neighbouring spans of one lane together."""
    if isinstance(spans, list) and len(spans) == 1:
        # The usual case, once for each batch of one.
        yield spans[0].lane, spans
        return
    for lane, mine in groupby(spans, attrgetter("lane")):
        yield lane, list(mine)

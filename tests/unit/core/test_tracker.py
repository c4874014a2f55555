"""The counts of a subscription, and the moves that keep them true."""

import pytest

from sidecar.core.scheduling.dispatcher import Dispatcher
from sidecar.core.scheduling.selection import Batching, Capacity
from sidecar.core.state.lane import LanePhase, LaneState
from sidecar.core.state.leases import Lease
from sidecar.core.state.record_slices import RecordSlice, RedeliveryGroup, RedeliveryState, count, size
from sidecar.core.tracker import RecordTracker
from sidecar.model.records import ClientInfo, Order, Outcome, Settlement
from sidecar.settings import BatchSettings
from sidecar.subscription.session import Session
from tests.kit import chunk, lane_state, positions_of

ANY = Capacity(1 << 30, 1 << 30)


@pytest.fixture
def tracker() -> RecordTracker:
    return RecordTracker(Dispatcher(Batching(BatchSettings()), Order.NONE), b"boot")


def arrive(tracker: RecordTracker, records: int, number: int = 0) -> LaneState:
    state = lane_state(number)
    tracker.lanes[state.lane] = state
    slices = state.track(chunk(range(records), lane=state.lane), 0.0)
    for slice_ in slices:
        state.ordering.add(slice_)
    tracker.records += count(slices)
    tracker.bytes += size(slices)
    tracker.dispatcher.wake(state)
    return state


def deliver(tracker: RecordTracker) -> Lease[Session]:
    """All that is ready, to a worker."""
    pick = tracker.dispatcher.select(ANY, 0.0)
    assert pick is not None
    session = Session(None, None, ClientInfo(), 1 << 20, None, 0.0)  # type: ignore[arg-type]
    tracker.in_flight(pick.slices)
    return tracker.leases.grant(session, pick.slices, 0.0, 1.0, 1.0)


def places(state: LaneState) -> tuple[int, int, int, int]:
    """How many records are fresh, in flight, waiting, and unsettled in all."""
    return state.ordering.fresh_records, state.in_flight, state.waiting, state.unsettled_records


def come_back(tracker: RecordTracker, lease: Lease[Session]) -> RedeliveryGroup:
    slices: list[RecordSlice] = [*tracker.leases.end(lease)]
    tracker.leave_flight(slices)
    group = RedeliveryGroup(slices, 0.0, expired_lease=lease)
    lease.redeliveries.append(group)
    tracker.put_back(group, 0.0)
    return group


def test_a_record_is_in_one_place_from_its_arrival_until_it_is_settled(tracker: RecordTracker) -> None:
    state = arrive(tracker, 3)
    assert places(state) == (3, 0, 0, 3)
    lease = deliver(tracker)
    assert places(state) == (0, 3, 0, 3)
    come_back(tracker, lease)
    assert places(state) == (0, 0, 3, 3)
    again = deliver(tracker)
    assert places(state) == (0, 3, 0, 3)
    _, _, (settled,) = tracker.leases.settle(Settlement(again.id, Outcome.ACK))
    tracker.leave_flight(settled.slices)
    tracker.settle(settled.slices)
    assert places(state) == (0, 0, 0, 0)
    assert (tracker.records, tracker.bytes) == (0, 0)


def test_a_settled_record_is_freed_while_its_neighbours_wait(tracker: RecordTracker) -> None:
    """One slow record must not keep its whole chunk in memory."""
    state = arrive(tracker, 3)
    (slice_,) = deliver(tracker).slices
    first, _ = slice_.cut(1)
    tracker.settle([first])
    assert (tracker.records, state.unsettled_records) == (2, 2)
    assert slice_.chunk.frames[0] == b""
    assert slice_.chunk.frames[1] != b""


def test_a_parcel_that_is_put_aside_waits_no_more(tracker: RecordTracker) -> None:
    state = arrive(tracker, 3)
    lease = deliver(tracker)
    group = come_back(tracker, lease)
    tracker.close_waiting_group(group, RedeliveryState.ASIDE)
    assert state.waiting == 0
    assert tracker.dispatcher.select(ANY, 0.0) is None
    assert lease.slices == [], "the lease that ended with it cannot be settled any more"


def test_nothing_of_a_lane_that_is_gone_counts_any_more(tracker: RecordTracker) -> None:
    going, staying = arrive(tracker, 3, number=0), arrive(tracker, 2, number=1)
    before = staying.unsettled_bytes
    assert tracker.lanes_are_gone([going]) == []
    assert going.phase is LanePhase.GONE
    assert (tracker.records, tracker.bytes) == (2, before)
    assert [*tracker.lanes] == [staying.lane]
    assert {slice_.lane for slice_ in deliver(tracker).slices} == {staying}


def test_what_arrived_of_a_lane_that_is_gone_is_freed_though_a_worker_has_some_of_it() -> None:
    tracker = RecordTracker(Dispatcher(Batching(BatchSettings(records=1)), Order.NONE), b"boot")
    state = arrive(tracker, 3)
    (slice_,) = deliver(tracker).slices
    tracker.lanes_are_gone([state])
    assert slice_.chunk.frames == [b""] * 3
    assert state.window.first_from(0) is None, "nor does it refer to where it was"


def test_leases_that_hold_records_of_a_lane_that_is_gone_are_named(tracker: RecordTracker) -> None:
    going = arrive(tracker, 3, number=0)
    arrive(tracker, 2, number=1)
    lease = deliver(tracker)
    assert tracker.lanes_are_gone([going]) == [lease]


def test_what_waits_of_a_lane_that_is_gone_is_taken_out_of_its_parcel(tracker: RecordTracker) -> None:
    going, staying = arrive(tracker, 3, number=0), arrive(tracker, 2, number=1)
    group = come_back(tracker, deliver(tracker))
    tracker.lanes_are_gone([going])
    assert positions_of(group.slices) == [0, 1]
    assert (going.waiting, staying.waiting) == (0, 2)


def test_the_old_epoch_of_a_lane_does_not_take_the_new_one_with_it(tracker: RecordTracker) -> None:
    old = arrive(tracker, 3)
    new = arrive(tracker, 3)
    tracker.lanes_are_gone([old])
    assert [*tracker.lanes.values()] == [new]
    assert tracker.records == 3

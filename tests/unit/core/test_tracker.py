"""The tracker: each record is in one place, and the counts are right."""

import pytest

from sidecar.core.scheduling.dispatcher import Dispatcher
from sidecar.core.scheduling.selection import Batching, Capacity
from sidecar.core.state.lane import LanePhase, LaneState
from sidecar.core.state.leases import Lease
from sidecar.core.state.record_slices import RedeliveryGroup, RedeliveryState
from sidecar.core.tracker import RecordTracker
from sidecar.model.records import ClientInfo, Order, Outcome, Part, Settlement
from sidecar.settings import BatchSettings
from sidecar.subscription.session import Session
from tests.kit import chunk, lane_state, positions_of

ANY = Capacity(1 << 30, 1 << 30)


@pytest.fixture
def tracker() -> RecordTracker:
    return RecordTracker(Dispatcher(Batching(BatchSettings()), Order.NONE), b"boot")


def arrive(tracker: RecordTracker, records: int, number: int = 0) -> LaneState:
    state = lane_state(number)
    tracker.add_lane(state)
    tracker.track(state, chunk(range(records), lane=state.lane), 0.0)
    return state


def deliver(tracker: RecordTracker) -> Lease[Session]:
    """Deliver all that is ready to a worker."""
    selection = tracker.dispatcher.select(ANY, 0.0)
    assert selection is not None
    session = Session(None, None, ClientInfo(), 1 << 20, None, 0.0)  # type: ignore[arg-type]
    return tracker.lease(selection, session, 0.0, 1.0, 1.0)


def places(state: LaneState) -> tuple[int, int, int, int, int]:
    """How many records are fresh, in flight, waiting, aside, and unsettled in all."""
    return state.ordering.fresh_records, state.in_flight, state.waiting, state.aside, state.unsettled_records


def come_back(tracker: RecordTracker, lease: Lease[Session]) -> RedeliveryGroup:
    group = RedeliveryGroup(tracker.end_lease(lease), 0.0, expired_lease=lease)
    lease.redeliveries.append(group)
    tracker.put_back(group, 0.0)
    return group


def test_a_record_is_in_one_place_from_its_arrival_until_it_is_settled(tracker: RecordTracker) -> None:
    state = arrive(tracker, 3)
    assert places(state) == (3, 0, 0, 0, 3)
    lease = deliver(tracker)
    assert places(state) == (0, 3, 0, 0, 3)
    come_back(tracker, lease)
    assert places(state) == (0, 0, 3, 0, 3)
    again = deliver(tracker)
    assert places(state) == (0, 3, 0, 0, 3)
    _, _, (settled,) = tracker.settle_lease(Settlement(again.id, Outcome.ACK))
    assert places(state) == (0, 0, 0, 0, 3)
    tracker.settle(settled.slices)
    assert places(state) == (0, 0, 0, 0, 0)
    assert (tracker.records, tracker.bytes) == (0, 0)


def test_a_record_that_is_settled_late_does_not_wait_any_more(tracker: RecordTracker) -> None:
    state = arrive(tracker, 3)
    lease = deliver(tracker)
    come_back(tracker, lease)
    _, _, parts = tracker.settle_lease(Settlement(lease.id, None, parts=(Part(0, 2, Outcome.ACK),)))
    assert places(state) == (0, 0, 1, 0, 3)
    assert positions_of(slice_ for part in parts for slice_ in part.slices) == [0, 1]


def test_a_record_is_settled_once_it_is_written_aside(tracker: RecordTracker) -> None:
    state = arrive(tracker, 3)
    slices = tracker.end_lease(deliver(tracker))
    for slice_ in slices:
        tracker.put_aside(slice_)
    assert places(state) == (0, 0, 0, 3, 3)
    first, rest = slices[0].cut(1)
    tracker.settle_aside([first])
    assert places(state) == (0, 0, 0, 2, 2)
    assert tracker.return_from_aside(rest)
    assert places(state) == (0, 0, 0, 0, 2)


def test_a_fresh_record_that_is_too_large_for_a_worker_waits_for_another(tracker: RecordTracker) -> None:
    state = arrive(tracker, 1)
    assert tracker.dispatcher.select(Capacity(1, 1), 0.0) is None
    (group,) = tracker.hold_too_large()
    assert positions_of(group.slices) == [0]
    assert places(state) == (0, 0, 1, 0, 1)
    deliver(tracker)
    assert places(state) == (0, 1, 0, 0, 1)


def test_a_settled_record_is_freed_while_its_neighbours_wait(tracker: RecordTracker) -> None:
    """One slow record must not keep its whole chunk in memory."""
    state = arrive(tracker, 3)
    (slice_,) = deliver(tracker).slices
    first, _ = slice_.cut(1)
    tracker.settle([first])
    assert (tracker.records, state.unsettled_records) == (2, 2)
    assert slice_.chunk.frames[0] == b""
    assert slice_.chunk.frames[1] != b""


def test_a_group_that_is_closed_waits_no_more(tracker: RecordTracker) -> None:
    state = arrive(tracker, 3)
    lease = deliver(tracker)
    group = come_back(tracker, lease)
    assert tracker.close_group(group) == group.slices
    assert group.state is RedeliveryState.ASIDE
    assert state.waiting == 0
    assert tracker.dispatcher.select(ANY, 0.0) is None
    assert lease.slices == [], "the lease that ended with it cannot be settled any more"


def test_nothing_of_a_lane_that_is_gone_counts_any_more(tracker: RecordTracker) -> None:
    going, staying = arrive(tracker, 3, number=0), arrive(tracker, 2, number=1)
    before = staying.unsettled_bytes
    assert tracker.end_lanes([going]) == []
    assert going.phase is LanePhase.GONE
    assert (tracker.records, tracker.bytes) == (2, before)
    assert [*tracker.lanes] == [staying.lane]
    assert {slice_.lane for slice_ in deliver(tracker).slices} == {staying}


def test_what_arrived_of_a_lane_that_is_gone_is_freed_though_a_worker_has_some_of_it() -> None:
    tracker = RecordTracker(Dispatcher(Batching(BatchSettings(records=1)), Order.NONE), b"boot")
    state = arrive(tracker, 3)
    (slice_,) = deliver(tracker).slices
    tracker.end_lanes([state])
    assert slice_.chunk.frames == [b""] * 3
    assert state.window.first_from(0) is None, "the lane refers to its records"


def test_leases_that_hold_records_of_a_lane_that_is_gone_are_named(tracker: RecordTracker) -> None:
    going = arrive(tracker, 3, number=0)
    arrive(tracker, 2, number=1)
    lease = deliver(tracker)
    assert tracker.end_lanes([going]) == [lease]


def test_what_waits_of_a_lane_that_is_gone_is_taken_out_of_its_group(tracker: RecordTracker) -> None:
    going, staying = arrive(tracker, 3, number=0), arrive(tracker, 2, number=1)
    group = come_back(tracker, deliver(tracker))
    tracker.end_lanes([going])
    assert positions_of(group.slices) == [0, 1]
    assert (going.waiting, staying.waiting) == (0, 2)


def test_the_old_epoch_of_a_lane_does_not_take_the_new_one_with_it(tracker: RecordTracker) -> None:
    old = arrive(tracker, 3)
    new = arrive(tracker, 3)
    tracker.end_lanes([old])
    assert [*tracker.lanes.values()] == [new]
    assert tracker.records == 3

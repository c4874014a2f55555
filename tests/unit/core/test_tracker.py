"""The counts of a subscription, and the moves that keep them true."""

import logging

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
def books() -> RecordTracker:
    return RecordTracker("orders", Dispatcher(Batching(BatchSettings()), Order.NONE), b"boot")


def arrive(books: RecordTracker, records: int, number: int = 0) -> LaneState:
    state = lane_state(number)
    books.lanes[state.lane] = state
    spans = state.track(chunk(range(records), lane=state.lane), 0.0)
    for span in spans:
        state.ordering.add(span)
    books.records += count(spans)
    books.bytes += size(spans)
    books.dispatcher.wake(state)
    return state


def deliver(books: RecordTracker) -> Lease[Session]:
    """All that is ready, to a worker."""
    pick = books.dispatcher.pick(ANY, 0.0)
    assert pick is not None
    session = Session(None, None, ClientInfo(), 1 << 20, None, 0.0)  # type: ignore[arg-type]
    books.in_flight(pick.spans)
    return books.leases.grant(session, pick.spans, 0.0, 1.0, 1.0)


def places(state: LaneState) -> tuple[int, int, int, int]:
    """How many records are fresh, in flight, waiting, and unsettled in all."""
    return state.ordering.fresh_records, state.in_flight, state.waiting, state.unsettled_records


def come_back(books: RecordTracker, lease: Lease[Session]) -> RedeliveryGroup:
    spans: list[RecordSlice] = [*books.leases.end(lease)]
    books.leave_flight(spans)
    parcel = RedeliveryGroup(spans, 0.0, expired_lease=lease)
    lease.redeliveries.append(parcel)
    books.put_back(parcel, 0.0)
    return parcel


def test_a_record_is_in_one_place_from_its_arrival_until_it_is_settled(books: RecordTracker) -> None:
    state = arrive(books, 3)
    assert places(state) == (3, 0, 0, 3)
    lease = deliver(books)
    assert places(state) == (0, 3, 0, 3)
    come_back(books, lease)
    assert places(state) == (0, 0, 3, 3)
    again = deliver(books)
    assert places(state) == (0, 3, 0, 3)
    _, _, (settled,) = books.leases.settle(Settlement(again.id, Outcome.ACK))
    books.leave_flight(settled.spans)
    books.settle(settled.spans)
    assert places(state) == (0, 0, 0, 0)
    assert (books.records, books.bytes) == (0, 0)


def test_a_settled_record_is_freed_while_its_neighbours_wait(books: RecordTracker) -> None:
    """One slow record must not keep its whole chunk in memory."""
    state = arrive(books, 3)
    (span,) = deliver(books).spans
    first, _ = span.cut(1)
    books.settle([first])
    assert (books.records, state.unsettled_records) == (2, 2)
    assert span.chunk.frames[0] == b""
    assert span.chunk.frames[1] != b""


def test_a_parcel_that_is_put_aside_waits_no_more(books: RecordTracker) -> None:
    state = arrive(books, 3)
    lease = deliver(books)
    parcel = come_back(books, lease)
    books.close_waiting_group(parcel, RedeliveryState.ASIDE)
    assert state.waiting == 0
    assert books.dispatcher.pick(ANY, 0.0) is None
    assert lease.spans == [], "the lease that ended with it cannot be settled any more"


def test_nothing_of_a_lane_that_is_gone_counts_any_more(books: RecordTracker) -> None:
    going, staying = arrive(books, 3, number=0), arrive(books, 2, number=1)
    before = staying.unsettled_bytes
    assert books.lanes_are_gone([going]) == []
    assert going.phase is LanePhase.GONE
    assert (books.records, books.bytes) == (2, before)
    assert [*books.lanes] == [staying.lane]
    assert {span.lane for span in deliver(books).spans} == {staying}


def test_what_arrived_of_a_lane_that_is_gone_is_freed_though_a_worker_has_some_of_it() -> None:
    books = RecordTracker("orders", Dispatcher(Batching(BatchSettings(records=1)), Order.NONE), b"boot")
    state = arrive(books, 3)
    (span,) = deliver(books).spans
    books.lanes_are_gone([state])
    assert span.chunk.frames == [b""] * 3
    assert state.window.first_from(0) is None, "nor does it refer to where it was"


def test_leases_that_hold_records_of_a_lane_that_is_gone_are_named(books: RecordTracker) -> None:
    going = arrive(books, 3, number=0)
    arrive(books, 2, number=1)
    lease = deliver(books)
    assert books.lanes_are_gone([going]) == [lease]


def test_what_waits_of_a_lane_that_is_gone_is_taken_out_of_its_parcel(books: RecordTracker) -> None:
    going, staying = arrive(books, 3, number=0), arrive(books, 2, number=1)
    parcel = come_back(books, deliver(books))
    books.lanes_are_gone([going])
    assert positions_of(parcel.spans) == [0, 1]
    assert (going.waiting, staying.waiting) == (0, 2)


def test_the_old_epoch_of_a_lane_does_not_take_the_new_one_with_it(books: RecordTracker) -> None:
    old = arrive(books, 3)
    new = arrive(books, 3)
    books.lanes_are_gone([old])
    assert [*books.lanes.values()] == [new]
    assert books.records == 3


def test_trouble_is_logged_when_it_begins_and_when_it_is_over(
    books: RecordTracker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "offramp")
    for text in ("the broker is away", "the broker is away", "", ""):
        books.note("broker", text)
    assert [record.getMessage() for record in caplog.records] == [
        "the broker is away",
        "no longer so: the broker is away",
    ]
    assert books.troubles == {}

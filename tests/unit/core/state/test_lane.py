"""What lanes know of earlier deliveries: by the broker's counts, and by the reach that is stored with a commit."""

from collections.abc import Sequence

from sidecar.core.state.lane import LaneState
from sidecar.core.state.record_slices import FRESH, POSSIBLY_PROCESSED, DeliveryHistory, redeliveries
from sidecar.model.records import Assigned, Chunk, Commit, Lane, Order, Run
from sidecar.settings import Bytes, WindowSettings
from tests.kit import chunk, frame, lane_state, positions_of


def test_deliveries_that_the_broker_counts_show_in_attempt_and_count_against_no_record() -> None:
    state = lane_state()
    frames = [frame(position) for position in range(4)]
    slices = state.track(Chunk(state.lane, range(4), frames, delivered_before=[0, 2, 2, 1]), 0.0)
    assert [(slice_.start, slice_.stop, slice_.history) for slice_ in slices] == [
        (0, 1, FRESH),
        (1, 3, DeliveryHistory(failures=2, possibly_processed=True)),
        (3, 4, DeliveryHistory(failures=1, possibly_processed=True)),
    ]
    told = [(one.first, one.count, one.attempt, one.possibly_processed) for one in redeliveries(slices)]
    assert told == [(1, 2, 3, True), (3, 1, 2, True)]
    # Together they settle all positions.
    assert [slice_.run for slice_ in slices] == [(0, 1), (1, 3), (3, 4)]


def test_a_chunk_that_another_sidecar_may_have_had_is_flagged_whole() -> None:
    state = lane_state()
    (slice_,) = state.track(
        Chunk(state.lane, range(3), [frame(position) for position in range(3)], possibly_processed=True), 0.0
    )
    assert slice_.history == POSSIBLY_PROCESSED


def later_life(commit: Commit, *, records: int) -> LaneState:
    window = WindowSettings(records=records, bytes=Bytes(1 << 30), span=10 * records)
    assigned = Assigned(Lane("orders", 0), commit.position, commit.beyond, reach=commit.reach)
    return LaneState(assigned, Order.NONE, window, parked=False)


def flagged(state: LaneState, positions: Sequence[int]) -> list[int]:
    slices = state.track(chunk(positions), 0.0)
    return positions_of([each for each in slices if each.history.possibly_processed])


def commit(state: LaneState) -> Commit | None:
    """The next commit, which the broker stores."""
    sent = state.next_commit(with_beyond=True, with_reach=True)
    if sent is not None:
        state.ledger.commit_sent()
        state.commit_done(sent, 0)
    return sent


def test_a_smaller_window_flags_what_a_larger_one_may_have_delivered() -> None:
    state = later_life(Commit(0), records=200)
    state.track(chunk(range(250)), 0.0)
    state.ledger.settle(Run(0, 5))
    stored = commit(state)
    assert stored == Commit(5, (), 205)
    assert flagged(later_life(stored, records=20), range(5, 250)) == [*range(5, 205)]


def test_nothing_is_delivered_beyond_what_the_next_owner_would_flag() -> None:
    """After a stop with nothing in hand, or with a smaller window before: a commit comes first."""
    state = later_life(Commit(5, (), 5), records=20)
    assert flagged(state, range(5, 50)) == []
    assert state.window.delivery_limit() == 5
    assert state.window.short_of_reach()
    assert commit(state) == Commit(5, (), 25)
    assert state.window.delivery_limit() == 25
    assert not state.window.short_of_reach()


def test_records_far_apart_need_a_further_reach() -> None:
    state = later_life(Commit(0, (), 20), records=20)
    state.track(chunk([0, 1, 1_000]), 0.0)
    state.ledger.settle(Run(0, 2))
    assert commit(state) == Commit(2, (), 1_001)
    assert state.window.delivery_limit() == 1_001


def test_a_stop_with_nothing_in_hand_leaves_only_what_earlier_owners_may_deliver() -> None:
    state = later_life(Commit(0, (), 30), records=20)
    state.track(chunk(range(10)), 0.0)
    state.ledger.settle(Run(0, 10))
    state.stopped = True
    assert commit(state) == Commit(10, (), 30), "an owner before may be frozen, and wake up"
    assert commit(state) is None
    assert flagged(later_life(Commit(10, (), 30), records=20), range(10, 60)) == [*range(10, 30)]


def test_after_a_stop_with_nothing_in_hand_no_new_record_is_flagged() -> None:
    state = later_life(Commit(0, (), 0), records=20)
    state.track(chunk(range(10)), 0.0)
    assert commit(state) == Commit(0, (), 20)
    state.ledger.settle(Run(0, 10))
    state.stopped = True
    assert commit(state) == Commit(10, (), 10)
    assert flagged(later_life(Commit(10, (), 10), records=20), range(10, 60)) == []


def test_a_stop_with_something_in_hand_hides_nothing() -> None:
    state = later_life(Commit(0, (), 0), records=20)
    state.track(chunk(range(10)), 0.0)
    state.in_flight = 10
    state.stopped = True
    assert commit(state) == Commit(0, (), 20)


def test_acks_beyond_the_position_count_as_in_hand_at_a_stop() -> None:
    """The broker may not have room for all of them."""
    state = later_life(Commit(0, (), 0), records=20)
    state.track(chunk(range(10)), 0.0)
    state.ledger.settle(Run(5, 6))
    state.stopped = True
    assert commit(state) == Commit(0, (Run(5, 6),), 20)


def test_the_first_reach_holds_from_when_it_is_sent() -> None:
    """The broker may have it although no answer came, and by it the next owner knows what to flag."""
    state = later_life(Commit(0), records=20)
    state.track(chunk(range(0, 38, 2)), 0.0)
    assert state.window.delivery_limit() == 200
    state.ledger.settle(Run(0, 2))
    sent = state.next_commit(with_beyond=True, with_reach=True)
    assert sent is not None
    state.commit_sent(sent)
    assert state.window.delivery_limit() == sent.reach


def test_the_reach_never_falls_while_records_are_delivered() -> None:
    """The answer to a commit may be lost: then deliveries go on by the one before."""
    state = later_life(Commit(0, (), 500), records=20)
    state.track(chunk(range(10)), 0.0)
    state.ledger.settle(Run(0, 10))
    assert commit(state) == Commit(10, (), 500)

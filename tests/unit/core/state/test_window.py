"""How far past its committed position a lane may be delivered."""

from sidecar.core.state.window import Window
from sidecar.settings import Bytes, WindowSettings
from tests.kit import chunk


def window(*, records: int = 1_000, size: int = 1 << 30, span: int = 1_000_000) -> Window:
    return Window(WindowSettings(records=records, bytes=Bytes(size), span=span), 0)


def test_records_within_the_window_may_go_and_the_next_may_not() -> None:
    lane = window(records=10)
    lane.track(chunk(range(30)), 0.0)
    assert lane.delivery_limit() == 10


def test_a_commit_moves_the_window_along() -> None:
    lane = window(records=10)
    lane.track(chunk(range(30)), 0.0)
    lane.commit(5)
    assert lane.delivery_limit() == 15


def test_gaps_count_in_positions_and_not_in_records() -> None:
    lane = window(records=10, span=100)
    lane.track(chunk([0, 50, 99, 100]), 0.0)
    assert lane.delivery_limit() == 100


def test_a_record_larger_than_the_window_goes_all_the_same() -> None:
    """Otherwise the lane would wait forever for a commit that only this record makes possible."""
    lane = window(size=1_024)
    lane.track(chunk([0, 1], sizes=[5_000, 1]), 0.0)
    assert lane.delivery_limit() == 1


def test_a_record_behind_a_gap_larger_than_the_window_goes_all_the_same() -> None:
    lane = window(span=100)
    lane.track(chunk([5_000, 5_001]), 0.0)
    assert lane.delivery_limit() == 5_001


def test_a_window_is_full_at_all_of_it_and_free_again_at_four_fifths() -> None:
    lane = window(records=10)
    lane.track(chunk(range(9)), 0.0)
    assert not lane.full()
    lane.track(chunk([9]), 0.0)
    assert lane.full()
    lane.commit(2)
    assert lane.full()
    lane.commit(3)
    assert not lane.full()


def test_a_record_that_the_broker_gives_twice_fills_the_window_once() -> None:
    lane = window(records=10)
    lane.track(chunk(range(6)), 0.0)
    lane.track(chunk(range(8)), 0.0)
    assert lane.records == 8
    assert not lane.full()


def test_it_knows_the_oldest_record_from_a_position_on_and_since_when_it_waits() -> None:
    lane = window()
    lane.track(chunk(range(3)), 10.0)
    lane.track(chunk([4, 5, 8]), 20.0)
    assert [lane.first_from(position) for position in (0, 2, 3, 6, 9)] == [
        (0, 10.0),
        (2, 10.0),
        (4, 20.0),
        (8, 20.0),
        None,
    ]

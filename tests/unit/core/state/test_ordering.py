"""Which records of a lane may be delivered now."""

from collections.abc import Sequence

import pytest

from sidecar.core.state.ordering import Ordering, make_ordering
from sidecar.core.state.record_slices import RecordSlice
from sidecar.model.records import Order
from tests.kit import positions_of, slice_of

ANY = 1 << 40


def ordering(order: Order, keys: Sequence[bytes | None], sizes: Sequence[int] | None = None) -> Ordering:
    """With fresh records of these keys at the positions 0, 1, 2, ..."""
    made = make_ordering(order)
    made.add(slice_of(len(keys), keys=keys, sizes=sizes))
    return made


def take(made: Ordering, records: int = 100, before: int = ANY) -> list[RecordSlice]:
    return made.take(records, ANY, before)


def test_without_an_order_records_go_as_they_came() -> None:
    lane = ordering(Order.NONE, [b"a", b"a", b"b"])
    assert positions_of(take(lane, 2)) == [0, 1]
    assert positions_of(take(lane)) == [2]


def test_with_order_lane_nothing_goes_while_anything_is_out() -> None:
    lane = ordering(Order.LANE, [None] * 4)
    first = take(lane, 2)
    assert take(lane) == []
    lane.leave(first[0].cut(1)[:1])
    assert take(lane) == []
    lane.leave(first)
    assert positions_of(take(lane)) == [2, 3]


def test_with_order_key_other_keys_go_past_one_that_is_out() -> None:
    lane = ordering(Order.KEY, [b"a", b"a", b"b", b"c"])
    assert positions_of(take(lane, 1)) == [0]
    assert positions_of(take(lane)) == [2, 3]


def test_with_order_key_records_of_a_key_may_go_together() -> None:
    lane = ordering(Order.KEY, [b"a", b"b", b"a", b"a"])
    assert positions_of(take(lane)) == [0, 1, 2, 3]


def test_with_order_key_records_without_a_key_wait_for_nobody() -> None:
    lane = ordering(Order.KEY, [None, None])
    assert positions_of(take(lane, 1)) == [0]
    assert positions_of(take(lane, 1)) == [1]


def test_an_empty_key_is_a_key() -> None:
    lane = ordering(Order.KEY, [b"", b""])
    take(lane, 1)
    assert take(lane) == []


def test_what_waited_for_its_key_goes_first_once_it_may() -> None:
    lane = ordering(Order.KEY, [b"a", b"a", b"b", b"c"])
    first = take(lane, 1)
    assert positions_of(take(lane, 1)) == [2]
    lane.leave(first)
    assert positions_of(take(lane, 1)) == [1]


def test_keys_that_come_free_in_any_order_give_batches_in_the_order_of_positions() -> None:
    lane = ordering(Order.KEY, [b"a", b"b", b"a", b"b"])
    first, second = take(lane, 1), take(lane, 1)
    assert take(lane) == []
    lane.leave(second)
    lane.leave(first)
    assert positions_of(take(lane)) == [2, 3]


@pytest.mark.parametrize("order", Order)
def test_nothing_past_the_window_goes(order: Order) -> None:
    assert positions_of(take(ordering(order, [None] * 9), before=4)) == [0, 1, 2, 3]


@pytest.mark.parametrize("order", Order)
def test_a_batch_holds_no_more_bytes_than_it_may(order: Order) -> None:
    lane = ordering(order, [None] * 4, sizes=[100, 100, 100, 100])
    assert positions_of(lane.take(100, 250, ANY)) == [0, 1]


@pytest.mark.parametrize("order", Order)
def test_a_record_larger_than_a_batch_goes_alone_if_it_is_the_first(order: Order) -> None:
    lane = ordering(order, [None] * 2, sizes=[1_000, 1])
    assert lane.take(100, 500, ANY, force=False) == []
    assert positions_of(lane.take(100, 500, ANY)) == [0]


def test_records_of_a_key_come_back_in_order() -> None:
    """Whichever came back first: a record waits for the earlier ones of its key."""
    lane = ordering(Order.KEY, [b"a", b"a", b"b"])
    (out,) = take(lane)
    first, second, other = out.singles()
    assert [positions_of(part) for part in lane.eligible([second, other])] == [[2], [1]]
    assert [positions_of(part) for part in lane.eligible([first, second])] == [[0, 1], []]
    lane.leave([first])
    assert [positions_of(part) for part in lane.eligible([second])] == [[1], []]


def test_records_of_a_lane_come_back_in_order() -> None:
    lane = ordering(Order.LANE, [None] * 4)
    (out,) = take(lane)
    first, second = out.cut(2)
    assert [positions_of(part) for part in lane.eligible([second])] == [[], [2, 3]]
    assert [positions_of(part) for part in lane.eligible([first])] == [[0, 1], []]


def test_fresh_records_are_forgotten_with_their_lane() -> None:
    lane = ordering(Order.KEY, [b"a", b"a", b"b"])
    first = take(lane, 1)
    lane.clear()
    lane.leave(first)
    assert take(lane) == []
    assert (lane.fresh_records, lane.fresh_bytes) == (0, 0)

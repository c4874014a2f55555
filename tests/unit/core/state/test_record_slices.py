"""Slices of chunks."""

from sidecar.core.state.record_slices import (
    FRESH,
    POSSIBLY_PROCESSED,
    DeliveryHistory,
    between,
    count,
    cut,
    redeliveries,
)
from sidecar.model.records import Redelivery, Run
from tests.kit import positions_of, slice_of


def test_a_slice_settles_the_gap_before_each_of_its_records() -> None:
    first, second = slice_of([3, 7, 9]).cut(1)
    assert first.run == Run(3, 4)
    assert second.run == Run(4, 10)


def test_cutting_slices_cuts_at_a_record_wherever_it_stands() -> None:
    slices = [slice_of(3), slice_of([10, 11, 12])]
    for at in range(7):
        head, rest = cut(slices, at)
        assert (count(head), count(rest)) == (at, 6 - at)
        assert positions_of(head + rest) == [0, 1, 2, 10, 11, 12]


def test_records_between_two_indexes_may_lie_in_several_slices() -> None:
    slices = [slice_of(3), slice_of([10, 11, 12]), slice_of([20])]
    runs = [Run(0, 1), Run(2, 5), Run(5, 7)]
    assert [positions_of(records) for records in between(slices, runs)] == [[0], [2, 10, 11], [12, 20]]


def test_its_size_is_known_also_after_its_frames_were_dropped() -> None:
    slice_ = slice_of(3, sizes=[100, 200, 300])
    before = slice_.size
    slice_.chunk.drop(0, 3)
    assert slice_.cut(1)[0].size + slice_.cut(1)[1].size == before > 600


def test_a_first_delivery_says_nothing_of_earlier_ones() -> None:
    assert redeliveries([slice_of(3), slice_of(2)]) == ()


def test_a_redelivery_says_which_attempt_it_is_and_whether_it_may_have_been_processed() -> None:
    slices = [
        slice_of(2, history=FRESH),
        slice_of(3, history=DeliveryHistory(failures=1)),
        slice_of(1, history=POSSIBLY_PROCESSED),
        slice_of(1, history=DeliveryHistory(failures=2, possibly_processed=True)),
    ]
    assert redeliveries(slices) == (
        Redelivery(2, 3, 2, False),
        Redelivery(5, 1, 1, True),
        Redelivery(6, 1, 3, True),
    )


def test_neighbours_with_the_same_history_share_one_range() -> None:
    past = DeliveryHistory(failures=1)
    assert redeliveries([slice_of(2, history=past), slice_of(3, history=past)]) == (Redelivery(0, 5, 2, False),)

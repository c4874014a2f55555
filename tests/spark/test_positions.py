"""Offsets, and what is planned between two of them."""

import itertools
import json
from typing import Any

import pytest

from spark_bridge.errors import WrongCheckpoint
from spark_bridge.positions import Lane, from_offset, to_offset
from spark_bridge.range_reader import Range, split

A, B, C = Lane("orders", 0), Lane("orders", 10), Lane("returns", 2)


def test_an_offset_reads_back() -> None:
    positions = {A: 7, B: 0, Lane("persistent://public/default/x", 3): 2**53 + 1}
    assert from_offset(json.loads(json.dumps(to_offset("sub", positions))), "sub") == positions


def test_equal_positions_give_equal_text() -> None:
    assert json.dumps(to_offset("sub", {C: 1, B: 2, A: 3})) == json.dumps(to_offset("sub", {A: 3, B: 2, C: 1}))


@pytest.mark.parametrize(
    ("offset", "said"),
    [
        (to_offset("returns", {C: 1}), 'belongs to the subscription "returns", and this query reads "orders"'),
        ({"orders": {"0": 17}}, "is not an offset of Offramp"),
        (None, "is not an offset of Offramp"),
        ({"v": 2, "subscription": "orders", "somewhere": {}}, "written by a newer bridge"),
    ],
)
def test_a_checkpoint_of_another_is_seen(offset: Any, said: str) -> None:
    with pytest.raises(WrongCheckpoint, match=said):
        from_offset(offset, "orders")


def ranges(planned: list[Range]) -> list[tuple[Lane, int, int]]:
    return [(one.lane, one.start, one.until) for one in planned]


def test_each_lane_that_moved_is_one_range() -> None:
    assert ranges(split({A: 5, B: 7, C: 0}, {A: 9, B: 7, C: 1}, 0)) == [(A, 5, 9), (C, 0, 1)]


def test_a_lane_is_split_into_pieces_that_leave_nothing_out() -> None:
    assert ranges(split({A: 0}, {A: 10}, 4)) == [(A, 0, 4), (A, 4, 8), (A, 8, 10)]


def test_a_new_lane_enters_where_it_begins_and_has_nothing_yet() -> None:
    assert split({A: 3}, {A: 3, B: 12}, 0) == []


def test_no_lane_makes_more_than_a_hundred_tasks() -> None:
    pieces = ranges(split({A: 3}, {A: 2**60}, 10))
    assert len(pieces) <= 100
    assert pieces[0][1] == 3
    assert pieces[-1][2] == 2**60
    assert all(before[2] == after[1] for before, after in itertools.pairwise(pieces))

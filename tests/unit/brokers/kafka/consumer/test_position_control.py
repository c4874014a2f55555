"""Where a lane of Kafka starts and goes on, and what is believed of it."""

import pytest

from sidecar.brokers.base import LaneEnd
from sidecar.brokers.kafka.lanes import Phase, Reading
from sidecar.brokers.kafka.metadata import Stamp, encode
from sidecar.brokers.kafka.options import OutOfRange
from sidecar.brokers.kafka.starting import Beginning, beginning, going_on
from sidecar.model.records import Commit, Lane, Run

STAMP = Stamp("cluster", "topic")
BEYOND = (Run(12, 15), Run(20, 21))
TEXT = encode(STAMP, Commit(10, BEYOND))


def start(position: int, end: LaneEnd, out_of_range: OutOfRange = OutOfRange.EARLIEST, text: str = "") -> Beginning:
    return beginning(position, text, STAMP, end, out_of_range, first=False)


def test_a_lane_starts_where_the_group_was_with_what_was_settled_beyond() -> None:
    assert start(10, LaneEnd(0, 30), text=TEXT) == Beginning(10, BEYOND, False, LaneEnd(0, 30), 10)


def test_a_lane_whose_position_was_removed_goes_on_at_its_start_and_counts_what_is_lost() -> None:
    # 10 and 11 were never seen; of 12 to 17 three were settled.
    assert start(10, LaneEnd(18, 30), text=TEXT) == Beginning(10, BEYOND, False, LaneEnd(18, 30), 18, lost=5)


def test_or_at_its_end_if_that_is_wanted() -> None:
    assert start(10, LaneEnd(18, 30), OutOfRange.LATEST) == Beginning(10, (), False, LaneEnd(18, 30), 30, lost=20)


@pytest.mark.parametrize(("out_of_range", "at"), [(OutOfRange.EARLIEST, 0), (OutOfRange.LATEST, 5)])
def test_a_position_beyond_the_end_is_of_another_log(out_of_range: OutOfRange, at: int) -> None:
    assert start(10, LaneEnd(0, 5), out_of_range, TEXT) == Beginning(at, (), False, LaneEnd(0, 5), at)


def test_a_position_at_either_end_is_in_the_lane() -> None:
    for position in (3, 9):
        assert start(position, LaneEnd(3, 9)).at == position
        assert going_on(position, LaneEnd(3, 9), OutOfRange.EARLIEST).at == position


def test_a_lane_that_strayed_goes_on_and_counts_what_is_lost() -> None:
    assert going_on(10, LaneEnd(18, 30), OutOfRange.EARLIEST) == Beginning(10, (), False, LaneEnd(18, 30), 18, lost=8)
    assert going_on(10, LaneEnd(0, 5), OutOfRange.EARLIEST) == Beginning(10, (), False, LaneEnd(0, 5), 0)


def placed(position: int) -> Reading:
    reading = Reading(Lane("topic", 0), Phase.ACTIVE)
    reading.put_to(position)
    reading.astray = False
    return reading


def test_what_follows_is_believed_and_so_are_gaps_from_then_on() -> None:
    reading = placed(10)
    assert reading.believes(10)
    reading.next = 11
    assert reading.believes(50)


def test_a_first_gap_is_believed_when_it_was_seen_twice() -> None:
    reading = placed(10)
    assert not reading.believes(50)
    assert reading.astray
    reading.astray = False
    assert reading.believes(50)


def test_a_library_that_was_not_where_it_was_put_loses_nothing() -> None:
    reading = placed(10)
    assert not reading.believes(50)
    reading.astray = False
    assert reading.believes(10)


def test_a_gap_that_grew_meanwhile_is_looked_at_again() -> None:
    reading = placed(10)
    assert not reading.believes(50)
    assert not reading.believes(60)
    assert reading.believes(60)


def test_every_placing_is_proven_anew() -> None:
    reading = placed(10)
    assert reading.believes(10)
    reading.put_to(11)
    assert not reading.believes(20)

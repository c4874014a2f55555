"""Which gaps are accepted, and how lanes are paused and resumed."""

from types import SimpleNamespace
from typing import Any

from sidecar.brokers.base import LaneEnd
from sidecar.brokers.kafka.consumer.position_control import LaneReader, Phase, PositionControl
from sidecar.brokers.kafka.consumer.start_position import recovery_position
from sidecar.brokers.kafka.options import OutOfRange
from sidecar.brokers.kafka.poll_buffer import PollBuffer, RefetchMeter
from sidecar.brokers.kafka.records import LaneRecords
from sidecar.model.records import Lane

LANE = Lane("topic", 0)


def moved_to(position: int) -> LaneReader:
    reader = LaneReader(LANE, Phase.ACTIVE)
    reader.seek_to(position)
    reader.needs_seek = False
    return reader


def test_records_in_sequence_are_accepted_and_so_are_gaps_from_then_on() -> None:
    reader = moved_to(10)
    assert reader.accepts_gap(10)
    reader.next = 11
    assert reader.accepts_gap(50)


def test_the_first_gap_is_accepted_when_it_is_seen_twice() -> None:
    reader = moved_to(10)
    assert not reader.accepts_gap(50)
    assert reader.needs_seek
    reader.needs_seek = False
    assert reader.accepts_gap(50)


def test_a_library_that_was_not_where_it_was_moved_to_loses_nothing() -> None:
    reader = moved_to(10)
    assert not reader.accepts_gap(50)
    reader.needs_seek = False
    assert reader.accepts_gap(10)


def test_a_gap_that_grew_meanwhile_must_be_seen_again() -> None:
    reader = moved_to(10)
    assert not reader.accepts_gap(50)
    assert not reader.accepts_gap(60)
    assert reader.accepts_gap(60)


def test_every_seek_is_verified_anew() -> None:
    reader = moved_to(10)
    assert reader.accepts_gap(10)
    reader.seek_to(11)
    assert not reader.accepts_gap(20)


def test_a_pause_takes_nothing_back_while_the_position_of_the_lane_is_lost() -> None:
    reader, buffer = LaneReader(LANE, Phase.POSITION_LOST, next=100), PollBuffer(lambda: None)
    buffer.add_records([LaneRecords(LANE, range(80, 100), [b"x"] * 20)])
    control = PositionControl({LANE: reader}, buffer, RefetchMeter())
    library: Any = SimpleNamespace(
        pause=lambda _: None,
        resume=lambda _: None,
        seek=lambda _: None,
        incremental_assign=lambda _: None,
        incremental_unassign=lambda _: None,
    )
    control.fetcher = library
    buffer.pause([LANE])
    control.pause([LANE])
    control.recover(reader, recovery_position(100, LaneEnd(0, 105), OutOfRange.EARLIEST))
    buffer.resume([LANE])
    control.resume([LANE])
    assert [[*chunk.positions] for chunk in buffer.take(100, 1 << 20).chunks] == [[*range(80, 100)]]
    assert reader.next == 100

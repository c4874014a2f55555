"""Records between the poll thread and the event loop, and the count of bytes that were fetched in vain."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sidecar.brokers.base import Advanced, Lost, Revoked
from sidecar.brokers.kafka.poll_buffer import PollBuffer, RefetchMeter
from sidecar.brokers.kafka.records import LaneRecords
from sidecar.model.records import Assigned, Lane

A, B = Lane("a", 0), Lane("b", 0)


def records(lane: Lane, start: int, *sizes: int) -> LaneRecords:
    return LaneRecords(lane, range(start, start + len(sizes)), [bytes(size) for size in sizes])


def empty() -> PollBuffer:
    return PollBuffer(lambda: None)


def everything(buffer: PollBuffer, max_records: int = 10, max_bytes: int = 100) -> list[object]:
    """Events and positions in the order in which the core gets them."""
    seen: list[object] = []
    while buffer:
        polled = buffer.take(max_records, max_bytes)
        assert polled.events or polled.chunks, "nothing is taken, but the buffer is not empty"
        seen += polled.events
        seen += [(chunk.lane, position) for chunk in polled.chunks for position in chunk.positions]
    return seen


@given(
    st.lists(st.tuples(st.sampled_from([A, B]), st.lists(st.integers(1, 60), min_size=1, max_size=8)), max_size=8),
    st.integers(1, 10),
    st.integers(1, 100),
)
def test_everything_comes_once_in_order_and_within_the_limits(
    drawn: list[tuple[Lane, list[int]]], max_records: int, max_bytes: int
) -> None:
    buffer, next_ = empty(), {A: 0, B: 0}
    for lane, sizes in drawn:
        buffer.add_records([records(lane, next_[lane], *sizes)])
        next_[lane] += len(sizes)
    assert buffer.records == sum(next_.values())
    got: dict[Lane, list[int]] = {A: [], B: []}
    while buffer:
        chunks = buffer.take(max_records, max_bytes).chunks
        assert 1 <= sum(len(chunk.frames) for chunk in chunks) <= max_records
        size = sum(chunk.ends[-1] for chunk in chunks)
        assert size <= max_bytes or sum(len(chunk.frames) for chunk in chunks) == 1
        for chunk in chunks:
            got[chunk.lane] += chunk.positions
    assert got == {lane: list(range(end)) for lane, end in next_.items()}
    assert (buffer.records, buffer.bytes) == (0, 0)


def test_a_gap_keeps_its_place_among_the_records_of_its_lane() -> None:
    buffer = empty()
    buffer.add_records([records(A, 0, 1, 1)])
    buffer.add_event(Advanced(A, 5))
    buffer.add_records([records(A, 5, 1), records(B, 0, 1)])
    polled = buffer.take(10, 100)
    assert [list(chunk.positions) for chunk in polled.chunks] == [[0, 1]]
    polled = buffer.take(10, 100)
    assert polled.events == [Advanced(A, 5)]
    assert [(chunk.lane, *chunk.positions) for chunk in polled.chunks] == [(A, 5), (B, 0)]


def test_other_events_go_before_everything() -> None:
    buffer = empty()
    buffer.add_records([records(B, 0, 1)])
    buffer.add_event(Revoked(frozenset([A]), 3.0))
    buffer.add_event(Lost(frozenset([A])))
    assert everything(buffer) == [Revoked(frozenset([A]), 3.0), Lost(frozenset([A])), (B, 0)]


def test_an_assignment_follows_when_earlier_records_of_the_lane_are_dropped() -> None:
    buffer = empty()
    buffer.add_records([records(A, 0, 1, 1), records(B, 0, 1)])
    buffer.add_event(Advanced(A, 9))
    buffer.drop([A])
    buffer.add_event(Assigned(A, 3))
    buffer.add_records([records(A, 3, 1)])
    assert everything(buffer) == [Assigned(A, 3), (B, 0), (A, 3)]


def test_records_of_a_paused_lane_stay_and_let_others_pass() -> None:
    buffer = empty()
    buffer.add_records([records(A, 0, 1, 1), records(B, 0, 1)])
    buffer.pause([A])
    assert [chunk.lane for chunk in buffer.take(10, 100).chunks] == [B]
    assert not buffer.take(10, 100).chunks
    buffer.resume([A])
    assert everything(buffer) == [(A, 0), (A, 1)]


def test_records_of_a_paused_lane_do_not_count() -> None:
    buffer = empty()
    buffer.add_records([records(A, 0, *[1] * 10), records(B, 0, *[1] * 5)])
    buffer.pause([A])
    assert (buffer.records, buffer.bytes) == (5, 5)
    buffer.resume([A])
    assert (buffer.records, buffer.bytes) == (15, 15)


def test_taking_back_a_lane_returns_where_its_records_began() -> None:
    buffer = empty()
    buffer.add_records([records(A, 0, 1, 1), records(B, 0, 1)])
    buffer.add_records([records(A, 2, 1)])
    assert buffer.take_back(A) == 0
    assert buffer.take_back(A) is None
    assert everything(buffer) == [(B, 0)]


def test_records_before_a_gap_are_not_taken_back() -> None:
    """The gap counts records that are lost: it would be reported twice."""
    buffer = empty()
    buffer.add_records([records(A, 0, 1)])
    buffer.add_event(Advanced(A, 5, lost=4))
    buffer.add_records([records(A, 5, 1)])
    assert buffer.take_back(A) == 5
    assert everything(buffer) == [(A, 0), Advanced(A, 5, lost=4)]


def statistics(received: int, queued: int, size: int = 100) -> dict[str, Any]:
    figures = {"rxmsgs": received, "rxbytes": received * size, "fetchq_cnt": queued}
    return {"topics": {"a": {"partitions": {"0": figures, "-1": {**figures, "rxmsgs": 0}}}}}


def test_messages_that_were_received_and_neither_wait_nor_were_taken_are_fetched_again() -> None:
    meter = RefetchMeter()
    meter.count(A, 60)
    meter.on_statistics(statistics(received=100, queued=40))
    assert meter.bytes == 0
    # A pause discards messages that wait; they come again.
    meter.on_statistics(statistics(received=140, queued=40))
    assert meter.bytes == 40 * 100
    # Buffered records that were taken back come again, too.
    meter.count(A, -10)
    meter.on_statistics(statistics(received=140, queued=40))
    assert meter.bytes == 50 * 100


def test_the_figure_never_shrinks() -> None:
    meter = RefetchMeter()
    meter.on_statistics(statistics(received=100, queued=0))
    meter.count(A, 100)
    meter.on_statistics(statistics(received=100, queued=0))
    assert meter.bytes == 100 * 100

"""What lies ready between the poll thread and the event loop."""

from hypothesis import given
from hypothesis import strategies as st

from sidecar.brokers.base import Advanced, Lost, Revoked
from sidecar.brokers.kafka.poll_buffer import Shelf
from sidecar.brokers.kafka.records import Taken
from sidecar.model.records import Assigned, Lane

A, B = Lane("a", 0), Lane("b", 0)


def taken(lane: Lane, start: int, *sizes: int) -> Taken:
    return Taken(lane, range(start, start + len(sizes)), [bytes(size) for size in sizes])


def shelf() -> Shelf:
    return Shelf(lambda: None)


def everything(shelf: Shelf, max_records: int = 10, max_bytes: int = 100) -> list[object]:
    """Events and positions in the order in which the core gets them."""
    seen: list[object] = []
    while shelf:
        polled = shelf.take(max_records, max_bytes)
        assert polled.events or polled.chunks, "nothing is taken, and yet something is there"
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
    on_it, next_ = shelf(), {A: 0, B: 0}
    for lane, sizes in drawn:
        on_it.put([taken(lane, next_[lane], *sizes)])
        next_[lane] += len(sizes)
    assert on_it.records == sum(next_.values())
    got: dict[Lane, list[int]] = {A: [], B: []}
    while on_it:
        chunks = on_it.take(max_records, max_bytes).chunks
        assert 1 <= sum(len(chunk.frames) for chunk in chunks) <= max_records
        size = sum(chunk.ends[-1] for chunk in chunks)
        assert size <= max_bytes or sum(len(chunk.frames) for chunk in chunks) == 1
        for chunk in chunks:
            got[chunk.lane] += chunk.positions
    assert got == {lane: list(range(end)) for lane, end in next_.items()}
    assert (on_it.records, on_it.bytes) == (0, 0)


def test_a_gap_keeps_its_place_among_the_records_of_its_lane() -> None:
    on_it = shelf()
    on_it.put([taken(A, 0, 1, 1)])
    on_it.tell(Advanced(A, 5))
    on_it.put([taken(A, 5, 1), taken(B, 0, 1)])
    polled = on_it.take(10, 100)
    assert [list(chunk.positions) for chunk in polled.chunks] == [[0, 1]]
    polled = on_it.take(10, 100)
    assert polled.events == [Advanced(A, 5)]
    assert [(chunk.lane, *chunk.positions) for chunk in polled.chunks] == [(A, 5), (B, 0)]


def test_other_events_go_before_everything() -> None:
    on_it = shelf()
    on_it.put([taken(B, 0, 1)])
    on_it.tell(Revoked(frozenset([A]), 3.0))
    on_it.tell(Lost(frozenset([A])))
    assert everything(on_it) == [Revoked(frozenset([A]), 3.0), Lost(frozenset([A])), (B, 0)]


def test_an_assignment_ends_what_was_there_of_the_lane() -> None:
    on_it = shelf()
    on_it.put([taken(A, 0, 1, 1), taken(B, 0, 1)])
    on_it.tell(Advanced(A, 9))
    on_it.forget([A])
    on_it.tell(Assigned(A, 3))
    on_it.put([taken(A, 3, 1)])
    assert everything(on_it) == [Assigned(A, 3), (B, 0), (A, 3)]


def test_a_paused_lane_stays_on_the_shelf_and_lets_others_pass() -> None:
    on_it = shelf()
    on_it.put([taken(A, 0, 1, 1), taken(B, 0, 1)])
    on_it.pause([A])
    assert [chunk.lane for chunk in on_it.take(10, 100).chunks] == [B]
    assert not on_it.take(10, 100).chunks
    on_it.resume([A])
    assert everything(on_it) == [(A, 0), (A, 1)]


def test_what_is_withdrawn_of_a_lane_says_where_it_began() -> None:
    on_it = shelf()
    on_it.put([taken(A, 0, 1, 1), taken(B, 0, 1)])
    on_it.put([taken(A, 2, 1)])
    assert on_it.withdraw(A) == 0
    assert on_it.withdraw(A) is None
    assert everything(on_it) == [(B, 0)]


def test_records_before_a_gap_are_not_withdrawn() -> None:
    """The gap counts records that are gone: it would be told twice."""
    on_it = shelf()
    on_it.put([taken(A, 0, 1)])
    on_it.tell(Advanced(A, 5, lost=4))
    on_it.put([taken(A, 5, 1)])
    assert on_it.withdraw(A) == 5
    assert everything(on_it) == [(A, 0), Advanced(A, 5, lost=4)]

"""The format of parked records."""

import json

import pytest

from sidecar.core.failures import retry_topic
from sidecar.core.state.record_slices import DeliveryHistory, RecordSlice
from sidecar.model.records import Chunk, Header, Lane, Message
from sidecar.model.wire import decode_frame, encode_frame
from tests.kit import lane_state, slice_of

NOW, WALL = 500.0, 1_700_000_000_000


def park(slice_: RecordSlice, *, wait: float = 3_600.0, lanes: int = 8) -> Message:
    return retry_topic.park(slice_, now=NOW, due=NOW + wait, wall_ms=WALL, lanes=lanes)


def stored(message: Message, position: int = 40) -> Chunk:
    """The message as the broker returns it from the retry topic."""
    frame = encode_frame(message.key, message.value, message.headers, message.lane or 0, position, 1)
    return Chunk(Lane("orders.offramp.retry", message.lane or 0), [position], [frame])


def unpark(chunk: Chunk, *, later: float = 0.0, possibly_processed: bool = False) -> retry_topic.Unparked:
    return retry_topic.unpark(
        chunk, 0, now=NOW + later, wall_ms=WALL + int(later * 1_000), possibly_processed=possibly_processed
    )


def test_a_parked_record_comes_back_as_it_was_with_its_past() -> None:
    past = DeliveryHistory(
        failures=3,
        counted_failures=2,
        worker_crashes=1,
        possibly_processed=True,
        first_failed=NOW - 10.0,
        max_batch_size=4,
    )
    slice_ = slice_of([17], state=lane_state(5), keys=[b"key"], history=past)
    back = unpark(stored(park(slice_)))
    assert back.chunk.frames == [slice_.chunk.frames[0]]
    assert back.chunk.shown == Lane("orders", 5)
    assert back.history == past
    assert back.not_before_ms == WALL + 3_600_000


def test_its_own_place_in_the_retry_topic_is_what_is_committed() -> None:
    back = unpark(stored(park(slice_of([17])), position=40))
    assert (back.chunk.lane.topic, [*back.chunk.positions]) == ("orders.offramp.retry", [40])


def test_when_it_first_failed_survives_a_restart_as_time_of_day() -> None:
    """The loop's clock starts again with each process."""
    message = park(slice_of(1, history=DeliveryHistory(failures=1, first_failed=NOW - 10.0)))
    back = retry_topic.unpark(stored(message), 0, now=7.0, wall_ms=WALL + 60_000, possibly_processed=False)
    assert back.history.first_failed == 7.0 - 70.0


@pytest.mark.parametrize("ahead", [-86_400.0, 86_400.0])
def test_a_wrong_clock_makes_no_wait_longer_than_was_asked_for(ahead: float) -> None:
    """The clock that parked it was a day ahead of, or behind, the one that reads it."""
    back = unpark(stored(park(slice_of(1), wait=60.0)), later=-ahead)
    assert back.not_before_ms - (WALL - ahead * 1_000) <= 60_000


@pytest.mark.parametrize("ahead", [0.0, 86_400.0])
def test_a_header_without_the_wait_has_it_from_the_timestamp_that_was_written_with_it(ahead: float) -> None:
    """Sidecars of 0.1.0 wrote no more."""
    message = park(slice_of(1), wait=60.0)
    info = json.loads(message.headers[-1].value or b"")
    del info["wait_ms"]
    header = Header(retry_topic.HEADER, json.dumps(info).encode())
    frame = encode_frame(message.key, message.value, (header,), 0, 40, WALL)
    back = unpark(Chunk(Lane("orders.offramp.retry", 0), [40], [frame]), later=-ahead)
    assert back.not_before_ms == WALL - ahead * 1_000 + 60_000


def test_a_clock_that_was_ahead_does_not_put_the_first_failure_into_the_future() -> None:
    """Otherwise no success would come after it for as long, and the record would never be given up."""
    message = park(slice_of(1, history=DeliveryHistory(failures=1, first_failed=NOW - 10.0)))
    back = retry_topic.unpark(stored(message), 0, now=7.0, wall_ms=WALL - 86_400_000, possibly_processed=False)
    assert back.history.first_failed == 7.0


def test_it_may_have_been_processed_meanwhile_from_where_it_was_parked() -> None:
    """After a crash between the write to the retry topic and the commit it is replayed from its lane, too."""
    assert unpark(stored(park(slice_of(1)))).history.possibly_processed


def test_sidecars_of_an_earlier_version_can_read_it() -> None:
    """They need the field in the header while a group has several versions."""
    assert json.loads(park(slice_of(1)).headers[-1].value or b"")["doubtful"] is True


def test_one_that_somebody_else_wrote_is_as_new_as_its_place() -> None:
    foreign = Chunk(Lane("orders.offramp.retry", 0), [40], [encode_frame(b"key", b"value", (), 0, 40)])
    assert not unpark(foreign).history.possibly_processed
    assert unpark(foreign, possibly_processed=True).history.possibly_processed


@pytest.mark.parametrize(
    ("wait", "lane"), [(0.0, 0), (60.0, 0), (61.0, 1), (240.0, 1), (241.0, 2), (3_600.0, 3), (1e9, 7)]
)
def test_waits_of_one_order_of_magnitude_share_a_lane(wait: float, lane: int) -> None:
    """So that a short wait never queues behind a long one."""
    assert park(slice_of(1), wait=wait).lane == lane


def test_a_retry_topic_with_one_lane_takes_every_wait() -> None:
    assert park(slice_of(1), wait=1e9, lanes=1).lane == 0


def test_a_redriven_record_has_all_its_attempts_before_it_and_is_due_at_once() -> None:
    frame = encode_frame(b"key", b"value", (), 3, 9)
    back = unpark(stored(retry_topic.redriven(decode_frame(frame), "orders", "its id", wall_ms=WALL)))
    assert back.chunk.topic_id == "its id"
    assert back.history == DeliveryHistory(possibly_processed=True)
    assert back.not_before_ms == WALL
    assert decode_frame(back.chunk.frames[0]).position == 9


def test_a_record_that_offramp_did_not_write_is_delivered_as_it_is() -> None:
    foreign = stored(Message(b"key", b"value", (Header("h", b"1"),)))
    back = unpark(foreign)
    assert back.chunk.frames == foreign.frames
    assert back.chunk.shown == foreign.lane
    assert back.not_before_ms == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"v": 2},
        {"position": -1},
        {"lane": "0"},
        {"topic": None},
        {"deaths": 1.5},
        {"failures": (1 << 32) - 1},
        {"wait_ms": -1},
    ],
)
def test_a_header_that_cannot_be_used_is_left_alone(wrong: dict[str, object]) -> None:
    message = park(slice_of(1))
    value = message.headers[-1].value
    assert value is not None
    spoilt = Header(retry_topic.HEADER, json.dumps(json.loads(value) | wrong).encode())
    back = unpark(stored(Message(message.key, message.value, (*message.headers[:-1], spoilt))))
    assert decode_frame(back.chunk.frames[0]).headers[-1] == spoilt
    assert back.chunk.origin is None

"""Messages of Kafka to frames."""

import pytest
from confluent_kafka import KafkaError, Message
from hypothesis import given
from hypothesis import strategies as st

from sidecar.brokers.kafka.records import encode
from sidecar.model.records import Header, Lane
from sidecar.model.wire import decode_frame, encode_frame

blobs = st.none() | st.binary(max_size=40) | st.binary(min_size=120, max_size=140)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
records = st.tuples(
    st.sampled_from(["a", "b"]),
    st.integers(0, 200),
    blobs,
    blobs,
    headers,
    st.sampled_from([-1, 0, 7, 1_700_000_000_000]),
)


def message(topic: str, lane: int, position: int, **more: object) -> Message:
    return Message(topic=topic, partition=lane, offset=position, **{"timestamp": (1, 0), **more})  # type: ignore[arg-type]


@given(st.lists(records, max_size=30), st.integers(0, 1 << 40), st.integers(1, 3))
def test_frames_are_what_the_wire_says_lane_by_lane_and_in_order(
    drawn: list[tuple[str, int, bytes | None, bytes | None, list[tuple[str, bytes | None]], int]], start: int, step: int
) -> None:
    messages, expected = [], dict[Lane, list[tuple[int, bytes]]]()
    for number, (topic, lane, key, value, head, time) in enumerate(drawn):
        position = start + number * step
        messages.append(message(topic, lane, position, key=key, value=value, headers=head or None, timestamp=(1, time)))
        frame = encode_frame(key, value, [Header(*each) for each in head], lane, position, time)
        expected.setdefault(Lane(topic, lane), []).append((position, frame))
    taken, tidings = encode(messages)
    assert not tidings
    assert {each.lane: list(zip(each.positions, each.frames, strict=True)) for each in taken} == expected


@pytest.mark.parametrize("start", [0, (1 << 14) - 2, (1 << 28) - 2])
@pytest.mark.parametrize("size", [127, 128, (1 << 14) - 1, 1 << 14])
def test_frames_are_what_the_wire_says_where_numbers_get_longer(start: int, size: int) -> None:
    positions, blob = range(start, start + 5), b"x" * size
    (taken,) = encode([message("a", 1, position, key=blob, value=blob) for position in positions]).taken
    assert taken.frames == [encode_frame(blob, blob, (), 1, position) for position in positions]


def test_what_is_no_record_is_put_aside() -> None:
    end = message("a", 0, 9, error=KafkaError(KafkaError._PARTITION_EOF))
    taken, tidings = encode([message("a", 0, 7, value=b"x"), end, message("a", 0, 9, value=b"y")])
    assert tidings == [end]
    assert [each.positions for each in taken] == [[7, 9]]


def test_positions_without_gaps_take_no_room() -> None:
    (taken,) = encode([message("a", 3, position, value=b"x") for position in range(100, 200)]).taken
    assert taken.positions == range(100, 200)
    assert decode_frame(taken.frames[5]).position == 105


def test_what_comes_twice_is_left_out() -> None:
    (taken,) = encode([message("a", 0, position, value=b"%d" % position) for position in (5, 8, 9)]).taken
    assert list(taken.starting_at(4).positions) == [5, 8, 9]
    assert list(taken.starting_at(6).positions) == [8, 9]
    assert [decode_frame(frame).value for frame in taken.starting_at(9).frames] == [b"9"]
    assert not taken.starting_at(10).frames

"""Messages of the library as frames."""

import pytest
from confluent_kafka import KafkaError, Message
from hypothesis import given
from hypothesis import strategies as st

from sidecar.brokers.kafka.records import add_instance, encode, instance_filter
from sidecar.model.records import Header, Lane
from sidecar.model.records import Message as ToPublish
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
    encoded = encode(messages)
    assert not encoded.error_messages
    found = {each.lane: list(zip(each.positions, each.frames, strict=True)) for each in encoded.records}
    assert found == expected


@pytest.mark.parametrize("start", [0, (1 << 14) - 2, (1 << 28) - 2])
@pytest.mark.parametrize("size", [127, 128, (1 << 14) - 1, 1 << 14])
def test_frames_are_what_the_wire_says_where_numbers_get_longer(start: int, size: int) -> None:
    positions, blob = range(start, start + 5), b"x" * size
    (found,) = encode([message("a", 1, position, key=blob, value=blob) for position in positions]).records
    assert found.frames == [encode_frame(blob, blob, (), 1, position) for position in positions]


def test_error_messages_are_returned_apart() -> None:
    end = message("a", 0, 9, error=KafkaError(KafkaError._PARTITION_EOF))
    encoded = encode([message("a", 0, 7, value=b"x"), end, message("a", 0, 9, value=b"y")])
    assert encoded.error_messages == [end]
    assert [each.positions for each in encoded.records] == [[7, 9]]


def test_positions_without_gaps_take_no_memory() -> None:
    (found,) = encode([message("a", 3, position, value=b"x") for position in range(100, 200)]).records
    assert found.positions == range(100, 200)
    assert decode_frame(found.frames[5]).position == 105


def test_records_before_a_position_are_left_out() -> None:
    (found,) = encode([message("a", 0, position, value=b"%d" % position) for position in (5, 8, 9)]).records
    assert list(found.starting_at(4).positions) == [5, 8, 9]
    assert list(found.starting_at(6).positions) == [8, 9]
    assert [decode_frame(frame).value for frame in found.starting_at(9).frames] == [b"9"]
    assert not found.starting_at(10).frames


def test_in_a_broadcast_a_pod_gets_back_only_the_retry_records_that_it_wrote() -> None:
    own = ToPublish(b"k", b"v", headers=(Header("h", b"1"),))
    (written,) = add_instance([own], "pod-0")
    assert written.headers == (Header("h", b"1"), Header("offramp-instance", b"pod-0"))
    headers = [(header.name, header.value) for header in written.headers]
    mine, other = (message("retry", 0, position, value=b"v", headers=headers) for position in (7, 8))
    other.set_headers([("offramp-instance", b"pod-1")])
    end = message("retry", 0, 9, error=KafkaError(KafkaError._PARTITION_EOF))
    topic = message("orders", 0, 7, value=b"v")
    kept = instance_filter(["retry"], "pod-0")([mine, other, topic, end])
    assert kept == [mine, topic, end]
    assert mine.headers() == [("h", b"1")]

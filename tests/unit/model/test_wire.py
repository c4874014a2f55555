"""Encoding records and batches."""

import pytest

from offramp.v1 import consumer_pb2, record_pb2
from sidecar.model import wire
from sidecar.model.records import ClosedBy, Delivery, Header, Redelivery


def test_a_null_is_not_an_empty_key_value_or_header() -> None:
    null = wire.decode_frame(wire.encode_frame(None, None, (Header("h", None),), 0, 0))
    empty = wire.decode_frame(wire.encode_frame(b"", b"", (Header("h", b""),), 0, 0))
    assert (null.key, null.value, null.headers[0].value) == (None, None, None)
    assert (empty.key, empty.value, empty.headers[0].value) == (b"", b"", b"")


def test_headers_may_repeat_and_keep_their_order() -> None:
    headers = (Header("b", b"1"), Header("a", b"2"), Header("b", b"3"))
    assert wire.decode_frame(wire.encode_frame(None, b"", headers, 0, 0)).headers == headers


def test_frames_joined_are_the_records_of_a_batch() -> None:
    frames = [wire.encode_frame(None, bytes([n]), (), 1, n) for n in range(3)]
    batch = record_pb2.Batch.FromString(b"".join(frames))
    assert [record.position for record in batch.records] == [0, 1, 2]


@pytest.mark.parametrize("key", [None, b"", b"k", b"k" * 127, b"k" * 128, b"k" * 20_000])
@pytest.mark.parametrize("value", [None, b"", b"v" * 100_000])
def test_a_key_is_found_without_decoding_the_record(key: bytes | None, value: bytes | None) -> None:
    assert wire.key_of(wire.encode_frame(key, value, (Header("h", b"1"),), 3, 4)) == key


def test_a_record_without_anything_has_no_key() -> None:
    assert wire.key_of(wire.encode_frame(None, None, (), 0, 0)) is None


@pytest.mark.parametrize("number", [0, 127, 128, (1 << 14) - 1, 1 << 14, (1 << 32) - 1, (1 << 63) - 1])
def test_positions_of_every_length_are_written_as_protobuf_does(number: int) -> None:
    frame = wire.encode_frame(None, None, (), 0, number)
    assert wire.record_bytes(frame) == record_pb2.Record(position=number).SerializeToString()


def test_a_batch_is_the_same_in_both_responses() -> None:
    frame = wire.encode_frame(b"k", b"v", (), 2, 7)
    again = (Redelivery(0, 1, 3, True),)
    delivery = Delivery(b"lease", "orders", (2,), [frame], 1, len(frame), again, 1.5, ClosedBy.RETRY, "an id")
    consumed = b"".join(wire.encode_batch(wire.CONSUME_BATCH_TAG, delivery)[0])
    fetched = b"".join(wire.encode_batch(wire.FETCH_BATCH_TAG, delivery)[0])
    (batch,) = consumer_pb2.ConsumeResponse.FromString(consumed).batches
    assert [batch] == list(consumer_pb2.FetchResponse.FromString(fetched).batches)
    assert (batch.lease, batch.topic, list(batch.lanes), batch.lease_for_ms) == (b"lease", "orders", [2], 1_500)
    assert (batch.redeliveries[0].attempt, batch.redeliveries[0].possibly_processed) == (3, True)

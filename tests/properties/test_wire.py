"""What is encoded by hand can be read by the generated classes."""

from hypothesis import given
from hypothesis import strategies as st

from offramp.v1 import consumer_pb2, record_pb2
from sidecar.model import wire
from sidecar.model.records import ClosedBy, Delivery, Header, Record, Redelivery

texts = st.text(st.characters(codec="utf-8"), max_size=40)
maybe_bytes = st.none() | st.binary(max_size=300)
headers = st.lists(st.builds(Header, texts, st.none() | st.binary(max_size=200)), max_size=4).map(tuple)
records = st.builds(
    Record,
    key=maybe_bytes,
    value=st.none() | st.binary(max_size=300) | st.integers(0, 40_000).map(bytes),
    headers=headers,
    lane=st.integers(0, (1 << 32) - 1),
    position=st.integers(0, (1 << 63) - 1),
    timestamp_ms=st.integers(0, (1 << 63) - 1),
    ref=st.binary(max_size=40),
)
redeliveries = st.builds(
    Redelivery,
    first=st.integers(0, 1 << 31),
    count=st.integers(0, 1 << 31),
    attempt=st.integers(0, 1 << 31),
    possibly_processed=st.booleans(),
)


def encode(record: Record) -> bytes:
    return wire.encode_frame(
        record.key, record.value, record.headers, record.lane, record.position, record.timestamp_ms, record.ref
    )


@given(records)
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    frame = encode(record)
    assert wire.decode_frame(frame) == record
    batch = record_pb2.Batch.FromString(frame)
    assert [wire.to_record(each) for each in batch.records] == [record]


@given(records)
def test_the_key_of_a_frame_is_the_key_of_its_record(record: Record) -> None:
    assert wire.key_of(encode(record)) == record.key


@given(st.integers(0, (1 << 64) - 1))
def test_numbers_are_written_as_protobuf_writes_them(number: int) -> None:
    message = record_pb2.Batch(lease_for_ms=number or 1)
    assert message.SerializeToString() == b"\x30" + wire.varint(number or 1)


deliveries = st.builds(
    Delivery,
    lease=st.binary(min_size=1, max_size=20),
    topic=texts,
    lanes=st.lists(st.integers(0, (1 << 32) - 1), max_size=4).map(tuple),
    frames=st.lists(records, max_size=5).map(lambda records: [encode(record) for record in records]),
    records=st.just(0),
    size=st.just(0),
    redeliveries=st.lists(redeliveries, max_size=3).map(tuple),
    lease_for=st.floats(0.0, 1e9),
    closed_by=st.sampled_from(ClosedBy),
)


def measured(delivery: Delivery) -> Delivery:
    return Delivery(
        delivery.lease,
        delivery.topic,
        delivery.lanes,
        delivery.frames,
        len(delivery.frames),
        sum(map(len, delivery.frames)),
        delivery.redeliveries,
        delivery.lease_for,
        delivery.closed_by,
    )


@given(st.lists(deliveries.map(measured), max_size=3))
def test_batches_are_read_as_they_were_written(batches: list[Delivery]) -> None:
    """In either response, with any number of batches."""
    consumed = b"".join(_encoded(wire.CONSUME_BATCH_TAG, each) for each in batches)
    fetched = b"".join(_encoded(wire.FETCH_BATCH_TAG, each) for each in batches)
    read = consumer_pb2.ConsumeResponse.FromString(consumed).batches
    assert list(read) == list(consumer_pb2.FetchResponse.FromString(fetched).batches)
    assert len(read) == len(batches)
    for batch, delivery in zip(read, batches, strict=True):
        assert batch.lease == delivery.lease
        assert batch.topic == delivery.topic
        assert tuple(batch.lanes) == delivery.lanes
        assert [wire.to_record(each) for each in batch.records] == [*map(wire.decode_frame, delivery.frames)]
        assert [
            Redelivery(each.first, each.count, each.attempt, each.possibly_processed) for each in batch.redeliveries
        ] == list(delivery.redeliveries)
        assert batch.lease_for_ms == int(delivery.lease_for * 1000)
        assert int(batch.closed_by) == int(delivery.closed_by)


def _encoded(tag: bytes, delivery: Delivery) -> bytes:
    pieces, size = wire.encode_batch(tag, delivery)
    encoded = b"".join(pieces)
    assert len(encoded) == size
    return encoded

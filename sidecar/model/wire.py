"""Encodes records and batches as protobuf, and decodes records.

A record is encoded once, when it comes from the broker, and its bytes serve every delivery. Records and batches are
encoded by hand, without an object per record; small or rare messages use the generated classes.
"""

from collections.abc import Iterable
from functools import lru_cache

from offramp.v1 import record_pb2 as pb
from sidecar.model.records import Delivery, Header, Record, Redelivery

#: Batch.records and ReadRangeResponse.records: field 4, length-delimited
_RECORD_TAG = b"\x22"
#: ConsumeResponse.batches: field 2; FetchResponse.batches: field 1
CONSUME_BATCH_TAG = b"\x12"
FETCH_BATCH_TAG = b"\x0a"

#: varints of up to 14 bits, for loops that cannot afford a call for each
SMALL = [bytes([n]) for n in range(128)] + [bytes([n & 127 | 128, n >> 7]) for n in range(128, 1 << 14)]
#: 14 bits that are followed by more bits
MORE = [bytes([n & 127 | 128, n >> 7 | 128]) for n in range(1 << 14)]


def varint(number: int) -> bytes:
    if number < 1 << 14:
        return SMALL[number]
    # Positions and timestamps are long: two bytes at a time.
    return MORE[number & 16383] + varint(number >> 14)


def encode_header(header: Header) -> bytes:
    name = header.name.encode()
    body = b"\x0a" + varint(len(name)) + name
    if header.value is not None:
        body += b"\x12" + varint(len(header.value)) + header.value
    return b"\x1a" + varint(len(body)) + body


def encode_frame(
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[Header],
    lane: int,
    position: int,
    timestamp_ms: int = 0,
    ref: bytes = b"",
) -> bytes:
    """A record as a field of a batch, tag and length included."""
    head = b"" if key is None else b"\x0a" + varint(len(key)) + key
    if value is None:
        value = b""
    else:
        head += b"\x12" + varint(len(value))
    tail = b"".join(map(encode_header, headers))
    if lane:
        tail += b"\x20" + varint(lane)
    if position:
        tail += b"\x28" + varint(position)
    if ref:
        tail += b"\x32" + varint(len(ref)) + ref
    if timestamp_ms > 0:
        tail += b"\x38" + varint(timestamp_ms)
    # The value, which may be large, is copied once.
    return b"".join((_RECORD_TAG, varint(len(head) + len(value) + len(tail)), head, value, tail))


def record_bytes(frame: bytes) -> bytes:
    """The record of a frame, without tag and length."""
    start = 1
    while frame[start] & 128:
        start += 1
    return frame[start + 1 :]


def decode_frame(frame: bytes) -> Record:
    return to_record(pb.Record.FromString(record_bytes(frame)))


def to_record(message: pb.Record) -> Record:
    return Record(
        key=message.key if message.HasField("key") else None,
        value=message.value if message.HasField("value") else None,
        headers=tuple(Header(h.name, h.value if h.HasField("value") else None) for h in message.headers),
        lane=message.lane,
        position=message.position,
        timestamp_ms=message.timestamp_ms,
        ref=message.ref,
    )


def key_of(frame: bytes) -> bytes | None:
    """The key of a frame's record, without decoding the rest: the encoder writes it first."""
    at = 1
    while frame[at] & 128:
        at += 1
    at += 1
    if at >= len(frame) or frame[at] != 0x0A:
        return None
    length, shift = 0, 0
    while True:
        at += 1
        length |= (frame[at] & 127) << shift
        if frame[at] < 128:
            break
        shift += 7
    return frame[at + 1 : at + 1 + length]


def encode_batch(tag: bytes, delivery: Delivery) -> tuple[list[bytes], int]:
    """A batch as a field of a response, in pieces to be joined with those of other fields, and its size in bytes."""
    origin = _encode_origin(delivery.topic, delivery.lanes, delivery.topic_id)
    tail = _encode_tail(delivery.lease_for, delivery.closed_by)
    if delivery.redeliveries:
        tail = _encode_redeliveries(delivery.redeliveries) + tail
    lease = delivery.lease
    length = 2 + len(lease) + len(origin) + delivery.size + len(tail)
    head = b"%b%b\x0a%c%b%b" % (tag, varint(length), len(lease), lease, origin)
    return [head, *delivery.frames, tail], len(head) + delivery.size + len(tail)


@lru_cache(maxsize=1024)
def _encode_origin(topic: str, lanes: tuple[int, ...], topic_id: str) -> bytes:
    """Topic and lanes. Cached, because they repeat."""
    name = topic.encode()
    numbers = b"".join(map(varint, lanes))
    origin = b"".join((b"\x12", varint(len(name)), name, b"\x1a", varint(len(numbers)), numbers))
    return origin + b"\x42" + varint(len(topic_id)) + topic_id.encode() if topic_id else origin


@lru_cache(maxsize=1024)
def _encode_tail(lease_for: float, closed_by: int) -> bytes:
    lease_for_ms = int(lease_for * 1000)
    return (b"\x30" + varint(lease_for_ms) if lease_for_ms else b"") + b"\x38" + varint(closed_by)


def _encode_redeliveries(redeliveries: Iterable[Redelivery]) -> bytes:
    parts = []
    for redelivery in redeliveries:
        body = pb.Redelivery(
            first=redelivery.first,
            count=redelivery.count,
            attempt=redelivery.attempt,
            possibly_processed=redelivery.possibly_processed,
        ).SerializeToString()
        parts.append(b"\x2a" + varint(len(body)) + body)
    return b"".join(parts)

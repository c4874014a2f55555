"""Messages of the library to records, and back. Pure.

The key of a Pulsar message is a text, and its properties are a map of texts. What does not fit into those (a key that
is empty or not UTF-8; headers that are null, binary, repeated or not sorted) is written beside them, in properties that
only Offramp reads, and comes back exactly.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import _pulsar

from sidecar.brokers.pulsar.unacked import UnackedMessages
from sidecar.model.records import Chunk, Header, Lane, Message
from sidecar.model.wire import encode_frame, encode_header, varint

#: property: the key in base64, where it is not a text
KEY = "offramp-key"
#: property: all headers, as a list of pairs with values in base64, where a map of texts cannot hold them
HEADERS = "offramp-headers"
#: the one header of a record whose properties cannot be read
UNREADABLE = "offramp-unreadable"


class ReceivedBatch(NamedTuple):
    """Messages of one lane that arrived together, encoded."""

    positions: list[int]
    frames: list[bytes]
    #: how often the broker delivered each of them before
    counts: list[int]

    def cut(self, start: int, stop: int) -> "ReceivedBatch":
        return ReceivedBatch(self.positions[start:stop], self.frames[start:stop], self.counts[start:stop])

    def chunk(self, lane: Lane, *, possibly_processed: bool) -> Chunk:
        return Chunk(
            lane,
            self.positions,
            self.frames,
            self.counts if any(self.counts) else None,
            possibly_processed=possibly_processed,
        )


def encode_batch(messages: Iterable[Any], lane: int, unacked: UnackedMessages) -> ReceivedBatch:
    """Adds messages to the unacked ones, and encodes those that are not duplicates as `wire.encode_frame` does. This is
    the hot path."""
    positions: list[int] = []
    frames: list[bytes] = []
    counts: list[int] = []
    join, add_id = b"".join, unacked.add_id
    mark = b"\x20" + varint(lane) + b"\x28" if lane else b"\x28"
    stamp = -1
    stamped = b""
    for message in messages:
        id_ = message.message_id()
        ledger, entry, index = id_.ledger_id(), id_.entry_id(), id_.batch_index()
        position = add_id(id_, ledger, entry, index)
        if position < 0:
            continue
        headers = b""
        try:
            key = message.partition_key().encode()
            properties = message.properties()
        except UnicodeDecodeError:
            key, properties = _readable(message)
        if properties:
            found, headers = _encode_headers(properties, key)
            head = b"" if found is None else b"\x0a" + varint(len(found)) + found
        else:
            head = b"\x0a" + varint(len(key)) + key if key else b""
        value = message.data()
        if value or not message.has_null_value():
            head += b"\x12" + varint(len(value))
        time = message.event_timestamp() or message.publish_timestamp()
        if time != stamp:
            # Mostly the same as that of the message before.
            stamp = time
            stamped = b"\x38" + varint(time)
        ref = b"%d:%d:%d" % (ledger, entry, index if index > 0 else 0)
        tail = join((headers, mark, varint(position), b"\x32", varint(len(ref)), ref, stamped))
        frames.append(join((b"\x22", varint(len(head) + len(value) + len(tail)), head, value, tail)))
        positions.append(position)
        counts.append(message.redelivery_count())
    return ReceivedBatch(positions, frames, counts)


def encode_one(message: Any, lane: int, position: int) -> bytes:
    """The frame of a message that is read without a group."""
    text, properties = _readable(message)
    key, headers = key_and_headers(properties, text) if properties else (text or None, ())
    value = None if message.has_null_value() else message.data()
    id_ = message.message_id()
    ref = b"%d:%d:%d" % (id_.ledger_id(), id_.entry_id(), max(0, id_.batch_index()))
    return encode_frame(
        key, value, headers, lane, position, message.event_timestamp() or message.publish_timestamp(), ref
    )


def _readable(message: Any) -> tuple[bytes, dict[str, str]]:
    """The key and the properties of a message. The library assumes UTF-8, which not every producer writes. It returns a
    key that it cannot decode with the error; of properties it returns all or none."""
    try:
        key = message.partition_key().encode()
    except UnicodeDecodeError as error:
        key = error.object
    try:
        properties = message.properties()
    except UnicodeDecodeError:
        properties = {UNREADABLE: "properties"}
    return key, properties


def build_message(message: Message) -> Any:
    """The library's form of a message to publish."""
    builder = _pulsar.MessageBuilder()
    if message.value is None:
        builder.set_null_value()
    else:
        builder.content(message.value)
    key, properties = key_and_properties(message.key, message.headers)
    if key:
        builder.partition_key(key)
    for name, value in properties.items():
        builder.property(name, value)
    if message.timestamp_ms > 0:
        builder.event_timestamp(message.timestamp_ms)
    if message.deliver_after:
        builder.deliver_after(timedelta(seconds=message.deliver_after))
    return builder.build()


def key_and_properties(key: bytes | None, headers: Sequence[Header]) -> tuple[str, dict[str, str]]:
    """The key and the properties of a Pulsar message."""
    text = routing_key(key)
    properties: dict[str, str] = {}
    for name, value in headers:
        text_value = _text(value)
        if text_value is not None:
            properties[name] = text_value
    exact = [Header(name, text_value.encode()) for name, text_value in sorted(properties.items())]
    if list(headers) != exact or KEY in properties or HEADERS in properties:
        properties[HEADERS] = json.dumps([(name, _base64(value)) for name, value in headers])
    if (key is not None and text.encode() != key) or key == b"":
        properties[KEY] = _base64(key) or ""
    return text, properties


def routing_key(key: bytes | None) -> str:
    """The key as a text, in base64 if it is not UTF-8; empty if there is none."""
    if not key:
        return ""
    text = _text(key)
    return text if text is not None else b64encode(key).decode()


def key_and_headers(properties: dict[str, str], key: bytes) -> tuple[bytes | None, tuple[Header, ...]]:
    """The key and the headers of a record. `key` is the message's, empty for none."""
    try:
        found = b64decode(properties[KEY], validate=True) if KEY in properties else key or None
        if HEADERS in properties:
            return found, tuple(_header(name, value) for name, value in json.loads(properties[HEADERS]))
    except (ValueError, TypeError, RecursionError):
        # Not written by Offramp: they are properties like any other.
        return key or None, _plain(properties)
    return found, _plain({name: value for name, value in properties.items() if name != KEY})


def _header(name: object, value: str | None) -> Header:
    if not isinstance(name, str):
        raise TypeError("a header has a name")
    # Raises for half a surrogate pair, which JSON can hold and UTF-8 cannot.
    name.encode()
    return Header(name, None if value is None else b64decode(value, validate=True))


def _plain(properties: dict[str, str]) -> tuple[Header, ...]:
    return tuple(Header(name, value.encode()) for name, value in sorted(properties.items()))


def _encode_headers(properties: dict[str, str], key: bytes) -> tuple[bytes | None, bytes]:
    found, headers = key_and_headers(properties, key)
    return found, b"".join(map(encode_header, headers))


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _base64(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()

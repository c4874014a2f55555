"""Entries of a stream as messages, and back; their ids as numbers. Pure.

The field `value` (or what is configured) is the value, `key` the key, and all other fields are headers, in order. What
does not fit into that, such as a null value or a timestamp of the publisher's, is told by one more field in front.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sidecar.brokers.queue.driver import Received
from sidecar.model.records import Header, Message

#: the field in front, a JSON object: which of the fields that follow is what
_SHAPE = b"offramp"
#: bits of the second part of an id in a number, and limits of both parts
_SEQUENCE_BITS = 21
_MOST_MS, _MOST_SEQUENCE = 1 << 42, 1 << _SEQUENCE_BITS
_MOST_DELIVERIES = 1 << 31


@dataclass(frozen=True, slots=True)
class Mapping:
    """Which field is the value, and which the key."""

    value: bytes
    key: bytes

    def fields(self, message: Message) -> list[bytes]:
        """Names and values in turn, as `XADD` takes them."""
        headers = [(header.name.encode(), header.value) for header in message.headers]
        found: list[bytes] = []
        if self._needs_shape(message, headers):
            found += (_SHAPE, _shape_of(message))
        if message.key is not None:
            found += (self.key, message.key)
        if message.value is not None:
            found += (self.value, message.value)
        for name, value in headers:
            found += (name, value or b"")
        return found

    def _needs_shape(self, message: Message, headers: Sequence[tuple[bytes, bytes | None]]) -> bool:
        if message.value is None or message.timestamp_ms > 0:
            return True
        taken = (_SHAPE, self.key) if message.key is None else (_SHAPE,)
        return any(value is None or name in taken for name, value in headers)

    def received(self, entries: Iterable[Any], *, again: bool, counts: Iterable[int] = ()) -> list[Received[bytes]]:
        """Messages of entries as the library returns them, each an id and a flat list of fields. `again`: somebody may
        have had them before, so many times. The hot path."""
        found = []
        value_field, key_field = self.value, self.key
        for id_, fields in entries:
            time, _, sequence = id_.partition(b"-")
            ms, low = int(time), int(sequence)
            number = _number(ms, low)
            # Most entries have a value, or a key and a value.
            if len(fields) == 2 and fields[0] == value_field:
                found.append(Received(id_, None, fields[1], (), ms, id_, number, 0, again))
            elif len(fields) == 4 and fields[0] == key_field and fields[2] == value_field:
                found.append(Received(id_, fields[1], fields[3], (), ms, id_, number, 0, again))
            elif fields[0] == _SHAPE and (shaped := self._by_shape(fields)) is not None:
                key, value, headers, timestamp = shaped
                found.append(Received(id_, key, value, headers, timestamp or ms, id_, number, 0, again))
            else:
                key = value = None
                headers = []
                for at in range(0, len(fields), 2):
                    name = fields[at]
                    if name == value_field and value is None:
                        value = fields[at + 1]
                    elif name == key_field and key is None:
                        key = fields[at + 1]
                    else:
                        headers.append(_header(name, fields[at + 1]))
                found.append(Received(id_, key, value, headers, ms, id_, number, 0, again))
        for index, count in enumerate(counts):
            found[index] = found[index]._replace(delivered_before=min(count, _MOST_DELIVERIES))
        return found

    def _by_shape(self, fields: Sequence[bytes]) -> tuple[bytes | None, bytes | None, list[Header], int] | None:
        """None if somebody else wrote a field of that name."""
        try:
            shape = json.loads(fields[1])
            has_key, has_value = bool(shape["key"]), bool(shape["value"])
            nulls, timestamp = frozenset(shape.get("null_headers", ())), int(shape.get("timestamp_ms", 0))
        except (ValueError, TypeError, KeyError):
            return None
        start = 2 + 2 * has_key + 2 * has_value
        if len(fields) < start or not 0 <= timestamp < 1 << 63:
            return None
        key = fields[3] if has_key else None
        value = fields[start - 1] if has_value else None
        headers = [_header(fields[at], fields[at + 1]) for at in range(start, len(fields), 2)]
        return key, value, [Header(h.name, None) if n in nulls else h for n, h in enumerate(headers)], timestamp


def number_of(id_: bytes) -> int:
    """An id as a number that ascends like it; -1 if it is too large for that, as ids of a producer's own may be."""
    ms, _, sequence = id_.partition(b"-")
    return _number(int(ms), int(sequence))


def _number(ms: int, sequence: int) -> int:
    return (ms << _SEQUENCE_BITS) + sequence if ms < _MOST_MS and sequence < _MOST_SEQUENCE else -1


def _shape_of(message: Message) -> bytes:
    shape: dict[str, Any] = {"key": message.key is not None, "value": message.value is not None}
    if message.timestamp_ms > 0:
        shape["timestamp_ms"] = message.timestamp_ms
    if nulls := [number for number, header in enumerate(message.headers) if header.value is None]:
        shape["null_headers"] = nulls
    return json.dumps(shape).encode()


def _header(name: bytes, value: bytes) -> Header:
    return Header(name.decode(errors="backslashreplace"), value)


def size_of(message: Message) -> int:
    headers = sum(len(header.name.encode()) + len(header.value or b"") for header in message.headers)
    return len(message.key or b"") + len(message.value or b"") + headers

"""Records and messages as lines of JSON for people and `jq`: numbers are numbers, text is text.

What `record_line` writes, `parse_message` reads. Bytes that are not UTF-8 are base64 under another name
(`value_base64`); null stays null.
"""

import base64
import binascii
import json
import re
from collections.abc import MutableMapping, MutableSequence
from typing import Any

from google.protobuf.message import Message

from offramp.v1 import publish_pb2, record_pb2
from sidecar.model.errors import OfframpError
from sidecar.model.text import clean_json

_KNOWN = ("key", "value", "headers", "lane", "timestamp_ms")
#: what `offramp consume` writes about a record and what means nothing for a new message
_IGNORED = ("topic", "position", "attempt", "possibly_processed")


def to_json(value: Any) -> str:
    return clean_json(_dumps(value))


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def plain(message: Message) -> dict[str, Any]:
    """A protobuf message as a dictionary with all its fields: enums as words, bytes as hex."""
    out: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if isinstance(value, MutableMapping):
            out[field.name] = dict(sorted(value.items()))
        elif isinstance(value, MutableSequence):
            out[field.name] = [_plain_value(field, item) for item in value]
        else:
            out[field.name] = _plain_value(field, value)
    return out


def _plain_value(field: Any, value: Any) -> Any:
    if isinstance(value, Message):
        return plain(value)
    if isinstance(value, bytes):
        return value.hex()
    if field.enum_type is not None:
        return enum_word(field.enum_type, value)
    return value


def enum_word(enum: Any, number: int) -> str:
    """`running` for SUBSCRIPTION_STATE_RUNNING; the number itself if this version does not know it."""
    known = enum.values_by_number.get(number)
    if known is None:
        return str(number)
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"
    return str(known.name.removeprefix(prefix).lower())


def payload(record: record_pb2.Record) -> dict[str, Any]:
    """Key, value and headers of a record."""
    headers = [{"name": h.name, **_text("value", h.value if h.HasField("value") else None)} for h in record.headers]
    return {
        **_text("key", record.key if record.HasField("key") else None),
        **_text("value", record.value if record.HasField("value") else None),
        "headers": headers,
    }


def record_line(topic: str, record: record_pb2.Record, redelivery: record_pb2.Redelivery | None) -> bytes:
    """A delivered record as a line of JSON."""
    line: dict[str, Any] = {"topic": topic, "lane": record.lane, "position": record.position}
    if record.timestamp_ms:
        line["timestamp_ms"] = record.timestamp_ms
    line |= payload(record)
    if redelivery is not None:
        line["attempt"] = redelivery.attempt
        line["possibly_processed"] = redelivery.possibly_processed
    return to_json(line).encode() + b"\n"


def batch_lines(batch: record_pb2.Batch) -> list[bytes]:
    redeliveries: dict[int, record_pb2.Redelivery] = {
        index: part for part in batch.redeliveries for index in range(part.first, part.first + part.count)
    }
    return [record_line(batch.topic, record, redeliveries.get(i)) for i, record in enumerate(batch.records)]


def _text(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def parse_message(line: bytes, number: int) -> publish_pb2.Message:
    """A message from a line of JSON. Raises `OfframpError` with the number of the line."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise OfframpError(f"line {number} is not JSON: {error}") from None
    except RecursionError:
        raise OfframpError(f"line {number} is nested too deeply") from None
    if not isinstance(fields, dict):
        raise OfframpError(f'line {number} is not a JSON object such as {{"key": "k", "value": "v"}}')
    for name in fields:
        if name.removesuffix("_base64") not in _KNOWN and name not in _IGNORED:
            raise OfframpError(f'line {number}: "{name}" is not one of {", ".join(_KNOWN)}, key_base64, value_base64')
    try:
        return publish_pb2.Message(
            key=_bytes(fields, "key"),
            value=_bytes(fields, "value"),
            headers=_headers(fields.get("headers")),
            lane=_whole(fields, "lane", 1 << 32),
            timestamp_ms=_whole(fields, "timestamp_ms", 1 << 63),
        )
    except ValueError as error:
        raise OfframpError(f"line {number}: {error}") from None


def _whole(fields: dict[str, Any], name: str, below: int) -> int | None:
    number = fields.get(name)
    if number is not None and (type(number) is not int or not 0 <= number < below):
        raise ValueError(f"{name} is not a whole number")
    return number


def _bytes(fields: dict[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    value = fields.get(name)
    if encoded is None:
        if value is None or isinstance(value, str):
            return None if value is None else value.encode()
        return _dumps(value).encode()
    if value is not None:
        raise ValueError(f"has both {name} and {name}_base64")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise ValueError(f"{name}_base64 is not base64") from None


def _headers(given: Any) -> list[record_pb2.Header]:
    """From an object, or from a list of objects with `name` and `value`, in which names may repeat."""
    if given is None:
        return []
    if isinstance(given, dict):
        given = [{"name": name, "value": value} for name, value in given.items()]
    if not isinstance(given, list) or not all(isinstance(header, dict) for header in given):
        raise ValueError("headers is neither an object nor a list of objects")
    headers = []
    for header in given:
        if not isinstance(header.get("name"), str):
            raise ValueError("a header has no name")
        headers.append(record_pb2.Header(name=header["name"], value=_bytes(header, "value")))
    return headers

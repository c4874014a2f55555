"""Protobuf messages and records as JSON that people and `jq` like: numbers are numbers, text is text."""

import base64
import json
import re
from collections.abc import MutableMapping, MutableSequence
from typing import Any

from google.protobuf.message import Message

from offramp.v1 import record_pb2


def plain(message: Message) -> dict[str, Any]:
    """A message as a dictionary: all fields, enums as words, bytes as hex."""
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
    """`running` for SUBSCRIPTION_STATE_RUNNING; the number itself where this version does not know it."""
    known = enum.values_by_number.get(number)
    if known is None:
        return str(number)
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"
    return str(known.name.removeprefix(prefix).lower())


def payload(record: record_pb2.Record) -> dict[str, Any]:
    """Key, value and headers of a record. Null stays null; what is not UTF-8 is base64 under another name."""
    headers = [{"name": h.name, **_bytes("value", h.value if h.HasField("value") else None)} for h in record.headers]
    return {
        **_bytes("key", record.key if record.HasField("key") else None),
        **_bytes("value", record.value if record.HasField("value") else None),
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


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _bytes(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}

"""Messages from lines of text or JSON, in batches that do not wait for more input than there is."""

import base64
import binascii
import json
import os
import select
from collections.abc import Iterator
from typing import Any, NamedTuple

from offramp.v1 import publish_pb2, record_pb2
from sidecar.model.errors import OfframpError

_READ_BYTES = 1 << 18
#: a longer line is not a line; it must not fill the memory
_MOST_LINE_BYTES = 64 << 20
#: seconds to wait for more input before what is there is sent
_LINGER = 0.02
_KNOWN = ("key", "value", "headers", "lane", "timestamp_ms")
#: what `offramp consume` writes about a record and what has no meaning for a new one
_IGNORED = ("topic", "position", "attempt", "possibly_processed")


class LineBatch(NamedTuple):
    #: the number of the first line, from 1
    first: int
    lines: list[bytes]


def read_batches(fd: int, most_lines: int, most_bytes: int) -> Iterator[LineBatch]:
    """The lines of a file or pipe, without their ends, in order.

    A batch has at most so many lines and, unless one alone is larger, bytes. From a pipe it comes as soon as
    the writer pauses, so that `tail -f` works.
    """
    first, held, at_end = 1, 0, False
    lines: list[bytes] = []
    rest: list[bytes] = []
    while not at_end:
        chunk = os.read(fd, _READ_BYTES)
        at_end = not chunk
        *whole, tail = chunk.split(b"\n")
        if whole:
            whole[0] = b"".join((*rest, whole[0]))
            rest = []
        rest.append(tail)
        if sum(map(len, rest)) > _MOST_LINE_BYTES:
            raise OfframpError(f"line {first + len(lines)} is longer than {_MOST_LINE_BYTES >> 20} MiB")
        if at_end and any(rest):
            whole = [b"".join(rest)]
        for line in whole:
            if lines and (len(lines) >= most_lines or held + len(line) > most_bytes):
                yield LineBatch(first, lines)
                first, lines, held = first + len(lines), [], 0
            lines.append(line)
            held += len(line)
        if lines and (at_end or not select.select([fd], [], [], _LINGER)[0]):
            yield LineBatch(first, lines)
            first, lines, held = first + len(lines), [], 0


def parse_message(line: bytes, number: int) -> publish_pb2.Message:
    """A message from a line of JSON. Raises `OfframpError` that names the line."""
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


def parse_header(text: str) -> record_pb2.Header:
    """A header from `name=value`. Raises `ValueError`."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f'"{text}" is not name=value')
    return record_pb2.Header(name=name, value=os.fsencode(value))


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
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    if value is not None:
        raise ValueError(f"has both {name} and {name}_base64")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise ValueError(f"{name}_base64 is not base64") from None


def _headers(said: Any) -> list[record_pb2.Header]:
    """From an object, or from a list of objects with `name` and `value`, which may repeat names."""
    if said is None:
        return []
    if isinstance(said, dict):
        said = [{"name": name, "value": value} for name, value in said.items()]
    if not isinstance(said, list) or not all(isinstance(header, dict) for header in said):
        raise ValueError("headers is neither an object nor a list of objects")
    headers = []
    for header in said:
        if not isinstance(header.get("name"), str):
            raise ValueError("a header has no name")
        headers.append(record_pb2.Header(name=header["name"], value=_bytes(header, "value")))
    return headers

"""Refuses requests with more entries than may be handled at a time, before they are parsed.

An entry takes two bytes on the wire and hundreds in memory, so a limit on bytes alone would not bound what a request
costs. Requests too short to have that many are not checked.
"""

from collections.abc import MutableSequence
from functools import cache
from typing import NoReturn

from google.protobuf.message import Message

from sidecar.model.errors import TooManyEntries

#: entries of one repeated field of a request, and parts of one settlement
MAX_ENTRIES = 10_000
#: entries within those: headers and parts
MAX_INNER = 10 * MAX_ENTRIES
#: fields that are counted before a request is given up
_MAX_FIELDS = 2 * MAX_INNER
#: bytes of the shortest entry
_SHORTEST = 2


def check_entries(kind: type[Message], raw: bytes) -> None:
    """Raises `TooManyEntries` for a message of this kind that has too many. Bytes that are no message may pass."""
    if len(raw) <= _SHORTEST * MAX_ENTRIES:
        return
    names, inner = _repeated_fields(kind)  # type: ignore[arg-type] # the stubs mix up a class with its instances
    # Counting bytes is cheap, and no more of them can be tags than there are.
    look_inside = any(raw.count(tag) > MAX_INNER for tag in inner.values())
    counts = dict.fromkeys(names, 0)
    fields = at = 0
    while at < len(raw):
        tag, start, at = _next_field(raw, at)
        number = tag >> 3
        fields += 1
        if number in counts:
            counts[number] += 1
            if counts[number] > MAX_ENTRIES:
                _refuse(names[number], MAX_ENTRIES)
        if look_inside and number in inner and tag & 7 == 2:
            while start < at and fields <= _MAX_FIELDS:
                _, _, start = _next_field(raw, start)
                fields += 1
        if fields > _MAX_FIELDS:
            _refuse("fields", _MAX_FIELDS)


def _refuse(what: str, limit: int) -> NoReturn:
    raise TooManyEntries(
        f"the request has more than {limit:,} {what}: send fewer at a time (Welcome.limits says how many)",
        limit=what,
        max=limit,
    )


@cache
def _repeated_fields(kind: type[Message]) -> tuple[dict[int, str], dict[int, bytes]]:
    """The names of a message's repeated fields by number; and the tags of repeated fields within those."""
    names, inner = {}, {}
    message = kind()
    for field in kind.DESCRIPTOR.fields:
        entries = getattr(message, field.name)
        if isinstance(entries, MutableSequence):
            names[field.number] = field.name
            if field.message_type is not None:
                entry = entries.add()  # type: ignore[attr-defined] # of messages
                for within in entry.DESCRIPTOR.fields:
                    if isinstance(getattr(entry, within.name), MutableSequence):
                        inner[field.number] = bytes([within.number << 3 | 2])
    return names, inner


def _next_field(raw: bytes, at: int) -> tuple[int, int, int]:
    """The tag of the field at this place, where its content begins, and where the next field is."""
    tag, at = _varint(raw, at)
    match tag & 7:
        case 0:
            return tag, at, _varint(raw, at)[1]
        case 1:
            return tag, at, at + 8
        case 2:
            size, at = _varint(raw, at)
            return tag, at, at + size
        case 5:
            return tag, at, at + 4
        case _:
            # No message: the parser says so.
            return 0, at, len(raw)


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(raw):
        byte = raw[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    return number, at

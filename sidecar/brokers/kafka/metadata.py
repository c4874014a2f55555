"""Which log a committed position is in, and the acks beyond it, as the text that Kafka stores beside it. Pure.

    offramp:1:<base64 of: cluster, topic id, position, runs, checksum>

A text is believed only if it belongs to exactly this position of this topic in this cluster: tools that mirror a
cluster copy it beside positions that they have translated, a topic can be deleted and made again under its name,
and other programs write texts of their own.

Kafka stores positions by the names of topics. So one of a topic that was deleted may be stored for the one that was
made again under its name, and only the text tells.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as BadBase64
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from sidecar.model.records import Commit, Run

_PREFIX = "offramp:1:"
#: characters; a broker takes 4096 unless told otherwise (`offset.metadata.max.bytes`)
MOST = 3000
_MOST_BYTES = (MOST - len(_PREFIX)) * 3 // 4
_CHECKSUM_BYTES = 4


class Stamp(NamedTuple):
    """Which log a position is in."""

    cluster: str
    topic_id: str


class Note(NamedTuple):
    """What a text says."""

    stamp: Stamp
    position: int
    beyond: tuple[Run, ...]


def encode(stamp: Stamp, commit: Commit) -> str:
    """The text for a commit. If not all runs fit, the earliest ones ride."""
    head = _text(stamp.cluster) + _text(stamp.topic_id) + _varint(commit.position)
    parts = [head]
    room = _MOST_BYTES - len(head) - _CHECKSUM_BYTES
    at = commit.position
    for run in commit.beyond:
        part = _varint(run.start - at) + _varint(run.stop - run.start)
        if len(part) > room:
            break
        room -= len(part)
        parts.append(part)
        at = run.stop
    body = b"".join(parts)
    return _PREFIX + urlsafe_b64encode(body + _checksum(body)).decode("ascii").rstrip("=")


def decode(text: str, stamp: Stamp, position: int, end: int) -> tuple[Run, ...]:
    """The runs of a text that was found beside `position` in a lane that ends at `end`; none if in any doubt."""
    note = _note(text)
    if note is None or note[:2] != (stamp, position):
        return ()
    # The record at the position itself is not settled, or the position would be further on.
    if not note.beyond or note.beyond[0].start <= position or note.beyond[-1].stop > end:
        return ()
    return note.beyond


def topic_of(text: str, cluster: str, position: int) -> str | None:
    """The id of the topic that `position` was committed for, by the text that was found beside it. None if that does
    not say: also if the position was copied from another cluster, or set by a tool that left the text in place."""
    note = _note(text)
    if note is None or (note.stamp.cluster, note.position) != (cluster, position):
        return None
    return note.stamp.topic_id


def _note(text: str) -> Note | None:
    if not text.startswith(_PREFIX):
        return None
    encoded = text[len(_PREFIX) :]
    try:
        raw = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        body, checksum = raw[:-_CHECKSUM_BYTES], raw[-_CHECKSUM_BYTES:]
        if checksum != _checksum(body):
            return None
        reader = _Reader(body)
        stamp, position = Stamp(reader.text(), reader.text()), reader.number()
        return Note(stamp, position, tuple(reader.runs(position)))
    except (BadBase64, ValueError, IndexError):
        return None


class _Reader:
    """Raises `IndexError` or `ValueError` where the bytes are not what they should be."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def number(self) -> int:
        number, shift = 0, 0
        while True:
            byte = self._raw[self._at]
            self._at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7
            if shift > 63:
                raise ValueError("a number without an end")

    def text(self) -> str:
        length = self.number()
        self._at += length
        return self._raw[self._at - length : self._at].decode("utf-8")

    def runs(self, position: int) -> Iterator[Run]:
        at = position
        while self._at < len(self._raw):
            start = at + self.number()
            at = start + self.number()
            if at <= start:
                raise ValueError("a run without positions")
            yield Run(start, at)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _text(text: str) -> bytes:
    raw = text.encode()
    return _varint(len(raw)) + raw


def _checksum(body: bytes) -> bytes:
    return crc32(body).to_bytes(_CHECKSUM_BYTES, "big")

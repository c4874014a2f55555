"""The metadata that Kafka stores beside a committed position: the topic it belongs to, the acks beyond it, and the
reach. Pure.

    offramp:2:<base64 of: cluster, topic id, position, reach - position, runs, checksum>
    offramp:1: without the reach, from sidecars of 0.1.0 and where it is not known

Metadata is used only if it belongs to exactly this position of this topic in this cluster: tools that mirror a cluster
copy it beside positions that they have translated, a topic can be deleted and recreated under its name, and other
programs write metadata of their own.

Kafka stores positions by the names of topics. So a position of a deleted topic may be stored for the topic that was
recreated under its name, and only the metadata tells.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as BadBase64
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from sidecar.model.records import Commit, Run
from sidecar.model.wire import varint

_PREFIX, _PREFIX_WITHOUT_REACH = "offramp:2:", "offramp:1:"
#: characters; a broker accepts 4096 by default (`offset.metadata.max.bytes`)
MAX_LENGTH = 3000
_MAX_BYTES = (MAX_LENGTH - len(_PREFIX)) * 3 // 4
_CHECKSUM_BYTES = 4


class Stamp(NamedTuple):
    """The log that a position belongs to."""

    cluster: str
    topic_id: str


class _Metadata(NamedTuple):
    """The decoded metadata."""

    stamp: Stamp
    position: int
    reach: int | None
    beyond: tuple[Run, ...]


def encode(stamp: Stamp, commit: Commit) -> str:
    """The metadata of a commit. If not all runs fit, it has the earliest ones."""
    head = _text(stamp.cluster) + _text(stamp.topic_id) + varint(commit.position)
    prefix = _PREFIX_WITHOUT_REACH
    if commit.reach is not None:
        prefix = _PREFIX
        head += varint(commit.reach - commit.position)
    parts = [head]
    room = _MAX_BYTES - len(head) - _CHECKSUM_BYTES
    at = commit.position
    for run in commit.beyond:
        part = varint(run.start - at) + varint(run.stop - run.start)
        if len(part) > room:
            break
        room -= len(part)
        parts.append(part)
        at = run.stop
    body = b"".join(parts)
    return prefix + urlsafe_b64encode(body + _checksum(prefix, body)).decode("ascii").rstrip("=")


def decode(text: str, stamp: Stamp, position: int, end: int) -> Commit:
    """What was committed with `position` in a lane that ends at `end`, by the metadata beside it; no more than the
    position if in any doubt."""
    found = _parse(text)
    if found is None or found[:2] != (stamp, position):
        return Commit(position)
    # The record at the position itself is not settled, or the position would be higher.
    if found.beyond and (found.beyond[0].start <= position or found.beyond[-1].stop > end):
        return Commit(position)
    return Commit(position, found.beyond, found.reach)


def topic_of(text: str, cluster: str, position: int) -> str | None:
    """The id of the topic that `position` was committed for, by the metadata found beside it. None if it does not say:
    also if the position was copied from another cluster, or set by a tool that left the metadata in place."""
    found = _parse(text)
    if found is None or (found.stamp.cluster, found.position) != (cluster, position):
        return None
    return found.stamp.topic_id


def _parse(text: str) -> _Metadata | None:
    prefix, encoded = text[: len(_PREFIX)], text[len(_PREFIX) :]
    if prefix not in (_PREFIX, _PREFIX_WITHOUT_REACH):
        return None
    try:
        raw = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        body, checksum = raw[:-_CHECKSUM_BYTES], raw[-_CHECKSUM_BYTES:]
        if checksum != _checksum(prefix, body):
            return None
        reader = _Reader(body)
        stamp, position = Stamp(reader.text(), reader.text()), reader.number()
        reach = position + reader.number() if prefix == _PREFIX else None
        return _Metadata(stamp, position, reach, tuple(reader.runs(position)))
    except (BadBase64, ValueError, IndexError):
        return None


class _Reader:
    """Raises `IndexError` or `ValueError` for damaged bytes."""

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
                raise ValueError("the number does not end")

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
                raise ValueError("the run has no positions")
            yield Run(start, at)


def _text(text: str) -> bytes:
    raw = text.encode()
    return varint(len(raw)) + raw


def _checksum(prefix: str, body: bytes) -> bytes:
    """From the second format on, the prefix counts: one is not taken for the other."""
    start = crc32(prefix.encode()) if prefix == _PREFIX else 0
    return crc32(body, start).to_bytes(_CHECKSUM_BYTES, "big")

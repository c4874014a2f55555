"""Kafka's own log of groups, `__consumer_offsets`: every commit, and which member had which lanes when.

Its format is that of Kafka's coordinator. Strings and lists of newer versions have their size plus one in front, seven
bits a byte, the lowest first.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

#: kinds of lines, which their keys begin with
_COMMIT, _CLASSIC_GROUP, _MEMBER, _ASSIGNMENT = (0, 1), 2, 5, 8


class OffsetCommit(NamedTuple):
    group: str
    topic: str
    lane: int
    offset: int
    metadata: str
    timestamp_ms: int


class Assigned(NamedTuple):
    """What each member of a group has from then on, by its client id."""

    group: str
    lanes: Mapping[str, frozenset[int]]
    timestamp_ms: int


class Line(NamedTuple):
    key: bytes
    value: bytes | None
    timestamp_ms: int


def read_log(lines: Iterable[Line]) -> Iterator[OffsetCommit | Assigned]:
    """In the order of the log. Leaves out what other clients than members of groups have written."""
    #: client ids by group and member, and lanes of each
    clients: dict[tuple[str, str], str] = {}
    lanes: dict[tuple[str, str], frozenset[int]] = {}
    for line in lines:
        key = _Reader(line.key)
        kind = key.number(">h")
        if kind in _COMMIT and line.value is not None:
            yield _commit(key, line.value)
        elif kind == _CLASSIC_GROUP and line.value is not None:
            yield Assigned(key.text(), _classic_members(line.value), line.timestamp_ms)
        elif kind == _MEMBER and line.value is not None:
            clients[key.text(), key.text()] = _client_of(line.value)
        elif kind == _ASSIGNMENT:
            group, member = key.text(), key.text()
            lanes[group, member] = frozenset(_lanes_of(line.value)) if line.value is not None else frozenset()
            held: dict[str, frozenset[int]] = {}
            for (its_group, its_member), its_lanes in lanes.items():
                if its_group == group:
                    client = clients[group, its_member]
                    held[client] = held.get(client, frozenset()) | its_lanes
            yield Assigned(group, held, line.timestamp_ms)


class _Reader:
    def __init__(self, raw: bytes, *, compact: bool = False) -> None:
        self._raw = raw
        self._at = 0
        self.compact = compact

    def number(self, form: str) -> int:
        (number,) = struct.unpack_from(form, self._raw, self._at)
        self._at += struct.calcsize(form)
        return int(number)

    def skip(self, size: int) -> None:
        self._at += size

    def text(self) -> str:
        return self._take(self._size(">h")).decode()

    def blob(self) -> bytes:
        return self._take(self._size(">i"))

    def count(self) -> int:
        return self._size(">i")

    def tags(self) -> None:
        if self.compact:
            for _ in range(self._varint()):
                self._varint()
                self.skip(self._varint())

    def _take(self, size: int) -> bytes:
        # Nothing instead of text has size -1.
        taken = self._raw[self._at : self._at + max(0, size)]
        self.skip(len(taken))
        return taken

    def _size(self, form: str) -> int:
        return self._varint() - 1 if self.compact else self.number(form)

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._raw[self._at]
            self._at += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number


def _commit(key: _Reader, value: bytes) -> OffsetCommit:
    group, topic, lane = key.text(), key.text(), key.number(">i")
    told = _Reader(value)
    form = told.number(">h")
    assert 3 <= form <= 4, f"form {form} of a commit is not known"
    told.compact = form > 3
    offset = told.number(">q")
    told.skip(4)
    metadata = told.text()
    # The client library of the sidecar ends a text with a zero, as C does.
    return OffsetCommit(group, topic, lane, offset, metadata.rstrip("\0"), told.number(">q"))


def _classic_members(value: bytes) -> dict[str, frozenset[int]]:
    told = _Reader(value)
    form = told.number(">h")
    assert 3 <= form <= 4, f"form {form} of a group is not known"
    told.compact = form > 3
    told.text()
    told.skip(4)
    told.text()
    told.text()
    told.skip(8)
    members: dict[str, frozenset[int]] = {}
    for _ in range(told.count()):
        _, _, client, _ = told.text(), told.text(), told.text(), told.text()
        told.skip(8)
        told.blob()
        members[client] = members.get(client, frozenset()) | frozenset(_classic_lanes(told.blob()))
        told.tags()
    return members


def _classic_lanes(assignment: bytes) -> Iterator[int]:
    if assignment:
        told = _Reader(assignment)
        told.skip(2)
        for _ in range(told.count()):
            told.text()
            yield from [told.number(">i") for _ in range(told.count())]


def _client_of(value: bytes) -> str:
    told = _Reader(value, compact=True)
    told.skip(2)
    _, _, client = told.text(), told.text(), told.text()
    return client


def _lanes_of(value: bytes) -> Iterator[int]:
    """Those that it has, and those that it must give back but has not yet."""
    told = _Reader(value, compact=True)
    # Version, both epochs, state.
    told.skip(2 + 4 + 4 + 1)
    for _ in ("assigned", "pending revocation"):
        for _ in range(told.count()):
            told.skip(16)
            yield from [told.number(">i") for _ in range(told.count())]
            told.tags()

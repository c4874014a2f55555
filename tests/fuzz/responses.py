"""What comes back on a bare socket, as far as HTTP/2 and gRPC tell. Pure.

Enough of HPACK to find `grpc-status` and its message: a server that indexes its headers says each once in full, and by
a number then.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.fuzz.http2 import CONTINUATION, END_HEADERS, GOAWAY, HEADERS, RST

_PADDED, _PRIORITY = 0x8, 0x20
#: entries that every connection begins with
_STATIC = 61
#: stands for headers that are not decoded: indexed in a table that is not kept, or compressed
_UNREAD = b"?"


class Status(NamedTuple):
    code: int
    message: str


@dataclass
class Response:
    #: in the order in which they came
    statuses: list[Status] = field(default_factory=list)
    #: a stream or the connection was given up, in words of the protocol
    refused: bool = False
    #: the other side has closed
    closed: bool = False

    @property
    def is_clear(self) -> bool:
        """The call has a result, or has been given up."""
        return bool(self.statuses) or self.refused or self.closed


class Reader:
    """Reads the bytes that arrive."""

    def __init__(self) -> None:
        self.response = Response()
        self._rest = b""
        self._block = b""
        self._table: list[tuple[bytes, bytes]] = []

    def feed(self, piece: bytes) -> None:
        self._rest += piece
        while len(self._rest) >= 9:
            size = int.from_bytes(self._rest[:3], "big")
            if len(self._rest) < 9 + size:
                return
            kind, flags = self._rest[3], self._rest[4]
            self._frame(kind, flags, self._rest[9 : 9 + size])
            self._rest = self._rest[9 + size :]

    def _frame(self, kind: int, flags: int, body: bytes) -> None:
        if kind in (RST, GOAWAY):
            # A connection that ends in order is told so without an error.
            (code,) = struct.unpack_from(">I", body, 0 if kind == RST else 4)
            self.response.refused |= bool(code) or kind == GOAWAY
        elif kind in (HEADERS, CONTINUATION):
            if kind == HEADERS:
                start = (1 if flags & _PADDED else 0) + (5 if flags & _PRIORITY else 0)
                body = body[start : len(body) - (body[0] if flags & _PADDED else 0)]
            self._block += body
            if flags & END_HEADERS:
                self._headers(self._block)
                self._block = b""

    def _headers(self, block: bytes) -> None:
        found = dict(self._pairs(block))
        if b"grpc-status" in found:
            self.response.statuses.append(
                Status(int(found[b"grpc-status"]), found.get(b"grpc-message", b"").decode(errors="replace"))
            )

    def _pairs(self, block: bytes) -> Iterator[tuple[bytes, bytes]]:
        at = 0
        while at < len(block):
            first = block[at]
            if first & 0x80:
                index, at = _number(block, at, 7)
                yield self._entry(index)
            elif first & 0x20 and not first & 0x40:
                # The table changes its size; nothing is so long here that it would lose an entry.
                _, at = _number(block, at, 5)
            else:
                index, at = _number(block, at, 6 if first & 0x40 else 4)
                name = self._entry(index)[0] if index else b""
                if not index:
                    name, at = _text(block, at)
                value, at = _text(block, at)
                if first & 0x40:
                    self._table.insert(0, (name, value))
                yield name, value

    def _entry(self, index: int) -> tuple[bytes, bytes]:
        kept = index - _STATIC - 1
        return self._table[kept] if 0 <= kept < len(self._table) else (_UNREAD, _UNREAD)


def _number(block: bytes, at: int, bits: int) -> tuple[int, int]:
    most = (1 << bits) - 1
    found, at, shift = block[at] & most, at + 1, 0
    if found < most:
        return found, at
    while True:
        byte = block[at]
        found, at, shift = found + ((byte & 127) << shift), at + 1, shift + 7
        if byte < 128:
            return found, at


def _text(block: bytes, at: int) -> tuple[bytes, int]:
    squeezed = block[at] & 0x80
    size, at = _number(block, at, 7)
    return _UNREAD if squeezed else block[at : at + size], at + size

"""A client as bad as HTTP/2 allows: it leaves requests unfinished and responses unread while it lives.

It keeps to the rules of flow control, since whoever breaks them loses the connection and does no harm.
"""

import select
import socket
import ssl
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from tests.fuzz.garbage import literal

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK = 0x1, 0x4, 0x1
_INITIAL_WINDOW = 4
_CANCEL = struct.pack(">I", 8)
_MOST_FRAME = 16_384
#: seconds without any sign from the other side, after which it will not take more
_QUIET = 1.0


class BareClient:
    """One connection. `window` is how much of each answer it takes before it says that it takes more, which it never
    does."""

    def __init__(self, connection: socket.socket, window: int = 65_535) -> None:
        self._connection = connection
        self._window = window
        self._next = 1
        self._room = 65_535
        self._initial = 65_535
        #: by stream: how much the other side takes now
        self._rooms: dict[int, int] = {}
        #: by stream: what it has not taken so far, and whether that is all
        self._unsent: dict[int, tuple[bytes, bool]] = {}
        #: streams that the other side has ended
        self.ended: set[int] = set()
        self._inbox = b""
        settings = struct.pack(">HI", _INITIAL_WINDOW, window)
        self._send(_PREFACE + _frame(_SETTINGS, 0, 0, settings))

    def call(self, path: str, message: bytes, headers: Mapping[str, str] | None = None, *, whole: bool = True) -> int:
        """Begin a call; `pump` sends the message. If it is not whole, its last byte is kept back for ever."""
        stream, self._next = self._next, self._next + 2
        pairs = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "localhost",
            "content-type": "application/grpc",
            "te": "trailers",
            **(headers or {}),
        }
        block = b"".join(literal(name, value) for name, value in pairs.items())
        self._send(_frame(_HEADERS, _END_HEADERS, stream, block))
        body = struct.pack(">BI", 0, len(message)) + message
        self._rooms[stream] = self._initial
        self._unsent[stream] = (body if whole else body[:-1], whole)
        return stream

    def reset(self, stream: int) -> None:
        """Give up a call, with as much of its message as the other side takes at once sent."""
        while self._push():
            pass
        self._unsent.pop(stream, None)
        del self._rooms[stream]
        self._send(_frame(_RST, 0, stream, _CANCEL))

    def pump(self) -> None:
        """Send as much as the other side takes. Returns when it has everything, has ended what it has not, or takes no
        more."""
        while self._unsent:
            while self._push():
                self._listen(0.0)
            if not self._listen(_QUIET):
                return

    def listen(self) -> set[int]:
        """The streams that the other side has ended so far."""
        while self._listen(0.0):
            pass
        return self.ended

    def _push(self) -> bool:
        """Send one frame of each stream that may send; returns whether there was one."""
        moved = False
        for stream, (body, whole) in [*self._unsent.items()]:
            size = min(len(body), self._rooms[stream], self._room, _MOST_FRAME)
            if size <= 0:
                continue
            moved, rest = True, body[size:]
            self._send(_frame(_DATA, _END_STREAM if whole and not rest else 0, stream, body[:size]))
            self._rooms[stream] -= size
            self._room -= size
            self._unsent[stream] = (rest, whole)
            if not rest:
                del self._unsent[stream]
        return moved

    def _listen(self, seconds: float) -> bool:
        """Receive from the other side; returns whether anything arrived within so many seconds."""
        pending = self._connection.pending() if isinstance(self._connection, ssl.SSLSocket) else 0
        if not pending and not select.select([self._connection], [], [], seconds)[0]:
            return False
        received = self._connection.recv(1 << 20)
        assert received, "the connection was closed"
        self._inbox += received
        while len(self._inbox) >= 9:
            size = int.from_bytes(self._inbox[:3])
            if len(self._inbox) < 9 + size:
                break
            kind, flags, stream = struct.unpack(">BBI", self._inbox[3:9])
            self._hear(kind, flags, stream, self._inbox[9 : 9 + size])
            self._inbox = self._inbox[9 + size :]
        return True

    def _hear(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        assert kind != _GOAWAY, body
        if kind == _SETTINGS and not flags & _ACK:
            for at in range(0, len(body), 6):
                name, value = struct.unpack(">HI", body[at : at + 6])
                if name == _INITIAL_WINDOW:
                    self._rooms = {one: room + value - self._initial for one, room in self._rooms.items()}
                    self._initial = value
            self._send(_frame(_SETTINGS, _ACK, 0))
        elif kind == _PING and not flags & _ACK:
            self._send(_frame(_PING, _ACK, 0, body))
        elif kind == _WINDOW:
            (more,) = struct.unpack(">I", body)
            if stream in self._rooms:
                self._rooms[stream] += more
            elif not stream:
                self._room += more
        elif kind == _RST or (kind in (_DATA, _HEADERS) and flags & _END_STREAM):
            self.ended.add(stream)
            self._unsent.pop(stream, None)

    def _send(self, frames: bytes) -> None:
        self._connection.sendall(frames)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()


def _frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body

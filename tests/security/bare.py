"""A client as bad as HTTP/2 allows: it leaves requests unfinished and responses unread.

It keeps to the rules of flow control, since whoever breaks them loses the connection and does no harm.
"""

import select
import socket
import ssl
import struct
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

from tests.fuzz import http2

_INITIAL_WINDOW = 4
_CANCEL = struct.pack(">I", 8)
_MOST_FRAME = 16_384
#: seconds without any sign from the other side, after which it will not take more
_QUIET = 1.0
#: seconds within which an answer must come
_RESPONSE_TIMEOUT = 60.0


class BareClient:
    """One connection. `window` is how much of each answer it takes before it says that it takes more, which it never
    does. A deaf one does not even answer pings."""

    def __init__(self, connection: socket.socket, window: int = 65_535, *, deaf: bool = False) -> None:
        self._connection = connection
        self._deaf = deaf
        #: pings that have come
        self.pings = 0
        #: by stream: what has come of its answers
        self._answers: dict[int, bytes] = {}
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
        self._send(http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0, settings))
        if window > 65_535:
            # For the connection as a whole.
            self._send(http2.frame(http2.WINDOW, 0, 0, struct.pack(">I", window - 65_535)))

    def begin(self, path: str, headers: Mapping[str, str] | None = None) -> int:
        """Begins a call without a message. Returns its stream."""
        stream, self._next = self._next, self._next + 2
        self._send(http2.frame(http2.HEADERS, http2.END_HEADERS, stream, http2.call_headers(path, headers)))
        self._rooms[stream] = self._initial
        return stream

    def call(self, path: str, message: bytes, headers: Mapping[str, str] | None = None, *, whole: bool = True) -> int:
        """Begins a call; `pump` sends the message. If it is not whole, its last byte is never sent."""
        stream, body = self.begin(path, headers), http2.message(message)
        self._unsent[stream] = (body if whole else body[:-1], whole)
        return stream

    def say(self, stream: int, *messages: bytes) -> None:
        """Sends messages of a call that goes on."""
        self._unsent[stream] = (b"".join(map(http2.message, messages)), False)
        self.pump()

    def reset(self, stream: int) -> None:
        """Give up a call, with as much of its message as the other side takes at once sent."""
        while self._push():
            pass
        self._unsent.pop(stream, None)
        del self._rooms[stream]
        self._send(http2.frame(http2.RST, 0, stream, _CANCEL))

    def pump(self) -> None:
        """Send as much as the other side takes. Returns when it has everything, has ended what it has not, or takes no
        more."""
        while self._unsent:
            while self._push():
                self._listen(0.0)
            if self._unsent and not self._listen(_QUIET):
                return

    def messages(self, stream: int) -> Iterator[bytes]:
        """The answers of a call, as they come."""
        while True:
            body = self._answers.get(stream, b"")
            end = 5 + int.from_bytes(body[1:5])
            if len(body) >= end:
                self._answers[stream] = body[end:]
                yield body[5:end]
            else:
                assert self._listen(_RESPONSE_TIMEOUT), "nothing more comes"

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
            self._send(http2.frame(http2.DATA, http2.END_STREAM if whole and not rest else 0, stream, body[:size]))
            self._rooms[stream] -= size
            self._room -= size
            self._unsent[stream] = (rest, whole)
            if not rest:
                del self._unsent[stream]
        return moved

    def _listen(self, seconds: float) -> bool:
        """Receive from the other side; returns whether anything arrived within this many seconds."""
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
        assert kind != http2.GOAWAY, body
        if kind == http2.SETTINGS and not flags & http2.ACK:
            for at in range(0, len(body), 6):
                name, value = struct.unpack(">HI", body[at : at + 6])
                if name == _INITIAL_WINDOW:
                    self._rooms = {one: room + value - self._initial for one, room in self._rooms.items()}
                    self._initial = value
            self._send(http2.frame(http2.SETTINGS, http2.ACK, 0))
        elif kind == http2.PING and not flags & http2.ACK:
            self.pings += 1
            if not self._deaf:
                self._send(http2.frame(http2.PING, http2.ACK, 0, body))
        elif kind == http2.WINDOW:
            (more,) = struct.unpack(">I", body)
            if stream in self._rooms:
                self._rooms[stream] += more
            elif not stream:
                self._room += more
        elif kind == http2.DATA:
            self._answers[stream] = self._answers.get(stream, b"") + body
        if kind == http2.RST or (kind in (http2.DATA, http2.HEADERS) and flags & http2.END_STREAM):
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

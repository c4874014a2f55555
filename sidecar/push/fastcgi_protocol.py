"""The records of FastCGI: a request as bytes, and the answer from its pieces. Pure.

One request at a time on a connection: PHP knows nothing else.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sidecar.push.answers import Answer

_HEADER = struct.Struct("!BBHHBx")
_VERSION, _ID = 1, 1
_BEGIN, _END, _PARAMS, _STDIN, _STDOUT, _STDERR = 1, 3, 4, 5, 6, 7
_RESPONDER, _KEEP = 1, 1
#: bytes of a record: a multiple of eight, so that none needs padding
_MAX_CONTENT = 65_528
#: `protocolStatus` of a server that has no room
_REQUEST_COMPLETE = 0
#: bytes of headers in an answer
_MAX_HEADERS = 64 << 10
#: bytes of what a script says on stderr
MAX_STDERR = 4 << 10


class NotFastCgi(Exception):
    """What arrives is not FastCGI, or no answer of a CGI script. Its text is for people."""


def encode_request(params: Mapping[str, str], body: bytes, *, keep: bool) -> bytes:
    pairs = b"".join(_pair(name.encode("latin-1", "replace"), value.encode()) for name, value in params.items())
    begin = struct.pack("!HB5x", _RESPONDER, _KEEP if keep else 0)
    return b"".join(
        [
            *_records(_BEGIN, [begin]),
            *_records(_PARAMS, [*_pieces(pairs), b""]),
            *_records(_STDIN, [*_pieces(body), b""]),
        ]
    )


def _pair(name: bytes, value: bytes) -> bytes:
    return b"".join((_length(name), _length(value), name, value))


def _length(text: bytes) -> bytes:
    return bytes([len(text)]) if len(text) < 128 else struct.pack("!I", len(text) | 1 << 31)


def _pieces(content: bytes) -> Iterator[bytes]:
    return (content[at : at + _MAX_CONTENT] for at in range(0, len(content), _MAX_CONTENT))


def _records(kind: int, contents: Iterable[bytes]) -> Iterator[bytes]:
    for content in contents:
        yield _HEADER.pack(_VERSION, kind, _ID, len(content), 0) + content


@dataclass(slots=True)
class AnswerReader:
    """Takes what arrives in any pieces, until `ended`."""

    max_body: int
    #: the server has answered all
    ended: bool = False
    #: the server said that it takes no request now
    refused: bool = False
    stderr: bytes = b""
    _unread: bytearray = field(default_factory=bytearray)
    _stdout: bytearray = field(default_factory=bytearray)

    @property
    def began(self) -> bool:
        """Anything has arrived."""
        return bool(self._unread or self._stdout or self.stderr or self.ended)

    def feed(self, data: bytes) -> None:
        """Raises `NotFastCgi`."""
        unread = self._unread
        unread += data
        while len(unread) >= _HEADER.size and not self.ended:
            version, kind, id_, length, padding = _HEADER.unpack_from(unread)
            if version != _VERSION or id_ not in (0, _ID):
                raise NotFastCgi("what listens there does not speak FastCGI")
            if len(unread) < _HEADER.size + length + padding:
                break
            content = bytes(unread[_HEADER.size : _HEADER.size + length])
            del unread[: _HEADER.size + length + padding]
            self._take(kind, content)

    def _take(self, kind: int, content: bytes) -> None:
        if kind == _STDOUT:
            # One more byte than is allowed, to know that there was more.
            self._stdout += content[: max(0, self.max_body + _MAX_HEADERS + 1 - len(self._stdout))]
        elif kind == _STDERR:
            self.stderr += content[: max(0, MAX_STDERR - len(self.stderr))]
        elif kind == _END:
            self.ended = True
            self.refused = len(content) >= 5 and content[4] != _REQUEST_COMPLETE

    def answer(self) -> Answer:
        """Raises `NotFastCgi` for an output without the headers of CGI."""
        head, blank, body = bytes(self._stdout).partition(b"\r\n\r\n")
        if not blank or len(head) > _MAX_HEADERS:
            raise NotFastCgi("the answer has no headers of CGI")
        headers: dict[str, str] = {}
        for line in head.split(b"\r\n"):
            name, colon, value = line.decode("latin-1").partition(":")
            if colon:
                headers[name.strip().lower()] = value.strip()
        # Without one it is 200, also for a script that ended with a fatal error: see `fastcgi`.
        status = headers.get("status", "200")[:3]
        if not (status.isascii() and status.isdigit() and status >= "100"):
            raise NotFastCgi(f'the status of the answer is "{status}"')
        return Answer(int(status), headers, body[: self.max_body], too_large=len(body) > self.max_body)

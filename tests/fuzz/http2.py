"""HTTP/2 and gRPC as bytes, for clients that no library would be."""

import struct
from collections.abc import Mapping

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS = 0x4


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


def message(body: bytes, *, compressed: bool = False, claimed: int | None = None) -> bytes:
    """A message with gRPC's prefix."""
    return struct.pack(">BI", compressed, len(body) if claimed is None else claimed) + body


def call_headers(path: str, more: Mapping[str, str] | None = None) -> bytes:
    """The headers of a call."""
    pairs = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
        **(more or {}),
    }
    return b"".join(literal(name, value) for name, value in pairs.items())


def literal(name: str, value: str) -> bytes:
    """A header in HPACK, neither indexed nor compressed."""
    return b"\0" + _sized(name.encode()) + _sized(value.encode())


def _sized(raw: bytes) -> bytes:
    size = len(raw)
    if size < 127:
        return bytes((size,)) + raw
    size -= 127
    out = bytearray((127,))
    while size >= 128:
        out.append(size & 127 | 128)
        size >>= 7
    out.append(size)
    return bytes(out) + raw

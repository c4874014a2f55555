"""Random bytes for a socket that speaks HTTP/2. Pure."""

import random
import struct
from collections.abc import Callable, Iterator

from tests.fuzz import http2
from tests.fuzz.http2 import call_headers, frame, literal, message

METHODS = (
    "/offramp.v1.ConsumerService/Consume",
    "/offramp.v1.ConsumerService/Open",
    "/offramp.v1.ConsumerService/Fetch",
    "/offramp.v1.ConsumerService/Settle",
    "/offramp.v1.ConsumerService/ExtendLease",
    "/offramp.v1.PublishService/Publish",
    "/offramp.v1.AdminService/GetStatus",
    "/offramp.v1.LogService/Plan",
    "/grpc.health.v1.Health/Check",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    "/offramp.v1.ConsumerService/Nothing",
    "/",
)


def noise(chance: random.Random) -> Iterator[bytes]:
    """Random bytes."""
    yield chance.randbytes(chance.randrange(1, 5000))


def other_protocols(chance: random.Random) -> Iterator[bytes]:
    """The beginning of another protocol."""
    yield chance.choice(
        (
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /metrics HTTP/1.0\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(100),
            b"*1\r\n$4\r\nPING\r\n",
            b"\x00\x00\x00\x12\x00\x12\x00\x04",
        )
    )


def cut_short(chance: random.Random) -> Iterator[bytes]:
    """Valid bytes that end in the middle."""
    whole = b"".join(_call(chance, message(chance.randbytes(chance.randrange(200)))))
    yield whole[: chance.randrange(1, len(whole))]


def odd_frames(chance: random.Random) -> Iterator[bytes]:
    """Frames of all types with lengths, flags and streams that may not be."""
    yield http2.PREFACE + frame(http2.SETTINGS, 0, 0)
    for _ in range(chance.randrange(1, 20)):
        kind = chance.choice((*range(10), chance.randrange(256)))
        stream = chance.choice((0, 1, 2, 3, 0x7FFFFFFF))
        yield frame(kind, chance.randrange(256), stream, chance.randbytes(chance.choice((0, 4, 8, 9, 100, 20_000))))


def huge_headers(chance: random.Random) -> Iterator[bytes]:
    """Headers that are larger than any server accepts, and some that never end."""
    yield http2.PREFACE + frame(http2.SETTINGS, 0, 0)
    block = call_headers(chance.choice(METHODS)) + literal("x-much", "y" * 16_000)
    yield frame(http2.HEADERS, 0, 1, block[:16_000])
    for _ in range(chance.choice((0, 1, 20))):
        yield frame(http2.CONTINUATION, 0, 1, literal("x-more", "z" * 16_000)[:16_000])
    if chance.random() < 0.5:
        yield frame(http2.CONTINUATION, http2.END_HEADERS, 1)


def many_streams(chance: random.Random) -> Iterator[bytes]:
    """Calls that are begun and reset at once, many times."""
    yield http2.PREFACE + frame(http2.SETTINGS, 0, 0)
    for stream in range(1, 2 * chance.randrange(2, 200), 2):
        yield frame(http2.HEADERS, http2.END_HEADERS, stream, call_headers(chance.choice(METHODS)))
        yield frame(http2.RST, 0, stream, struct.pack(">I", 8))


def bad_messages(chance: random.Random) -> Iterator[bytes]:
    """A valid call with an invalid message: of random bytes, of a wrong length, said to be compressed."""
    body = chance.randbytes(chance.randrange(300))
    yield from _call(
        chance,
        chance.choice(
            (
                message(body),
                message(body, compressed=True),
                message(body, claimed=len(body) + chance.randrange(1, 100)),
                message(body, claimed=0xFFFFFFFF),
                message(body)[: chance.randrange(5)],
                message(b"") * chance.randrange(1, 50),
            )
        ),
    )


def odd_headers(chance: random.Random) -> Iterator[bytes]:
    """A call with invalid headers."""
    yield http2.PREFACE + frame(http2.SETTINGS, 0, 0)
    block = chance.choice(
        (
            chance.randbytes(chance.randrange(1, 500)),
            literal(":method", "POST"),
            call_headers("/" + "x" * 5000),
            call_headers(METHODS[0]) + literal("grpc-timeout", chance.choice(("0n", "-1S", "99999999999H", "soon"))),
            call_headers(METHODS[0]) + literal("grpc-encoding", chance.choice(("gzip", "none", "x" * 1000))),
            call_headers(METHODS[2]) + literal("content-type", "text/html"),
            literal("x", "y") + call_headers(METHODS[2]),
        )
    )
    yield frame(http2.HEADERS, http2.END_HEADERS | chance.choice((0, http2.END_STREAM)), 1, block[:16_000])


Kind = Callable[[random.Random], Iterator[bytes]]
KINDS: tuple[Kind, ...] = (
    noise,
    other_protocols,
    cut_short,
    odd_frames,
    huge_headers,
    many_streams,
    bad_messages,
    odd_headers,
)


def asks(pieces: list[bytes]) -> bool:
    """Whether the last http2.frame has a whole message and says that nothing more comes, so that a response is due.

    Without a whole one it is not: grpc.aio drops a call of one request that ends before the request came, and never
    answers it."""
    flags, body = pieces[-1][4], pieces[-1][9:]
    return bool(flags & http2.END_STREAM) and len(body) >= 5 + int.from_bytes(body[1:5], "big")


def _call(chance: random.Random, body: bytes) -> Iterator[bytes]:
    yield http2.PREFACE + frame(http2.SETTINGS, 0, 0)
    yield frame(http2.HEADERS, http2.END_HEADERS, 1, call_headers(chance.choice(METHODS)))
    yield frame(http2.DATA, chance.choice((0, http2.END_STREAM)), 1, body[:16_000])

"""The reader understands the responses of a gRPC server."""

import struct

from tests.fuzz import http2
from tests.fuzz.responses import Reader, Status


def frame(kind: int, body: bytes, *, flags: int = http2.END_HEADERS) -> bytes:
    return http2.frame(kind, flags, 1, body)


def literal(name: bytes, value: bytes) -> bytes:
    """To be kept in the table."""
    return b"\x40" + bytes((len(name),)) + name + bytes((len(value),)) + value


TRAILERS = b"\x88" + literal(b"grpc-status", b"13") + literal(b"grpc-message", b"a bug")


def test_a_status_is_found_with_its_message_and_however_the_bytes_come() -> None:
    reader = Reader()
    for byte in frame(4, b"", flags=0) + frame(1, TRAILERS):
        reader.feed(bytes((byte,)))
    assert reader.response.statuses == [Status(13, "a bug")]
    assert reader.response.is_clear


def test_a_status_that_is_said_by_a_number_the_second_time_is_found() -> None:
    reader = Reader()
    # The message was kept last, so it has the first number after the fixed ones.
    reader.feed(frame(1, TRAILERS) + frame(1, b"\xbf\xbe"))
    assert reader.response.statuses == [Status(13, "a bug")] * 2


def test_headers_in_pieces_are_one() -> None:
    reader = Reader()
    reader.feed(frame(1, TRAILERS[:7], flags=0) + frame(9, TRAILERS[7:]))
    assert reader.response.statuses == [Status(13, "a bug")]


def test_settings_and_pings_are_no_response() -> None:
    reader = Reader()
    reader.feed(frame(4, b"", flags=0) + frame(6, bytes(8), flags=0) + frame(1, b"\x88"))
    assert not reader.response.is_clear


def test_a_reset_stream_and_a_goodbye_are_clear() -> None:
    for kind, body in ((3, struct.pack(">I", 1)), (7, struct.pack(">II", 0, 0))):
        reader = Reader()
        reader.feed(frame(kind, body, flags=0))
        assert reader.response.is_clear

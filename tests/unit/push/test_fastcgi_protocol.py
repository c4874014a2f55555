"""The records of FastCGI."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.push.fastcgi_protocol import MAX_STDERR, AnswerReader, NotFastCgi, encode_request


def record(kind: int, content: bytes = b"", padding: int = 0) -> bytes:
    return struct.pack("!BBHHBx", 1, kind, 1, len(content), padding) + content + bytes(padding)


END = record(3, struct.pack("!IB3x", 0, 0))


def read(*records: bytes, max_body: int = 1000, piece: int = 1 << 20) -> AnswerReader:
    reader, data = AnswerReader(max_body), b"".join(records)
    for at in range(0, len(data), piece):
        reader.feed(data[at : at + piece])
    return reader


def decoded(request: bytes) -> list[tuple[int, bytes]]:
    out = []
    while request:
        _, kind, _, length, padding = struct.unpack_from("!BBHHBx", request)
        out.append((kind, request[8 : 8 + length]))
        request = request[8 + length + padding :]
    return out


def pairs(content: bytes) -> dict[str, str]:
    out, at = {}, 0

    def length() -> int:
        nonlocal at
        if content[at] < 128:
            at += 1
            return content[at - 1]
        at += 4
        return int(struct.unpack_from("!I", content, at - 4)[0]) & 0x7FFFFFFF

    while at < len(content):
        name, value = length(), length()
        out[content[at : at + name].decode()] = content[at + name : at + name + value].decode()
        at += name + value
    return out


@pytest.mark.parametrize("keep", [True, False])
def test_a_request_carries_its_params_and_a_body_of_any_size(keep: bool) -> None:
    params, body = {"A": "x" * 127, "B": "y" * 128, "C": "", "D": "ä" * 50_000}, bytes(range(256)) * 1_000
    records = decoded(encode_request(params, body, keep=keep))
    assert records[0] == (1, bytes([0, 1, int(keep), 0, 0, 0, 0, 0]))
    assert pairs(b"".join(content for kind, content in records if kind == 4)) == params
    assert b"".join(content for kind, content in records if kind == 5) == body
    assert records[-1] == (5, b"")
    assert (4, b"") in records


@given(st.integers(1, 40), st.integers(0, 7))
def test_an_answer_arrives_in_any_pieces(piece: int, padding: int) -> None:
    reader = read(record(6, b"Status: 503 Busy\r\nRetry-", padding), record(7, b"oh", padding),
                  record(6, b"After: 7\r\n\r\nbody"), END, piece=piece)  # fmt: skip
    assert reader.ended
    answer = reader.answer()
    assert (answer.status, answer.headers["retry-after"], answer.body) == (503, "7", b"body")
    assert reader.stderr == b"oh"


def test_without_a_status_it_is_200() -> None:
    assert read(record(6, b"Content-Type: text/html\r\n\r\n"), END).answer().status == 200


def test_a_body_and_stderr_are_bounded() -> None:
    piece = b"x" * 60_000
    reader = read(record(6, b"\r\n\r\n"[2:] + b"A: b\r\n\r\n"), *[record(6, piece)] * 20, *[record(7, piece)] * 20, END)
    assert reader.answer().too_large
    assert len(reader.answer().body) == 1000
    assert len(reader.stderr) == MAX_STDERR


def test_a_server_without_room_says_so() -> None:
    assert read(record(3, struct.pack("!IB3x", 0, 2))).refused


@pytest.mark.parametrize("data", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x01\x06\x00\x07\x00\x00\x00\x00"])
def test_what_is_not_fastcgi_is_an_error(data: bytes) -> None:
    with pytest.raises(NotFastCgi):
        read(data)


@pytest.mark.parametrize("output", [b"", b"no headers", b"Status: abc\r\n\r\n", b"Status: 007\r\n\r\n"])
def test_an_output_without_headers_or_with_a_wrong_status_is_an_error(output: bytes) -> None:
    with pytest.raises(NotFastCgi):
        read(record(6, output), END).answer()

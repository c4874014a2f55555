"""Messages of Pulsar that are not what Pulsar's own clients write."""

from typing import Any

import _pulsar
import pytest

from sidecar.brokers.pulsar.held import Held
from sidecar.brokers.pulsar.records import HEADERS, encode, encode_one
from sidecar.model.records import Header, Record
from sidecar.model.wire import decode_frame

UNREADABLE = Header("offramp-unreadable", b"properties")


class Message:
    """A message of the library that has arrived, at an entry of its own."""

    def __init__(self, entry: int, key: bytes = b"", properties: dict[bytes, bytes] | None = None) -> None:
        builder = _pulsar.MessageBuilder()
        builder.content(b"%d" % entry)
        builder.partition_key(key)
        for name, value in (properties or {}).items():
            builder.property(name, value)
        self._built = builder.build()
        self._id = _pulsar.MessageId(-1, 4, entry, -1)

    def message_id(self) -> Any:
        return self._id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._built, name)


def both(*messages: Message) -> list[Record]:
    """As a group gets them, which must be as they are read without one."""
    consumed = [decode_frame(frame) for frame in encode(messages, 0, Held()).frames]
    positions = [record.position for record in consumed]
    read = [encode_one(message, 0, position) for message, position in zip(messages, positions, strict=True)]
    assert [decode_frame(frame) for frame in read] == consumed
    return consumed


def test_a_key_that_is_no_text_is_a_key() -> None:
    before, bad, after = both(Message(1, b"a"), Message(2, b"\xff\xfe", {b"name": b"value"}), Message(3, b"b"))
    assert (before.key, bad.key, after.key) == (b"a", b"\xff\xfe", b"b")
    assert bad.headers == (Header("name", b"value"),)


@pytest.mark.parametrize("bad", [{b"a": b"\xff"}, {b"\xff": b"a"}, {b"a": b"b", b"c": b"\xff"}])
def test_properties_that_are_no_text_are_left_out_and_it_is_said(bad: dict[bytes, bytes]) -> None:
    good = {b"name": b"value"}
    before, broken, after = both(Message(1, b"a", good), Message(2, b"b", bad), Message(3, b"c", good))
    assert (broken.key, broken.value) == (b"b", b"2")
    assert broken.headers == (UNREADABLE,)
    assert before.headers == after.headers == (Header("name", b"value"),)


def test_neither_key_nor_properties_are_text() -> None:
    (record,) = both(Message(1, b"\xff", {b"\xff": b"\xfe"}))
    assert (record.key, record.headers) == (b"\xff", (UNREADABLE,))


@pytest.mark.parametrize("text", ['[["\\ud800", ""]]', "[" * 100_000, '[["name"]]', "null"])
def test_properties_that_only_look_like_ours_are_properties(text: str) -> None:
    """Whoever wrote them, the record must go on its way."""
    (record,) = both(Message(1, b"key", {HEADERS.encode(): text.encode()}))
    assert record.headers == (Header(HEADERS, text.encode()),)
    assert record.key == b"key"

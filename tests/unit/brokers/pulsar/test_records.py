"""Messages to records and back, also those that Pulsar's own clients would never write."""

from typing import Any

import _pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.brokers.pulsar.records import HEADERS, encode_batch, encode_one, key_and_headers, key_and_properties
from sidecar.brokers.pulsar.unacked import UnackedMessages
from sidecar.model.records import Header, Record
from sidecar.model.wire import decode_frame

UNREADABLE = Header("offramp-unreadable", b"properties")


class Message:
    """A message of the library that has arrived, in an entry of its own."""

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
    """The records as a group gets them, which must be equal to those that are read without a group."""
    consumed = [decode_frame(frame) for frame in encode_batch(messages, 0, UnackedMessages()).frames]
    positions = [record.position for record in consumed]
    read = [encode_one(message, 0, position) for message, position in zip(messages, positions, strict=True)]
    assert [decode_frame(frame) for frame in read] == consumed
    return consumed


def test_a_key_that_is_not_utf_8_is_delivered() -> None:
    before, bad, after = both(Message(1, b"a"), Message(2, b"\xff\xfe", {b"name": b"value"}), Message(3, b"b"))
    assert (before.key, bad.key, after.key) == (b"a", b"\xff\xfe", b"b")
    assert bad.headers == (Header("name", b"value"),)


@pytest.mark.parametrize("bad", [{b"a": b"\xff"}, {b"\xff": b"a"}, {b"a": b"b", b"c": b"\xff"}])
def test_properties_that_are_not_utf_8_are_replaced_by_a_header_that_says_so(bad: dict[bytes, bytes]) -> None:
    good = {b"name": b"value"}
    before, broken, after = both(Message(1, b"a", good), Message(2, b"b", bad), Message(3, b"c", good))
    assert (broken.key, broken.value) == (b"b", b"2")
    assert broken.headers == (UNREADABLE,)
    assert before.headers == after.headers == (Header("name", b"value"),)


def test_a_message_whose_key_and_properties_are_not_utf_8_is_delivered() -> None:
    (record,) = both(Message(1, b"\xff", {b"\xff": b"\xfe"}))
    assert (record.key, record.headers) == (b"\xff", (UNREADABLE,))


@pytest.mark.parametrize("text", ['[["\\ud800", ""]]', "[" * 100_000, '[["name"]]', "null"])
def test_a_headers_property_that_offramp_did_not_write_is_a_plain_header(text: str) -> None:
    (record,) = both(Message(1, b"key", {HEADERS.encode(): text.encode()}))
    assert record.headers == (Header(HEADERS, text.encode()),)
    assert record.key == b"key"


keys = st.none() | st.binary(max_size=8) | st.text(max_size=8).map(str.encode)


headers = st.lists(
    st.builds(Header, st.text(max_size=6), st.none() | st.binary(max_size=6) | st.text(max_size=6).map(str.encode)),
    max_size=5,
)


@given(keys, headers)
def test_keys_and_headers_come_back_exactly(key: bytes | None, written: list[Header]) -> None:
    text, properties = key_and_properties(key, written)
    assert key_and_headers(properties, text.encode()) == (key, tuple(written))


@given(st.text(max_size=12), st.sampled_from(["[[1, 2]]", '[["a", 5]]', "[1]", "{}", "null", "[[]]", "5"]) | st.text())
def test_any_text_in_the_properties_of_offramp_gives_a_key_and_headers(key: str, text: str) -> None:
    found, headers = key_and_headers({"offramp-key": key, "offramp-headers": text, "a": "1"}, b"key")
    assert found is not None
    assert all(isinstance(name, str) for name, _ in headers)


def test_a_text_key_and_sorted_text_headers_need_no_properties_of_offramp() -> None:
    assert key_and_properties(b"key", [Header("a", b"1"), Header("b", b"2")]) == ("key", {"a": "1", "b": "2"})

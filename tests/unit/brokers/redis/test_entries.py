"""Entries of a stream to messages, and back."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sidecar.brokers.redis.entries import Mapping, number_of
from sidecar.model.records import Header, Message

MAPPING = Mapping(b"value", b"key")

names = st.sampled_from(["value", "key", "offramp", "", "ü"]) | st.text(max_size=5)
payloads = st.none() | st.binary(max_size=10)
headers = st.builds(Header, names, payloads)
messages = st.builds(
    Message, payloads, payloads, st.lists(headers, max_size=4).map(tuple), timestamp_ms=st.integers(0, (1 << 63) - 1)
)


def received(*fields: bytes, id_: bytes = b"1700000000000-3") -> Any:
    (one,) = MAPPING.received([(id_, list(fields))], again=False)
    return one


@given(messages)
def test_what_is_published_comes_back_exactly(message: Message) -> None:
    fields = MAPPING.fields(message)
    assert fields, "an entry cannot be empty"
    found = received(*fields)
    assert (found.key, found.value, tuple(found.headers)) == (message.key, message.value, message.headers)
    assert found.timestamp_ms == (message.timestamp_ms or 1700000000000)


@given(st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=30)), min_size=1, max_size=5))
def test_no_entry_of_anybody_breaks_the_reading(pairs: list[tuple[bytes, bytes]]) -> None:
    received(*(part for pair in pairs for part in pair))


def test_an_entry_of_any_producer_has_a_value_a_key_and_headers() -> None:
    found = received(b"source", b"shop", b"key", b"k", b"value", b"v", b"source", b"again")
    assert (found.key, found.value) == (b"k", b"v")
    assert found.headers == [Header("source", b"shop"), Header("source", b"again")]


def test_an_entry_without_the_value_field_is_headers_only() -> None:
    found = received(b"name", b"Ann", b"age", b"7")
    assert (found.key, found.value, found.headers) == (None, None, [Header("name", b"Ann"), Header("age", b"7")])


def test_a_field_of_somebody_elses_that_is_called_offramp_is_a_header() -> None:
    for value in (
        b"true",
        b"{}",
        b"[1]",
        b"\xff",
        b'{"key": true, "value": true}',
        b'{"key": 0, "value": 0, "timestamp_ms": -1}',
    ):
        found = received(b"offramp", value, b"value", b"v")
        assert (found.value, found.headers) == (b"v", [Header("offramp", value)])


def test_the_id_of_an_entry_is_its_ref_and_ascends_as_a_number() -> None:
    found = received(b"value", b"v")
    assert (found.ref, found.timestamp_ms) == (b"1700000000000-3", 1700000000000)
    ids = [b"0-1", b"1-0", b"1-5", b"2-0", b"1700000000000-3", b"1700000000000-4", b"1700000000001-0"]
    numbers = [number_of(id_) for id_ in ids]
    assert numbers == sorted(set(numbers))
    # An id that a producer made up may be too large for a position.
    assert number_of(b"18446744073709551615-1") == number_of(b"1-18446744073709551615") == -1

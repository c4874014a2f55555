"""Messages of a stream as records, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.brokers.nats import messages
from sidecar.brokers.nats.messages import Place
from sidecar.model.records import Header, Message

PLACE = Place(7, 9, 1, 1_700_000_000_123_456_789)
HEADERS = st.lists(
    st.builds(
        Header,
        st.text(max_size=8)
        | st.sampled_from(["A", "Nats-Msg-Id", "nats-rollup", "offramp-key", "offramp-header", "Status"]),
        st.none() | st.binary(max_size=8) | st.text(max_size=8).map(str.encode),
    ),
    max_size=5,
)


def _block(pairs: list[tuple[str, str]]) -> bytes:
    """As the library writes it."""
    lines = "".join(f"{name.strip()}: {text.strip()}\r\n" for name, text in pairs)
    return f"NATS/1.0\r\n{lines}\r\n".encode()


@given(st.none() | st.binary(max_size=8), st.none() | st.binary(max_size=8), HEADERS, st.integers(0, 1 << 40))
def test_whatever_is_published_arrives_as_it_was(
    key: bytes | None, value: bytes | None, headers: list[Header], timestamp_ms: int
) -> None:
    message = Message(key, value, tuple(headers), timestamp_ms=timestamp_ms)
    pairs = messages.headers_of(message, "s", skip_subject=False)
    got = messages.received("handle", PLACE, "s", "s", _block(pairs), value or b"")
    assert (got.key, got.value, tuple(got.headers)) == (key, value, tuple(headers))
    assert got.timestamp_ms == (timestamp_ms or 1_700_000_000_123)
    assert messages.size_of(pairs, value or b"") == len(_block(pairs)) + len(value or b"")


def test_headers_of_the_server_are_never_sent_on() -> None:
    headers = (Header("Nats-Msg-Id", b"1"), Header("Nats-Rollup", b"all"), Header("Nats-Expected-Last-Sequence", b"3"))
    pairs = messages.headers_of(Message(None, b"", headers, deduplication_id="mine"), "s", skip_subject=False)
    assert [name for name, _ in pairs] == ["Nats-Expected-Stream", "Nats-Msg-Id", *["offramp-header"] * 3]
    assert pairs[1] == ("Nats-Msg-Id", "mine")


def test_a_subject_that_the_lane_does_not_say_is_the_first_header() -> None:
    got = messages.received("handle", PLACE, "orders.eu.1", "orders", b"NATS/1.0\r\nA: 1\r\n\r\n", b"v")
    assert got.headers == [Header("Nats-Subject", b"orders.eu.1"), Header("A", b"1")]
    message = Message(None, b"v", tuple(got.headers))
    assert messages.subject_in(message) == "orders.eu.1"
    assert ("A", "1") in messages.headers_of(message, "orders", skip_subject=True)
    assert len(messages.headers_of(message, "orders", skip_subject=True)) == 2


def test_names_of_ours_that_somebody_else_uses_are_headers() -> None:
    block = b"NATS/1.0\r\nofframp-timestamp: tomorrow\r\nofframp-header: [1]\r\nofframp-key-base64: ?\r\n\r\n"
    got = messages.received("handle", PLACE, "s", "s", block, b"v")
    assert [header.name for header in got.headers] == ["offramp-timestamp", "offramp-header", "offramp-key-base64"]
    assert (got.key, got.value) == (None, b"v")


@pytest.mark.parametrize("reply", ["$JS.ACK.S.C.3.7.9.1700.0", "$JS.ACK.domain.hash.S.C.3.7.9.1700.0.token"])
def test_a_reply_subject_says_where_the_message_is(reply: str) -> None:
    assert messages.place_of(reply) == Place(7, 9, 3, 1700)


def test_a_message_is_known_by_its_sequence_and_time() -> None:
    first, again = (messages.received("", PLACE._replace(deliveries=n), "s", "s", b"", b"") for n in (1, 3))
    assert first.ref == again.ref == b"7-1700000000123456789"
    assert (first.delivered_before, first.possibly_processed) == (0, False)
    assert (again.delivered_before, again.possibly_processed) == (2, True)

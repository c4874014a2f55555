"""What a request costs is bounded before it is parsed."""

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from offramp.v1 import consumer_pb2, publish_pb2, record_pb2
from sidecar.model.errors import TooManyEntries
from sidecar.server.grpc.entries import MAX_ENTRIES, MAX_INNER, check_entries


def check(message: Message) -> None:
    check_entries(type(message), message.SerializeToString())


def headers(count: int) -> publish_pb2.Message:
    return publish_pb2.Message(headers=[record_pb2.Header()] * count)


@pytest.mark.parametrize(
    "message",
    [
        consumer_pb2.ConsumeRequest(
            settlements=[record_pb2.Settlement(lease=bytes(16))] * MAX_ENTRIES,
            extensions=[record_pb2.Extension(lease=bytes(16))] * MAX_ENTRIES,
        ),
        publish_pb2.PublishRequest(topic="t", messages=[publish_pb2.Message(value=b"\x1a" * 500)] * MAX_ENTRIES),
        publish_pb2.PublishRequest(topic="t", messages=[headers(10)] * MAX_ENTRIES),
        publish_pb2.PublishRequest(topic="t", messages=[publish_pb2.Message(value=b"\x22\x00" * 1_000_000)]),
    ],
    ids=["as many as allowed", "values like tags", "ten headers each", "a value like entries"],
)
def test_what_an_honest_client_sends_passes(message: Message) -> None:
    check(message)


@pytest.mark.parametrize(
    "message",
    [
        publish_pb2.PublishRequest(messages=[publish_pb2.Message()] * (MAX_ENTRIES + 1)),
        publish_pb2.PublishRequest(messages=[headers(2 * MAX_INNER + 1)]),
        publish_pb2.PublishRequest(messages=[headers(MAX_INNER)] * 5),
        consumer_pb2.SettleRequest(settlements=[record_pb2.Settlement(parts=[record_pb2.Part()] * 5 * MAX_INNER)]),
    ],
    ids=["messages", "headers of one", "headers of several", "parts"],
)
def test_more_is_refused(message: Message) -> None:
    with pytest.raises(TooManyEntries, match="send fewer"):
        check(message)


def test_a_field_that_is_repeated_though_it_is_single_costs_no_more() -> None:
    with pytest.raises(TooManyEntries):
        check_entries(consumer_pb2.FetchRequest, b"\x18\x01" * 2_000_000)


@given(st.binary(max_size=200), st.integers(1, 5))
def test_any_bytes_are_looked_at_to_their_end(junk: bytes, often: int) -> None:
    raw = junk + bytes(30_000) + junk * often
    try:
        check_entries(consumer_pb2.ConsumeRequest, raw)
    except TooManyEntries:
        assert raw

"""Requests with nothing but acks are read by their bytes: what comes out is what the parser finds in them."""

from hypothesis import given
from hypothesis import strategies as st

from offramp.v1 import consumer_pb2, record_pb2
from sidecar.server.grpc.requests import MAX_PLAIN_ACKS, read_acks, read_settlement

leases = st.binary(min_size=16, max_size=16)
acks = st.builds(record_pb2.Settlement, lease=leases, outcome=st.just(record_pb2.OUTCOME_ACK))
others = st.builds(
    record_pb2.Settlement,
    lease=st.one_of(leases, st.binary(max_size=20)),
    outcome=st.integers(0, 5),
    reason=st.text(max_size=2),
    partial=st.booleans(),
)
credit = st.one_of(st.none(), st.builds(consumer_pb2.Credit, batches=st.integers(0, 3)))


@given(st.lists(acks, min_size=1, max_size=5))
def test_acks_are_read_as_they_were_written(messages: list[record_pb2.Settlement]) -> None:
    raw = consumer_pb2.ConsumeRequest(settlements=messages).SerializeToString()
    assert read_acks(raw) == [read_settlement(message) for message in messages]


@given(st.lists(st.one_of(acks, others), max_size=3), credit, st.booleans())
def test_a_request_with_anything_else_is_left_to_the_parser(
    messages: list[record_pb2.Settlement], credit: consumer_pb2.Credit | None, draining: bool
) -> None:
    request = consumer_pb2.ConsumeRequest(settlements=messages, credit=credit, draining=draining)
    ack = record_pb2.OUTCOME_ACK
    plain = all(
        len(message.lease) == 16 and message == record_pb2.Settlement(lease=message.lease, outcome=ack)
        for message in messages
    )
    is_read = read_acks(request.SerializeToString()) is not None
    assert is_read == (bool(messages) and plain and credit is None and not draining)


@given(st.binary(max_size=60))
def test_bytes_that_are_read_as_acks_are_a_request(raw: bytes) -> None:
    read = read_acks(raw)
    if read is not None:
        assert [read_settlement(each) for each in consumer_pb2.ConsumeRequest.FromString(raw).settlements] == read


def test_a_request_with_many_acks_is_left_to_the_parser_which_applies_it_in_pieces() -> None:
    message = record_pb2.Settlement(lease=bytes(16), outcome=record_pb2.OUTCOME_ACK)
    some = consumer_pb2.ConsumeRequest(settlements=[message] * MAX_PLAIN_ACKS)
    more = consumer_pb2.ConsumeRequest(settlements=[message] * (MAX_PLAIN_ACKS + 1))
    assert len(read_acks(some.SerializeToString()) or ()) == MAX_PLAIN_ACKS
    assert read_acks(more.SerializeToString()) is None

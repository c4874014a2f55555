"""From what was said of records to the settlements that travel, against a naive reading of the protocol."""

from hypothesis import given
from hypothesis import strategies as st

from offramp._internal import settlements
from offramp.outcomes import ACK, RELEASE, Outcome
from offramp.v1 import consumer_pb2
from offramp.v1 import record_pb2 as pb

LEASE = bytes(16)
NACK = Outcome(pb.OUTCOME_NACK, "no", 1_500)
REJECT = Outcome(pb.OUTCOME_REJECT, "never")

outcomes = st.sampled_from([ACK, RELEASE, NACK, REJECT])
records = st.integers(1, 40)


def marks_of(count: int, least: int = 0) -> st.SearchStrategy[dict[int, Outcome]]:
    return st.dictionaries(st.integers(0, count - 1), outcomes, min_size=least, max_size=count)


def read(settlement: pb.Settlement, count: int) -> dict[int, Outcome]:
    """What a settlement says of each record, by the rules of the protocol."""

    def said(one: pb.Settlement | pb.Part) -> Outcome:
        return Outcome(one.outcome, one.reason, one.retry_after_ms if one.HasField("retry_after_ms") else None)

    out = {} if settlement.partial else dict.fromkeys(range(count), said(settlement))
    free_from = 0
    for part in settlement.parts:
        assert part.count >= 1
        assert free_from <= part.first
        assert part.first + part.count <= count
        free_from = part.first + part.count
        out.update(dict.fromkeys(range(part.first, free_from), said(part)))
    return out


@given(st.data(), records, outcomes)
def test_marked_records_fare_as_marked_and_all_others_as_the_batch(
    data: st.DataObject, count: int, outcome: Outcome
) -> None:
    marks = data.draw(marks_of(count))
    settlement = settlements.whole(LEASE, outcome, marks)
    assert read(settlement, count) == {index: marks.get(index, outcome) for index in range(count)}


@given(st.data(), records)
def test_only_marked_records_are_named_while_the_rest_stays_in_hand(data: st.DataObject, count: int) -> None:
    marks = data.draw(marks_of(count, least=1))
    settlement = settlements.marked(LEASE, marks)
    assert settlement.partial
    assert not settlement.outcome
    assert read(settlement, count) == marks


@given(st.data(), records, outcomes)
def test_records_that_are_settled_already_are_not_named_again(
    data: st.DataObject, count: int, outcome: Outcome
) -> None:
    settled = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    marks = {index: said for index, said in data.draw(marks_of(count)).items() if index not in settled}
    settlement = settlements.rest(LEASE, count, settled, outcome, marks)
    left = set(range(count)) - settled
    assert read(settlement, count) == {index: marks.get(index, outcome) for index in left}


@given(st.data(), records, outcomes, st.integers(80, 400), st.integers(1, 9))
def test_a_settlement_in_pieces_says_the_same_and_each_piece_is_small(
    data: st.DataObject, count: int, outcome: Outcome, most: int, parts: int
) -> None:
    settlement = settlements.whole(LEASE, outcome, data.draw(marks_of(count)))
    pieces = settlements.split(settlement, count, most, parts)
    together: dict[int, Outcome] = {}
    for piece in pieces:
        assert piece.ByteSize() <= most
        assert len(piece.parts) <= parts
        said = read(piece, count)
        assert not said.keys() & together.keys()
        together.update(said)
    assert together == read(settlement, count)


@given(st.binary(max_size=300))
def test_an_ack_that_is_encoded_without_a_message_is_the_same_bytes(lease: bytes) -> None:
    assert settlements.ack_as_request(lease) == settlements.as_request(settlements.whole(lease, ACK, {}))


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=20), outcomes), max_size=20))
def test_joined_requests_are_read_as_one_with_all_settlements(said: list[tuple[bytes, Outcome]]) -> None:
    each = [settlements.whole(lease, outcome, {}) for lease, outcome in said]
    joined = b"".join(settlements.as_request(one) for one in each)
    assert [*consumer_pb2.ConsumeRequest.FromString(joined).settlements] == each


def test_a_thousand_records_that_fare_alike_travel_as_one_range() -> None:
    settlement = settlements.whole(LEASE, ACK, dict.fromkeys(range(1_000), NACK))
    assert len(settlement.parts) == 1
    assert settlements.whole(LEASE, ACK, dict.fromkeys(range(1_000), ACK)).parts == []

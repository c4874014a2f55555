"""Records and batches, without a connection."""

from datetime import UTC, datetime

import pytest

import offramp
from offramp._internal import settlements
from offramp.answers import SETTLED, Answer, SettleResult
from offramp.errors import AlreadySettled
from offramp.outcomes import ACK
from offramp.v1 import record_pb2 as pb


class Settler:
    """Keeps what is handed in."""

    def __init__(self) -> None:
        self.settlements: list[pb.Settlement] = []
        self.extensions: list[float] = []

    def ack(self, batch: offramp.Batch, *, automatic: bool) -> Answer[SettleResult]:
        return self.settle(batch, settlements.whole(batch.lease, ACK, {}), automatic=automatic)

    def settle(self, batch: offramp.Batch, settlement: pb.Settlement, *, automatic: bool) -> Answer[SettleResult]:
        self.settlements.append(settlement)
        answer: Answer[SettleResult] = Answer()
        answer.resolve(SETTLED)
        return answer

    def extend(self, batch: offramp.Batch, seconds: float) -> Answer[float]:
        self.extensions.append(seconds)
        return Answer()


def batch_of(*records: pb.Record, settler: Settler | None = None, **about: object) -> offramp.Batch:
    message = pb.Batch(lease=b"lease", topic="orders", lanes=[3], records=records, **about)  # type: ignore[arg-type]
    return offramp.Batch(message, settler or Settler(), received_at=0.0)


def ten(settler: Settler) -> offramp.Batch:
    return batch_of(*(pb.Record(value=b"%d" % index) for index in range(10)), settler=settler)


def test_a_null_value_is_not_an_empty_one() -> None:
    null, empty = batch_of(pb.Record(), pb.Record(key=b"", value=b""))
    assert (null.key, null.value) == (None, None)
    assert (empty.key, empty.value) == (b"", b"")


def test_a_record_says_where_and_when_it_was() -> None:
    (record,) = batch_of(pb.Record(lane=3, position=41, timestamp_ms=1_500, ref=b"r"))
    assert (record.topic, record.lane, record.position, record.ref) == ("orders", 3, 41, b"r")
    assert record.id == "orders/3/41"
    assert record.timestamp == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert batch_of(pb.Record())[0].timestamp is None


def test_headers_keep_their_order_and_repeat_and_the_last_one_of_a_name_wins() -> None:
    headers = [pb.Header(name="a", value=b"1"), pb.Header(name="b"), pb.Header(name="a", value=b"2")]
    (record,) = batch_of(pb.Record(headers=headers))
    assert record.headers == (("a", b"1"), ("b", None), ("a", b"2"))
    assert record.header("a") == b"2"
    assert record.header("b") is None
    assert record.header("c") is None


def test_a_batch_is_a_sequence_of_records() -> None:
    batch = ten(Settler())
    assert len(batch) == 10
    assert [record.value for record in batch] == [b"%d" % index for index in range(10)]
    assert batch[-1].value == b"9"
    assert batch[-1].index == 9
    assert [record.index for record in batch[2:4]] == [2, 3]
    with pytest.raises(IndexError):
        batch[10]


def test_attempts_are_those_of_the_ranges_that_were_delivered_before() -> None:
    redeliveries = [
        pb.Redelivery(first=1, count=2, attempt=3),
        pb.Redelivery(first=4, count=1, possibly_processed=True),
    ]
    batch = batch_of(*[pb.Record()] * 6, redeliveries=redeliveries)
    assert [record.attempt for record in batch] == [1, 3, 3, 1, 1, 1]
    assert [record.possibly_processed for record in batch] == [False, False, False, False, True, False]


def test_marks_travel_with_the_batch_and_the_last_one_counts() -> None:
    settler = Settler()
    batch = ten(settler)
    batch[3].reject("never")
    batch[3].nack(ValueError("soon"), after=2)
    batch[4].nack(ValueError("soon"), after=2)
    batch[5].ack()
    assert settler.settlements == []
    batch.ack()
    (settlement,) = settler.settlements
    assert settlement.outcome == pb.OUTCOME_ACK
    (part,) = settlement.parts
    assert (part.first, part.count, part.reason, part.retry_after_ms) == (3, 2, "ValueError: soon", 2_000)


def test_flushed_records_are_settled_while_the_rest_stays_in_hand() -> None:
    settler = Settler()
    batch = ten(settler)
    assert batch.flush() is None
    for record in batch[:4]:
        record.ack()
    assert batch.flush() is not None
    assert not batch.settled
    with pytest.raises(AlreadySettled):
        batch[0].nack()
    batch.nack("the rest")
    first, second = settler.settlements
    assert first.partial
    assert [(part.first, part.count) for part in first.parts] == [(0, 4)]
    assert second.partial
    assert [(part.first, part.count, part.outcome) for part in second.parts] == [(4, 6, pb.OUTCOME_NACK)]


def test_a_batch_that_was_flushed_to_the_last_record_may_still_be_acked() -> None:
    settler = Settler()
    batch = ten(settler)
    for record in batch:
        record.ack()
    answer = batch.flush()
    assert batch.settled
    assert batch.ack() is answer
    assert len(settler.settlements) == 1


def test_settling_twice_is_a_mistake_that_is_named() -> None:
    batch = ten(Settler())
    batch.ack()
    with pytest.raises(AlreadySettled, match="settled already"):
        batch.nack()
    with pytest.raises(AlreadySettled):
        batch[0].ack()
    with pytest.raises(AlreadySettled):
        batch.flush()


@pytest.mark.parametrize("after", [-1.0, float("nan"), float("inf")])
def test_a_time_that_nobody_can_wait_is_refused(after: float) -> None:
    batch = ten(Settler())
    with pytest.raises(ValueError, match="after"):
        batch.nack(after=after)
    with pytest.raises(ValueError, match="after"):
        offramp.Retry(after=after)
    assert not batch.settled


def test_a_lease_is_not_extended_by_nothing() -> None:
    with pytest.raises(ValueError, match="extended"):
        ten(Settler()).extend(0)


def test_reasons_are_cut_and_cleaned_to_what_can_travel() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    settler = Settler()
    batch = batch_of(*[pb.Record()] * 4, settler=settler)
    batch[0].reject("é" * 5_000)
    batch[1].reject("half a character: \udc80")
    batch[2].reject(Mute())
    batch[3].reject(KeyError())
    batch.ack()
    reasons = [part.reason for part in settler.settlements[0].parts]
    assert reasons[0] == "é" * 512
    assert reasons[1] == "half a character: ?"
    assert reasons[2].startswith("Mute: ")
    assert reasons[3] == "KeyError"

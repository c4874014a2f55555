"""Settlements are checked before any of them is applied."""

import pytest

from offramp.v1 import record_pb2 as pb
from sidecar.model.errors import InvalidRequest
from sidecar.model.records import Outcome, Part, Settlement
from sidecar.server.grpc.requests import MAX_REASON, MAX_RETRY_AFTER, read_settlements

LEASE = bytes(range(16))


def read(**fields: object) -> Settlement:
    (settlement,) = read_settlements([pb.Settlement(lease=LEASE, **fields)])
    return settlement


def part(first: int, count: int, outcome: int = pb.OUTCOME_NACK, **more: object) -> pb.Part:
    return pb.Part(first=first, count=count, outcome=outcome, **more)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_of_the_protocol_is_known(outcome: Outcome) -> None:
    assert pb.Outcome.Name(outcome.value) == f"OUTCOME_{outcome.name}"
    assert read(outcome=outcome.value) == Settlement(LEASE, outcome)


@pytest.mark.parametrize("number", [0, 6, 99, -1])
def test_an_unspecified_or_unknown_outcome_is_never_an_ack(number: int) -> None:
    with pytest.raises(
        InvalidRequest, match=rf"settlements\[0\] \(lease {LEASE.hex()}\).*outcome {number} is not one of"
    ):
        read(outcome=number)
    with pytest.raises(InvalidRequest, match=rf"parts\[0\]: outcome {number} is not one of"):
        read(outcome=1, parts=[part(0, 1, number)])


def test_parts_keep_their_own_outcome_reason_and_delay() -> None:
    parts = [part(0, 2, reason="bad", retry_after_ms=1_500), part(5, 1, pb.OUTCOME_REJECT)]
    settlement = read(outcome=pb.OUTCOME_ACK, parts=parts)
    assert settlement.parts == (Part(0, 2, Outcome.NACK, "bad", 1.5), Part(5, 1, Outcome.REJECT))


@pytest.mark.parametrize(
    "parts",
    [[part(0, 0)], [part(3, 1), part(1, 1)], [part(0, 3), part(2, 1)], [part(1, 1), part(1, 1)]],
    ids=["empty", "descending", "overlapping", "twice"],
)
def test_parts_must_ascend_and_must_not_overlap(parts: list[pb.Part]) -> None:
    with pytest.raises(InvalidRequest, match=r"parts\["):
        read(outcome=pb.OUTCOME_ACK, parts=parts)


def test_a_partial_settlement_has_parts_and_no_outcome() -> None:
    assert read(partial=True, parts=[part(0, 1)]) == Settlement(LEASE, None, parts=(Part(0, 1, Outcome.NACK),))
    with pytest.raises(InvalidRequest, match="outcome must not be"):
        read(partial=True, outcome=pb.OUTCOME_ACK, parts=[part(0, 1)])
    with pytest.raises(InvalidRequest, match="no parts"):
        read(partial=True)


def test_one_that_breaks_a_rule_is_named_among_many() -> None:
    good = pb.Settlement(lease=LEASE, outcome=pb.OUTCOME_ACK)
    with pytest.raises(InvalidRequest, match=r"settlements\[2\]"):
        read_settlements([good, good, pb.Settlement(lease=LEASE)])


@pytest.mark.parametrize("text", ["x" * 5_000, "ö" * 5_000, "😀" * 5_000])
def test_a_long_reason_is_cut_within_its_limit_and_stays_text(text: str) -> None:
    reason = read(outcome=pb.OUTCOME_NACK, reason=text).reason
    assert text.startswith(reason)
    assert MAX_REASON - 4 < len(reason.encode()) <= MAX_REASON


def test_a_delay_of_zero_is_not_the_same_as_none() -> None:
    assert read(outcome=pb.OUTCOME_NACK).retry_after is None
    assert read(outcome=pb.OUTCOME_NACK, retry_after_ms=0).retry_after == 0.0
    assert read(outcome=pb.OUTCOME_OVERLOADED, retry_after_ms=250).retry_after == 0.25


def test_a_delay_means_nothing_where_nothing_is_retried_later_and_has_a_limit() -> None:
    assert read(outcome=pb.OUTCOME_ACK, retry_after_ms=5).retry_after is None
    assert read(outcome=pb.OUTCOME_RELEASE, retry_after_ms=5).retry_after is None
    assert read(outcome=pb.OUTCOME_NACK, retry_after_ms=2**64 - 1).retry_after == MAX_RETRY_AFTER

"""A settlement that breaks a rule is refused by itself."""

import pytest

from offramp.v1 import record_pb2 as pb
from sidecar.model.limits import MAX_REASON, MAX_RETRY_AFTER
from sidecar.model.reasons import Reason
from sidecar.model.records import Outcome, Part, Settlement
from sidecar.server.grpc.entries import MAX_ENTRIES
from sidecar.server.grpc.requests import RefusedSettlement, read_settlement

LEASE = bytes(range(16))


def read(**fields: object) -> Settlement:
    return read_settlement(pb.Settlement(lease=LEASE, **fields))


def refused(match: str, **fields: object) -> Reason:
    with pytest.raises(RefusedSettlement, match=match) as raised:
        read(**fields)
    return raised.value.reason


def part(first: int, count: int, outcome: int = pb.OUTCOME_NACK, **more: object) -> pb.Part:
    return pb.Part(first=first, count=count, outcome=outcome, **more)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_of_the_protocol_is_known(outcome: Outcome) -> None:
    assert pb.Outcome.Name(outcome.value) == f"OUTCOME_{outcome.name}"
    assert read(outcome=outcome.value) == Settlement(LEASE, outcome)


@pytest.mark.parametrize("number", [0, 6, 99, -1])
def test_an_unspecified_or_unknown_outcome_is_never_an_ack(number: int) -> None:
    assert refused(rf"^outcome {number} is not one of", outcome=number) is Reason.UNKNOWN_OUTCOME
    parts = [part(0, 1, number)]
    assert refused(rf"parts\[0\]: outcome {number} is not one of", outcome=1, parts=parts) is Reason.UNKNOWN_OUTCOME


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
    assert refused(r"parts\[", outcome=pb.OUTCOME_ACK, parts=parts) is Reason.INVALID_PARTS


def test_a_partial_settlement_has_parts_and_no_outcome() -> None:
    assert read(partial=True, parts=[part(0, 1)]) == Settlement(LEASE, None, parts=(Part(0, 1, Outcome.NACK),))
    refused("outcome must not be", partial=True, outcome=pb.OUTCOME_ACK, parts=[part(0, 1)])
    refused("no parts", partial=True)


def test_a_settlement_with_too_many_parts_is_refused_before_they_are_read() -> None:
    parts = [pb.Part()] * (MAX_ENTRIES + 1)
    assert refused("more than 10,000", outcome=pb.OUTCOME_ACK, parts=parts) is Reason.TOO_MANY_ENTRIES


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

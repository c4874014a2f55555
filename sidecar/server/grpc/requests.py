"""Fields of requests, checked. A settlement that breaks a rule goes no further than this module."""

import re
from collections.abc import Iterable

from offramp.v1 import consumer_pb2
from offramp.v1 import record_pb2 as pb
from sidecar.brokers.base import AtTime
from sidecar.model.errors import InvalidRequest
from sidecar.model.limits import MAX_RETRY_AFTER, kept_reason
from sidecar.model.reasons import Reason
from sidecar.model.records import Credit, Outcome, Part, Settlement
from sidecar.server.grpc.entries import MAX_ENTRIES

#: bytes; what gRPC clients accept by default
DEFAULT_MESSAGE_BYTES = 4 << 20
#: bytes; below this hardly any record would fit, and a record that fits no client is dead-lettered
MIN_MESSAGE_BYTES = 4_096

#: acks that are read at once; a request with more of them is applied in pieces
MAX_PLAIN_ACKS = 1_000
_LEASE_BYTES = 16
#: ConsumeRequest.settlements with a lease and ACK, as all libraries write it: lengths and tags of two fields
_PLAIN_ACK = b"\x12\x14\x0a\x10%b\x10\x01"
_PLAIN_ACKS = re.compile(b"(?:" + _PLAIN_ACK % b".{16}" + b")+", re.DOTALL)
_PLAIN_ACK_BYTES = len(_PLAIN_ACK % bytes(_LEASE_BYTES))
_PLAIN_ACK_LEASE = _PLAIN_ACK.index(b"%b")

_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
_ALLOWED = ", ".join(f"{outcome.name} ({outcome.value})" for outcome in Outcome)
_WITH_DELAY = frozenset({Outcome.NACK, Outcome.OVERLOADED})


def read_message_bytes(number: int, default: int = DEFAULT_MESSAGE_BYTES) -> int:
    """`max_message_bytes`, or the default for 0. Raises `InvalidRequest`."""
    if 0 < number < MIN_MESSAGE_BYTES:
        raise InvalidRequest(f"max_message_bytes: {number} is less than {MIN_MESSAGE_BYTES}")
    return number or default


def read_credit(credit: consumer_pb2.Credit) -> Credit:
    return Credit(credit.batches, credit.bytes)


def read_time(timestamp_ms: int) -> AtTime:
    """Raises `InvalidRequest` for a time before 1970: no record is that old, and some brokers take such a number for
    something other than a time."""
    if timestamp_ms < 0:
        raise InvalidRequest(f"timestamp_ms: {timestamp_ms} is negative; it counts milliseconds since 1970")
    return AtTime(timestamp_ms)


class RefusedSettlement(Exception):
    """One settlement breaks a rule. Its text is for people."""

    def __init__(self, text: str, reason: Reason = Reason.INVALID_PARTS) -> None:
        super().__init__(text)
        self.reason = reason


def read_acks(raw: bytes) -> list[Settlement] | None:
    """The settlements of a `ConsumeRequest` that acks some whole batches and asks for nothing else; None for any other.

    Nearly every request is such a one, and one look at its bytes is all that it takes.
    """
    if len(raw) > MAX_PLAIN_ACKS * _PLAIN_ACK_BYTES or _PLAIN_ACKS.fullmatch(raw) is None:
        return None
    leases = range(_PLAIN_ACK_LEASE, len(raw), _PLAIN_ACK_BYTES)
    return [Settlement(raw[at : at + _LEASE_BYTES], Outcome.ACK) for at in leases]


def read_settlement(message: pb.Settlement) -> Settlement:
    """Raises `RefusedSettlement`. Whether parts lie within their batch is known to the subscription only."""
    if message.outcome == pb.OUTCOME_ACK and not message.parts and not message.partial:
        # Nearly every settlement is this one, and a worker that takes batches of one sends thousands a second.
        return Settlement(message.lease, Outcome.ACK)
    if len(message.parts) > MAX_ENTRIES:
        text = f"parts: there are more than {MAX_ENTRIES:,}; settle a part of the batch at a time (partial)"
        raise RefusedSettlement(text, Reason.TOO_MANY_ENTRIES)
    if message.partial:
        if message.outcome:
            raise RefusedSettlement("partial is set, so outcome must not be: only the parts are settled")
        if not message.parts:
            raise RefusedSettlement("partial is set, but there are no parts to settle")
        return Settlement(message.lease, None, parts=_read_parts(message.parts))
    outcome = _read_outcome("", message.outcome)
    reason, retry_after = kept_reason(message.reason), _read_delay(outcome, message)
    return Settlement(message.lease, outcome, reason, retry_after, _read_parts(message.parts))


def _read_parts(messages: Iterable[pb.Part]) -> tuple[Part, ...]:
    parts = []
    free_from = 0
    for index, message in enumerate(messages):
        here = f"parts[{index}]: "
        if not message.count:
            raise RefusedSettlement(f"{here}count is 0; a part names at least one record")
        if message.first < free_from:
            raise RefusedSettlement(
                f"{here}first is {message.first}, but the part before it goes up to {free_from - 1}; parts must be "
                "ascending and must not overlap"
            )
        free_from = message.first + message.count
        outcome = _read_outcome(here, message.outcome)
        parts.append(
            Part(message.first, message.count, outcome, kept_reason(message.reason), _read_delay(outcome, message))
        )
    return tuple(parts)


def _read_outcome(where: str, number: int) -> Outcome:
    outcome = _OUTCOMES.get(number)
    if outcome is None:
        raise RefusedSettlement(f"{where}outcome {number} is not one of {_ALLOWED}", Reason.UNKNOWN_OUTCOME)
    return outcome


def _read_delay(outcome: Outcome, message: pb.Settlement | pb.Part) -> float | None:
    """Seconds. A delay counts only for outcomes that would use the backoff otherwise."""
    if outcome not in _WITH_DELAY or not message.HasField("retry_after_ms"):
        return None
    return min(message.retry_after_ms / 1_000, MAX_RETRY_AFTER)

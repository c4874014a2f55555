"""What workers say of leases, checked. Nothing that breaks a rule gets past this file."""

from collections.abc import Iterable

from offramp.v1 import record_pb2 as pb
from sidecar.model.errors import InvalidRequest
from sidecar.model.records import Outcome, Part, Settlement

#: bytes of a reason that are kept
MOST_REASON = 1_024
#: seconds; due times are written down in milliseconds and must stay representable
MOST_RETRY_AFTER = 366 * 86_400.0

_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
_ALLOWED = ", ".join(f"{outcome.name} ({outcome.value})" for outcome in Outcome)
_WITH_DELAY = frozenset({Outcome.NACK, Outcome.OVERLOADED})


def read_settlements(messages: Iterable[pb.Settlement]) -> list[Settlement]:
    """Raises `InvalidRequest`, which names the settlement, before any of them can be applied.

    Whether parts lie within their batch is not known here: the subscription checks that.
    """
    return [_read_settlement(index, message) for index, message in enumerate(messages)]


def _read_settlement(index: int, message: pb.Settlement) -> Settlement:
    if message.outcome == pb.OUTCOME_ACK and not message.parts and not message.partial:
        # Nearly every settlement is this one, and a worker that takes batches of one sends thousands a second.
        return Settlement(message.lease, Outcome.ACK)
    where = f"settlements[{index}] (lease {message.lease.hex()})"
    if message.partial:
        if message.outcome:
            raise InvalidRequest(f"{where}: partial is set, so outcome must not be: only the parts are settled")
        if not message.parts:
            raise InvalidRequest(f"{where}: partial is set, but there are no parts to settle")
        return Settlement(message.lease, None, parts=_read_parts(where, message.parts))
    outcome = _read_outcome(where, message.outcome)
    reason, retry_after = _read_reason(message.reason), _read_delay(outcome, message)
    return Settlement(message.lease, outcome, reason, retry_after, _read_parts(where, message.parts))


def _read_parts(where: str, messages: Iterable[pb.Part]) -> tuple[Part, ...]:
    parts = []
    free_from = 0
    for index, message in enumerate(messages):
        here = f"{where}.parts[{index}]"
        if not message.count:
            raise InvalidRequest(f"{here}: count is 0; a part names at least one record")
        if message.first < free_from:
            raise InvalidRequest(
                f"{here}: first is {message.first}, but the part before it goes up to {free_from - 1}; parts must be "
                "ascending and must not overlap"
            )
        free_from = message.first + message.count
        outcome = _read_outcome(here, message.outcome)
        parts.append(
            Part(message.first, message.count, outcome, _read_reason(message.reason), _read_delay(outcome, message))
        )
    return tuple(parts)


def _read_outcome(where: str, number: int) -> Outcome:
    outcome = _OUTCOMES.get(number)
    if outcome is None:
        raise InvalidRequest(f"{where}: outcome {number} is not one of {_ALLOWED}")
    return outcome


def _read_reason(text: str) -> str:
    if len(text) * 4 <= MOST_REASON:
        return text
    return text.encode()[:MOST_REASON].decode(errors="ignore")


def _read_delay(outcome: Outcome, message: pb.Settlement | pb.Part) -> float | None:
    """Seconds. A delay means something only where the backoff would be used otherwise."""
    if outcome not in _WITH_DELAY or not message.HasField("retry_after_ms"):
        return None
    return min(message.retry_after_ms / 1_000, MOST_RETRY_AFTER)

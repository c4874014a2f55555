"""The outcome of a record, and the exceptions by which a handler sets it.

SettleAs
├── Retry        failed; deliver it again, after the subscription's backoff or after the given time
├── Reject       will never succeed; dead-letter it now
├── Release      not tried; deliver it again at once, without counting an attempt
└── Overloaded   a service behind the handler asks for less; deliver it again later, without counting an attempt

Any other exception of a handler is a `Retry` with the exception as its reason.
"""

from typing import NamedTuple, Self

from offramp.protocol import MOST_REASON
from offramp.v1 import record_pb2 as pb

#: seconds
_LONGEST_DELAY = 100 * 366 * 86_400.0


class Outcome(NamedTuple):
    """A kind of outcome with its reason and delay. Neighbouring records with equal outcomes are sent as one range."""

    kind: pb.Outcome
    reason: str = ""
    retry_after_ms: int | None = None

    @classmethod
    def of(cls, kind: pb.Outcome, reason: str | BaseException = "", after: float | None = None) -> Self:
        """`after` is in seconds. Raises `ValueError` if it is negative, a century or more, or not a number."""
        if after is None:
            return cls(kind, reason_text(reason))
        if not 0 <= after < _LONGEST_DELAY:
            raise ValueError(f"after: {after} seconds is not a time to wait; it must be 0 or more, and under a century")
        return cls(kind, reason_text(reason), round(after * 1_000))


ACK = Outcome(pb.OUTCOME_ACK)
RELEASE = Outcome(pb.OUTCOME_RELEASE)


def reason_text(reason: str | BaseException) -> str:
    """A reason as it is sent: an exception with its class name, cut to what the sidecar keeps."""
    text = reason if isinstance(reason, str) else describe(reason)
    if text.isascii() and len(text) <= MOST_REASON:
        return text
    # Text that Python decoded from invalid bytes may have lone surrogates, which protobuf refuses.
    return text.encode(errors="replace")[:MOST_REASON].decode(errors="ignore")


def describe(error: BaseException) -> str:
    """An exception in one line."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:
        text = "it has no text: its __str__ failed"
    return f"{name}: {text}" if text else name


class SettleAs(Exception):
    """Raise one of its subclasses in a handler to settle all records that the handler has not settled itself."""

    outcome: Outcome

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


class Retry(SettleAs):
    """Try again, after `after` seconds if given. Counts as an attempt."""

    def __init__(self, reason: str | BaseException = "", *, after: float | None = None) -> None:
        super().__init__(Outcome.of(pb.OUTCOME_NACK, reason, after))


class Reject(SettleAs):
    """Never try again: dead-letter it, with this reason."""

    def __init__(self, reason: str | BaseException) -> None:
        super().__init__(Outcome.of(pb.OUTCOME_REJECT, reason))


class Release(SettleAs):
    """It was not tried: deliver it again at once, to any free worker."""

    def __init__(self, reason: str | BaseException = "") -> None:
        super().__init__(Outcome.of(pb.OUTCOME_RELEASE, reason))


class Overloaded(SettleAs):
    """Deliver it again later, and keep fewer batches in flight. Does not count as an attempt."""

    def __init__(self, reason: str | BaseException = "", *, after: float | None = None) -> None:
        super().__init__(Outcome.of(pb.OUTCOME_OVERLOADED, reason, after))


def outcome_of(error: BaseException) -> Outcome:
    """The outcome that a handler's exception sets for its batch."""
    return error.outcome if isinstance(error, SettleAs) else Outcome.of(pb.OUTCOME_NACK, error)

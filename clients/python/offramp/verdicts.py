"""What becomes of records, and the exceptions by which a handler says so.

SettleAs
├── Retry        failed; deliver it again, after the subscription's backoff or after the time given here
├── Reject       will never succeed; dead-letter it now
├── Release      not tried; deliver it again at once, without counting an attempt
└── Overloaded   what is behind the handler asks for less; deliver it again later, without counting an attempt

Any other exception of a handler is a `Retry` with the exception as its reason.
"""

from typing import NamedTuple

from offramp.protocol import MOST_REASON
from offramp.v1 import record_pb2 as pb


class Verdict(NamedTuple):
    """An outcome and what goes with it. Equal verdicts of neighbouring records travel as one."""

    outcome: pb.Outcome
    reason: str = ""
    retry_after_ms: int | None = None


#: seconds
_LONGEST = 100 * 366 * 86_400.0

ACK = Verdict(pb.OUTCOME_ACK)
RELEASE = Verdict(pb.OUTCOME_RELEASE)


def verdict(outcome: pb.Outcome, reason: str | BaseException = "", after: float | None = None) -> Verdict:
    """Raises `ValueError` for a time that nobody can wait."""
    if after is None:
        return Verdict(outcome, reason_text(reason))
    if not 0 <= after < _LONGEST:
        raise ValueError(f"after: {after} seconds is not a time to wait; it must be 0 or more, and under a century")
    return Verdict(outcome, reason_text(reason), round(after * 1_000))


def reason_text(reason: str | BaseException) -> str:
    """A reason as it travels: an exception with its name, and no more than is kept of it."""
    text = reason if isinstance(reason, str) else describe(reason)
    if text.isascii() and len(text) <= MOST_REASON:
        return text
    # Texts that Python made of undecodable bytes hold halves of characters, which protobuf refuses.
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
    """Raise one of its kinds in a handler to settle what the handler has not settled itself."""

    verdict: Verdict

    def __init__(self, said: Verdict) -> None:
        super().__init__(said.reason)
        self.verdict = said


class Retry(SettleAs):
    """Try again, `after` so many seconds if given. Counts as an attempt."""

    def __init__(self, reason: str | BaseException = "", *, after: float | None = None) -> None:
        super().__init__(verdict(pb.OUTCOME_NACK, reason, after))


class Reject(SettleAs):
    """Never try again: dead-letter it, with this reason."""

    def __init__(self, reason: str | BaseException) -> None:
        super().__init__(verdict(pb.OUTCOME_REJECT, reason))


class Release(SettleAs):
    """It was not tried. It comes back at once, to whoever is free."""

    def __init__(self, reason: str | BaseException = "") -> None:
        super().__init__(verdict(pb.OUTCOME_RELEASE, reason))


class Overloaded(SettleAs):
    """Less, please: it comes back later, and the sidecar keeps fewer batches in flight."""

    def __init__(self, reason: str | BaseException = "", *, after: float | None = None) -> None:
        super().__init__(verdict(pb.OUTCOME_OVERLOADED, reason, after))


def verdict_of(error: BaseException) -> Verdict:
    """What a handler's exception says of the batch."""
    return error.verdict if isinstance(error, SettleAs) else verdict(pb.OUTCOME_NACK, error)

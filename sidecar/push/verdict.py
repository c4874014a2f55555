"""What a call can end with. Each verdict has a `status` for metrics and spans: an HTTP status or a word."""

from dataclasses import dataclass

from sidecar.model.records import Message, Outcome, Part


@dataclass(frozen=True, slots=True)
class Settled:
    """The app answered: settle the batch like this."""

    status: str
    outcome: Outcome
    reason: str = ""
    #: seconds; None: by the backoff
    retry_after: float | None = None
    #: records with another outcome
    parts: tuple[Part, ...] = ()
    #: the records may have been processed, though the answer is no ack
    possibly_processed: bool = False
    #: publish this before the batch is settled
    reply: Message | None = None


@dataclass(frozen=True, slots=True)
class NotReached:
    """The batch did not reach the code that is to process it: nobody listens, or the route is wrong. It counts for
    nothing, and the next call is a single one, some time later."""

    status: str
    #: what is wrong and what to do, for people
    text: str


@dataclass(frozen=True, slots=True)
class Died:
    """The connection ended before the answer was complete: the app may have died of this batch."""

    status: str


@dataclass(frozen=True, slots=True)
class TimedOut:
    """There was no answer in time. The call may still run."""

    status: str
    reason: str


Verdict = Settled | NotReached | Died | TimedOut

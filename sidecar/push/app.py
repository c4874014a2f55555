"""An app that is called, whatever the protocol."""

from typing import Protocol

from sidecar.model.records import Delivery
from sidecar.push.verdict import Verdict

#: bytes of a batch: no limit but that of `batch.bytes`, which a record alone may exceed
UNLIMITED = 1 << 40


class App(Protocol):
    """Serves batches, several at a time."""

    #: what it is called by, such as `http`
    protocol: str
    #: where it is, for people; no secrets
    address: str
    #: records that one call can carry; 0: as many as the subscription's settings say
    batch_records: int
    #: bytes of the largest batch; a record alone that is larger is treated as `oversized` says
    max_batch_bytes: int = UNLIMITED

    def open(self) -> None:
        """Called once, before the first batch."""

    async def handle(self, delivery: Delivery, traceparent: str) -> Verdict:
        """Call the app with a batch. Returns after the time-out of the settings at the latest.

        `traceparent` is the span of this call; empty without tracing. Raises only for bugs. If it is cancelled, the
        outcome is not known.
        """

    async def close(self) -> None:
        """Close idle connections. No call is under way. Never raises, and may be called without `open`."""

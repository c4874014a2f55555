"""What a subscription tells whoever makes spans. Batch by batch, never record by record."""

from collections.abc import Sequence
from typing import Any, Protocol

from sidecar.core.state.leases import Lease
from sidecar.model.records import Chunk, Settlement, SettleResult
from sidecar.settings import SubscriptionSettings


class Spans(Protocol):
    """For one subscription. No call blocks or raises."""

    def polled(self, began: int, chunks: Sequence[Chunk]) -> None:
        """Records came from the broker, by a poll that began then (nanoseconds since 1970)."""

    def delivered(self, lease: Lease[Any]) -> None:
        """A batch is on its way to a worker."""

    def settled(self, began: int, lease: Lease[Any], settlement: Settlement, result: SettleResult) -> None:
        """A worker said how it went, and was answered."""

    def ended(self, lease: Lease[Any]) -> None:
        """The batch is in the hands of its worker no more: settled, expired, or its session ended."""

    def close(self) -> None:
        """The subscription is over: so is what is under way."""


class Tracing(Protocol):
    """For the whole sidecar."""

    def spans(self, settings: SubscriptionSettings, system: str) -> Spans:
        """For a subscription on a broker of this type."""

    async def close(self) -> None:
        """Send what was not sent yet, if that takes no longer than a moment. Never raises."""

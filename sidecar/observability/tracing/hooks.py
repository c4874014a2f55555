"""What a subscription tells whoever makes spans. Batch by batch, never record by record."""

from collections.abc import Sequence
from typing import Any, Protocol

from sidecar.model.records import Chunk, Outcome, Settlement, SettleResult
from sidecar.settings import SubscriptionSettings


class Slice(Protocol):
    """Consecutive records of one chunk."""

    chunk: Chunk
    start: int
    stop: int
    records: int
    history: Any


class Lease(Protocol):
    """What a tracer reads of a batch: a view of `core.state.leases.Lease`, which stands above this package."""

    id: bytes
    records: int
    holder: Any
    outcomes: list[tuple[int, int, Outcome]]

    @property
    def slices(self) -> Sequence[Slice]: ...

    @property
    def ended(self) -> bool: ...


class Tracer(Protocol):
    """For one subscription. No call blocks or raises."""

    def polled(self, began: int, chunks: Sequence[Chunk]) -> None:
        """Records came from the broker, by a poll that began then (nanoseconds since 1970)."""

    def delivered(self, lease: Lease) -> None:
        """A batch is on its way to a worker."""

    def settled(self, began: int, lease: Lease, settlement: Settlement, result: SettleResult) -> None:
        """A worker said how it went, and was answered."""

    def ended(self, lease: Lease) -> None:
        """The batch is in the hands of its worker no more: settled, expired, or its session ended."""

    def close(self) -> None:
        """The subscription is over: so is what is under way."""


class Tracing(Protocol):
    """For the whole sidecar."""

    def tracer(self, settings: SubscriptionSettings, system: str) -> Tracer:
        """For a subscription on a broker of this type."""

    async def close(self) -> None:
        """Send what was not sent yet, if that takes no longer than a moment. Never raises."""

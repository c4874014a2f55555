"""When a batch is complete. Pure."""

from sidecar.model import ClosedBy
from sidecar.settings import BatchSettings


class Batching:
    """A batch is closed by count, by bytes, or when its first record has lingered long enough."""

    def __init__(self, settings: BatchSettings) -> None:
        self.records = settings.records
        self.bytes = int(settings.bytes)
        self.linger = float(settings.linger)

    def closed_by(self, records: int, size: int, oldest: float, now: float) -> ClosedBy | None:
        """Why a batch of what is ready would be complete; None if it should wait for more."""
        if records >= self.records:
            return ClosedBy.RECORDS
        if size >= self.bytes:
            return ClosedBy.BYTES
        if now >= oldest + self.linger:
            return ClosedBy.LINGER
        return None

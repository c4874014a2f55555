"""What a worker can take, when a batch is complete, and what was selected for it. Pure."""

from typing import NamedTuple

from sidecar.core.state.record_slices import RecordSlice, RedeliveryGroup
from sidecar.model.records import ClosedBy
from sidecar.settings import BatchSettings


class Capacity(NamedTuple):
    """What the worker that waits can take."""

    #: most bytes of a batch; a single record may exceed it
    bytes: int
    #: most bytes that its connection takes at all; 0: no record beyond `bytes` is wanted
    hard_bytes: int


class Selection(NamedTuple):
    """Records that go out together."""

    slices: list[RecordSlice]
    closed_by: ClosedBy
    isolated: bool = False
    first_lease: int = 0
    uncounted_failures: int = 0
    #: parcels that wait no more
    groups: tuple[RedeliveryGroup, ...] = ()
    #: the session that gets it has nothing else in hand, and gets nothing else meanwhile
    exclusive: bool = False


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

"""What a worker can take, what is selected for it, and when a batch is complete. Pure."""

from typing import NamedTuple

from sidecar.core.state.record_slices import RecordSlice, RedeliveryGroup
from sidecar.model.records import ClosedBy
from sidecar.settings import BatchSettings


class Capacity(NamedTuple):
    """How much the worker that is served can take."""

    #: bytes of a batch; a single record may exceed it
    bytes: int
    #: bytes that its connection takes at all; 0: not even a single record may exceed `bytes`
    hard_bytes: int
    #: records of a batch
    records: int = 1 << 32


class Selection(NamedTuple):
    """Records of the next batch."""

    slices: list[RecordSlice]
    closed_by: ClosedBy
    isolated: bool = False
    first_lease: int = 0
    uncounted_failures: int = 0
    #: redelivery groups that it uses up
    groups: tuple[RedeliveryGroup, ...] = ()
    #: its records waited for redelivery; otherwise they were fresh
    waited: bool = False
    #: its session holds no other batch until it is settled
    exclusive: bool = False


class Batching:
    """A batch is closed by records, by bytes, or once its oldest record has lingered long enough."""

    def __init__(self, settings: BatchSettings) -> None:
        self.records = settings.records
        self.bytes = int(settings.bytes)
        self.linger = float(settings.linger)

    def closed_by(self, records: int, size: int, oldest: float, now: float, most: int = 1 << 32) -> ClosedBy | None:
        """Why a batch of what is ready is complete for a worker that takes `most` records; None if it should wait for
        more."""
        if records >= min(self.records, most):
            return ClosedBy.RECORDS
        if size >= self.bytes:
            return ClosedBy.BYTES
        if now >= oldest + self.linger:
            return ClosedBy.LINGER
        return None

"""The words of Offramp as values: lanes, chunks of records, outcomes, settlements."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from itertools import accumulate
from typing import NamedTuple


class Lane(NamedTuple):
    """One ordered stream: a Kafka partition, a Pulsar topic partition, a lane of a local topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"


class Run(NamedTuple):
    """The positions start <= p < stop of a lane."""

    start: int
    stop: int


class Header(NamedTuple):
    name: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Message:
    """What is published. A None value is not an empty one."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    #: None: by the hash of the key, or in turn without a key
    lane: int | None = None
    #: milliseconds since 1970; 0: now
    timestamp_ms: int = 0
    #: Offramp writes it aside. It was taken once and has grown since, so what an adapter takes from apps is no measure
    aside: bool = False


class Place(NamedTuple):
    """Where a published message went. Position is -1 where the broker does not tell."""

    lane: int
    position: int


@dataclass(frozen=True, slots=True)
class Record:
    """One broker message, decoded. The hot path never makes one: it moves encoded frames (see `Chunk`)."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    lane: int
    position: int
    timestamp_ms: int = 0
    ref: bytes = b""


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Consecutive records of one lane as the broker gave them, encoded once.

    A frame is a record's bytes as a field of `Batch.records`, tag and length included, so that a batch is made
    by joining frames. Positions ascend; they need not be contiguous.
    """

    lane: Lane
    positions: Sequence[int]
    frames: list[bytes]
    #: how often the broker itself says that it delivered each before, where it counts (Pulsar)
    delivered_before: Sequence[int] | None = None
    #: another sidecar may have had these before, and how that ended is not known
    possibly_processed: bool = False
    #: where the records come from as their reader sees it, where that is not `lane`: they were parked
    origin: Lane | None = None
    #: ends[i] is the number of bytes in frames[: i + 1]
    ends: Sequence[int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ends", list(accumulate(map(len, self.frames))))

    @property
    def shown(self) -> Lane:
        """The lane as the reader sees it."""
        return self.origin or self.lane

    def size(self, start: int, stop: int) -> int:
        """Bytes of frames[start:stop], also after they were dropped."""
        if stop <= start:
            return 0
        return self.ends[stop - 1] - (self.ends[start - 1] if start else 0)

    def drop(self, start: int, stop: int) -> None:
        """Free frames[start:stop]: one slow record must not keep its whole chunk in memory."""
        self.frames[start:stop] = [b""] * (stop - start)


@dataclass(frozen=True, slots=True)
class Commit:
    """How far a lane has come: everything before `position`, and the runs in `beyond`, is settled.

    `beyond` is ascending, and never touches `position`: the record at `position` is not settled.
    """

    position: int
    beyond: tuple[Run, ...] = ()


class Order(StrEnum):
    NONE = "none"
    KEY = "key"
    LANE = "lane"


class Outcome(IntEnum):
    """Numbers as in `offramp.v1.Outcome`. There is no zero: unspecified is refused at the door."""

    ACK = 1
    NACK = 2
    RELEASE = 3
    REJECT = 4
    OVERLOADED = 5


class SettleStatus(IntEnum):
    SETTLED = 1
    STALE = 2
    UNKNOWN = 3


class ClosedBy(IntEnum):
    RECORDS = 1
    BYTES = 2
    LINGER = 3
    RETRY = 4
    PROBE = 5


@dataclass(frozen=True, slots=True)
class Part:
    """The outcome of records[first : first + count] of a batch."""

    first: int
    count: int
    outcome: Outcome
    reason: str = ""
    #: seconds; None: by the backoff
    retry_after: float | None = None


class Settlement(NamedTuple):
    """What a worker says of a lease. `outcome` is None exactly when only the parts are settled (`partial`)."""

    lease: bytes
    outcome: Outcome | None
    reason: str = ""
    retry_after: float | None = None
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Range:
    """Indexes first <= i < first + count of a batch."""

    first: int
    count: int


class SettleResult(NamedTuple):
    lease: bytes
    status: SettleStatus
    stale: tuple[Range, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Redelivery:
    first: int
    count: int
    attempt: int
    possibly_processed: bool


@dataclass(frozen=True, slots=True)
class Credit:
    """How much may be unsettled at a time: a ceiling. `bytes` = 0 means no ceiling."""

    batches: int
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """Who a worker process says it is. For people only."""

    language: str = ""
    library: str = ""
    version: str = ""
    pid: int = 0
    name: str = ""


class Delivery(NamedTuple):
    """A leased batch on its way to a worker. A tuple, because there is one for each batch: they are made faster."""

    lease: bytes
    topic: str
    lanes: tuple[int, ...]
    frames: Sequence[bytes]
    records: int
    #: bytes of the frames
    size: int
    redeliveries: tuple[Redelivery, ...]
    #: seconds
    lease_for: float
    closed_by: ClosedBy


class NoticeKind(IntEnum):
    DRAINING = 1
    REVOKED = 2
    PAUSED = 3
    RESUMED = 4


@dataclass(frozen=True, slots=True)
class Notice:
    kind: NoticeKind
    leases: tuple[bytes, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Extended:
    """The answer to an extension: `status` is None when it was granted."""

    lease: bytes
    status: SettleStatus | None
    #: seconds from now
    lease_for: float = 0.0


class SessionEnd(StrEnum):
    """How a session ended, and so what becomes of its leases."""

    #: the connection is gone: redeliver, counted
    LOST = "lost"
    #: the client left in order: redeliver at once, not counted
    ORDERLY = "orderly"
    #: there was no session to begin with (a plain Fetch): leases live until their deadline
    DETACHED = "detached"


class Start(StrEnum):
    """Where a group starts that has no position yet."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Assigned:
    """The lane is this sidecar's from now on. Its records arrive from `start` on, in order. Where the broker does not
    tell where the group is, `start` may lie before the first of them.

    `settled` are runs beyond `start` that were acked before and that the commit carried. The adapter may still
    deliver records within them; the core drops those. Also sent after a seek: then it ends the lane's earlier
    epoch.

    `first` says that no earlier life of the group can have delivered anything of the lane: the broker has its start
    durably only since now.
    """

    lane: Lane
    start: int
    settled: tuple[Run, ...] = ()
    first: bool = False

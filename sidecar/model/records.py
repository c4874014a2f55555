"""The terms of Offramp as types: lanes, records, outcomes, settlements. See docs/semantics.md."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from itertools import accumulate
from typing import NamedTuple

from sidecar.model.reasons import Reason


class Lane(NamedTuple):
    """One ordered stream: a partition of Kafka or Pulsar, a lane of a local topic."""

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
    """What is published. None is not the same as empty."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    #: None: by the hash of the key; without a key, round robin
    lane: int | None = None
    #: milliseconds since 1970; 0: now
    timestamp_ms: int = 0
    #: it goes to a side topic: the broker accepted it before without the added headers, so limits for apps do not apply
    aside: bool = False
    #: seconds until the broker may deliver it, where it can wait
    deliver_after: float = 0.0
    #: of several messages with this id the topic gets the first, where the broker can tell; empty: none
    deduplication_id: str = ""


class Place(NamedTuple):
    """Where a published message was stored. Position is -1 if the broker does not tell."""

    lane: int
    position: int


@dataclass(frozen=True, slots=True)
class Record:
    """One message of a broker, decoded. The hot path creates none: it moves encoded frames (see `Chunk`)."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    lane: int
    position: int
    timestamp_ms: int = 0
    ref: bytes = b""


def record_id(topic: str, lane: int, position: int, topic_id: str) -> str:
    """The broker's own identity of a record, the same wherever the record is. Clients compute it, too."""
    place = f"{topic}/{lane}/{position}"
    return f"{place}@{topic_id}" if topic_id else place


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Consecutive records of one lane, encoded once.

    A frame is a record as a field of `Batch.records`, tag and length included, so a batch is made by joining frames.
    Positions ascend; they need not be contiguous.
    """

    lane: Lane
    positions: Sequence[int]
    frames: list[bytes]
    #: how often the broker has delivered each record before, if it counts that (Pulsar)
    delivered_before: Sequence[int] | None = None
    #: another sidecar may have had these records, with an unknown outcome
    possibly_processed: bool = False
    #: the original lane of records that were parked, and the identity of its topic
    origin: Lane | None = None
    topic_id: str = ""
    #: ends[i] is the number of bytes in frames[: i + 1]
    ends: Sequence[int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ends", list(accumulate(map(len, self.frames))))

    @property
    def shown(self) -> Lane:
        """The lane that workers see."""
        return self.origin or self.lane

    def size(self, start: int, stop: int) -> int:
        """Bytes of frames[start:stop], also once they are dropped."""
        if stop <= start:
            return 0
        return self.ends[stop - 1] - (self.ends[start - 1] if start else 0)

    def drop(self, start: int, stop: int) -> None:
        """Free frames[start:stop], so that one slow record does not keep its whole chunk in memory."""
        self.frames[start:stop] = [b""] * (stop - start)


@dataclass(frozen=True, slots=True)
class Commit:
    """Everything before `position`, and the runs in `beyond`, is settled.

    `beyond` ascends and never touches `position`: the record at `position` is not settled.

    `reach`: no sidecar of the group has delivered records at or beyond it. None: not known; a sidecar delivers at most
    one window from `position` on.
    """

    position: int
    beyond: tuple[Run, ...] = ()
    reach: int | None = None


class Order(StrEnum):
    NONE = "none"
    KEY = "key"
    LANE = "lane"


class Outcome(IntEnum):
    """Numbers as in `offramp.v1.Outcome`. There is no zero: an unspecified outcome is rejected on arrival."""

    ACK = 1
    NACK = 2
    RELEASE = 3
    REJECT = 4
    OVERLOADED = 5


class SettleStatus(IntEnum):
    SETTLED = 1
    STALE = 2
    UNKNOWN = 3
    REFUSED = 4


class ExtendStatus(IntEnum):
    EXTENDED = 1
    ENDED = 2
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
    #: with NACK: the records may have been processed nevertheless
    possibly_processed: bool = False


class Settlement(NamedTuple):
    """What a worker reports about a lease. `outcome` is None exactly if only the parts are settled (`partial`)."""

    lease: bytes
    outcome: Outcome | None
    reason: str = ""
    retry_after: float | None = None
    parts: tuple[Part, ...] = ()
    #: of the records that no part names: see `Part`
    possibly_processed: bool = False


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
    #: with REFUSED
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Redelivery:
    first: int
    count: int
    attempt: int
    possibly_processed: bool


@dataclass(frozen=True, slots=True)
class Credit:
    """The limit on what is unsettled at a time. `bytes` = 0: no limit."""

    batches: int
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """How a worker process identifies itself. For people only."""

    language: str = ""
    library: str = ""
    version: str = ""
    pid: int = 0
    name: str = ""


class Delivery(NamedTuple):
    """A leased batch on its way to a worker. A tuple: there is one for each batch, and it is faster to create."""

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
    topic_id: str = ""


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
    #: on the clock of the subscription: until when leases can still be settled; 0: it does not say
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class Extended:
    """The result of an extension."""

    lease: bytes
    status: ExtendStatus
    #: seconds from now, if it was granted
    lease_for: float = 0.0


class SessionEnd(StrEnum):
    """How a session ended, which decides what happens to its leases."""

    #: the connection was lost: redeliver, and count the failure
    LOST = "lost"
    #: the client left in order: redeliver at once, without counting
    ORDERLY = "orderly"
    #: there was no session (a plain Fetch): leases live until their deadline
    DETACHED = "detached"


class Start(StrEnum):
    """Where a group without a position starts."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Assigned:
    """The lane belongs to this sidecar from now on. Its records arrive from `start` on, in order. If the broker does
    not tell the position of the group, `start` may lie before the first of them.

    `settled` are runs beyond `start` that were acked before and stored by the commit. The adapter may still return
    records within them; the core drops those. Also sent after a seek: then it ends the earlier epoch of the lane.

    `first`: nothing of the lane can have been delivered by an earlier run of the group, because the broker has stored
    its start only now.

    `reach`: that of the stored commit, if it had one.

    `chunks_tell`: each chunk says whether its records may have been delivered before, so no others are to be flagged.

    `topic_id`: the identity of the topic, if one that is recreated has the same positions again.
    """

    lane: Lane
    start: int
    settled: tuple[Run, ...] = ()
    first: bool = False
    topic_id: str = field(default="", compare=False)
    reach: int | None = None
    chunks_tell: bool = field(default=False, compare=False)

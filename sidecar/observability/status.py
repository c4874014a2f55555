"""The status of a sidecar: snapshots that mirror `admin.proto` field by field, with seconds for `_ms`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from sidecar.model.records import Order
from sidecar.observability.counters import Counters
from sidecar.settings import SubscriptionMode


class SubscriptionState(IntEnum):
    """Numbers as in `offramp.v1.SubscriptionState`."""

    #: not yet connected to the broker
    STARTING = 1
    RUNNING = 2
    #: by an operator, or automatically after too many rejects
    PAUSED = 3
    #: the handler is down: only single probes are delivered, nothing is dead-lettered
    PROBING = 4
    DRAINING = 5
    #: a person must change something; `trouble` says what
    FAILED = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStatus:
    topic: str
    lane: int
    #: the committed position; -1 if a subscription with mode ranges has none yet
    committed: int
    #: the next position to fetch
    fetched: int
    #: -1 if not known
    end: int = -1
    #: records behind the end that are not settled, -1 if not known
    lag: int = -1
    settled_beyond: int = 0
    ready_records: int = 0
    in_flight_records: int = 0
    waiting_records: int = 0
    paused: bool = False
    #: why nothing is fetched, for people; empty while the lane is fetched
    held_by: str = ""
    buffered_bytes: int = 0
    #: this lane belongs to the retry topic
    parked: bool = False
    #: the oldest unsettled record, for which the commit waits; -1: all fetched records are settled
    oldest_position: int = -1
    #: seconds since it was fetched
    oldest: float = 0.0
    #: the worker that holds it; empty if it waits for a worker or a retry, or is being written aside
    oldest_with: str = ""
    #: records of the lane that were delivered and are not committed
    would_be_replayed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatus:
    session: bytes
    name: str = ""
    language: str = ""
    library: str = ""
    pid: int = 0
    leases: int = 0
    in_flight_records: int = 0
    credit_batches: int = 0
    #: seconds
    age: float = 0.0
    #: seconds: the age of its oldest lease
    oldest_lease: float = 0.0
    #: seconds since its connection was lost, while it waits for its client; 0: it is connected
    away: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderStatus:
    """The reader that may commit for a subscription with mode ranges."""

    name: str
    token: int
    #: seconds since it attached
    age: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStatus:
    name: str
    broker: str
    group: str
    topics: tuple[str, ...]
    order: Order
    state: SubscriptionState
    #: the current problems, one sentence each
    trouble: tuple[str, ...] = ()
    lanes: tuple[LaneStatus, ...] = ()
    sessions: tuple[SessionStatus, ...] = ()
    #: a snapshot
    counters: Counters = field(default_factory=Counters)
    leases: int = 0
    in_flight_records: int = 0
    #: records that wait in memory for their retry
    waiting_records: int = 0
    buffered_bytes: int = 0
    buffered_bytes_limit: int = 0
    buffered_records: int = 0
    #: batches that may be in flight; 0: no limit
    concurrency_limit: int = 0
    #: seconds since the oldest unsettled record was fetched
    oldest_unsettled: float = 0.0
    #: records that were delivered and are not committed
    would_be_replayed: int = 0
    mode: SubscriptionMode = SubscriptionMode.LEASES
    reader: ReaderStatus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    name: str
    type: str
    #: empty while there is no problem
    trouble: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    version: str
    boot: bytes
    #: seconds
    uptime: float
    draining: bool = False
    subscriptions: tuple[SubscriptionStatus, ...] = ()
    brokers: tuple[BrokerStatus, ...] = ()
    #: the current problems of the sidecar itself, one sentence each
    trouble: tuple[str, ...] = ()
    #: what it runs on, for people
    runtime: Mapping[str, str] = field(default_factory=dict)

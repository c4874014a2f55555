"""What is counted and measured while records pass, and the names that logs use.

The owner of the state increments these directly: they are plain integers on one event loop, so that counting
costs next to nothing. How Prometheus sees them is in `metrics`.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sidecar.model.records import ClosedBy


@dataclass(slots=True)
class Counters:
    """Records of one subscription since the sidecar started, unless said otherwise. As in `offramp.v1.Counters`."""

    fetched: int = 0
    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    nacked: int = 0
    released: int = 0
    rejected: int = 0
    overloaded: int = 0
    expired: int = 0
    #: in the hands of sessions that ended
    abandoned: int = 0
    parked: int = 0
    unparked: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    #: settlements that were answered STALE or UNKNOWN
    stale_settlements: int = 0
    unknown_settlements: int = 0
    #: batches, and how often a failing one was split
    batches: int = 0
    splits: int = 0
    commits: int = 0
    failed_commits: int = 0
    #: by the broker, before they could be read
    removed: int = 0

    def snapshot(self) -> "Counters":
        """A copy that no longer changes."""
        return replace(self)


class Histogram:
    """Counts of values up to fixed bounds, and of those beyond the last."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        #: counts[i]: values above bounds[i - 1] and up to bounds[i]; the last one: above all bounds
        self.counts = [0] * (len(self.bounds) + 1)
        #: the sum of all values
        self.total = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count


#: records in a batch
BATCH_RECORDS_BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
#: seconds from the writing of a batch to its settlement
SETTLE_SECONDS_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1_800)


def _none_closed() -> dict[ClosedBy, int]:
    return dict.fromkeys(ClosedBy, 0)


@dataclass(slots=True)
class Meters:
    """Distributions of one subscription since the sidecar started."""

    batch_records: Histogram = field(default_factory=lambda: Histogram(BATCH_RECORDS_BOUNDS))
    #: from the writing of a batch to its settlement
    settle_seconds: Histogram = field(default_factory=lambda: Histogram(SETTLE_SECONDS_BOUNDS))
    #: bytes that were fetched from the broker and thrown away, because lanes were paused, moved or revoked
    refetched_bytes: int = 0
    #: seconds in which nothing was fetched because revoked lanes were waited for
    revoke_seconds: float = 0.0
    #: batches by the reason for their size
    closed_by: dict[ClosedBy, int] = field(default_factory=_none_closed)


#: every field of a structured log line besides time, level, logger and message. No payloads, ever.
LOG_FIELDS: Mapping[str, str] = {
    "address": "host and port",
    "broker": "a broker's name in the configuration",
    "calls": "a number of calls",
    "client": "who a worker process says it is",
    "deadline": "seconds that are left",
    "error": "what went wrong, in one sentence",
    "expires": "when a certificate does",
    "group": "a group on the broker",
    "how": "how a session ended",
    "http": "host and port of the probes and metrics",
    "lane": "a lane as topic/number",
    "lanes": "lanes as topic/number",
    "leases": "leases in the hands of workers",
    "listener": "the setting that opened a socket or port",
    "method": "a gRPC method",
    "peer": "the other end of a connection",
    "pid": "a process id",
    "position": "a position within a lane",
    "reason": "why it was done",
    "records": "a number of records",
    "seconds": "how long it took",
    "session": "a session's id, in hex",
    "signal": "a signal's name",
    "socket": "the unix socket for apps",
    "status": "a gRPC status",
    "subscription": "a subscription's name",
    "subscriptions": "subscriptions' names",
    "tcp": "host and port for apps",
    "topic": "a topic's name",
    "version": "the sidecar's version",
}

"""Counters and histograms of a subscription, and the fields of log lines.

The owner of the state increments them directly: they are plain integers on one event loop, so counting costs next to
nothing. `metrics` exports them to Prometheus, and `AdminService` in the status.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sidecar.model.records import ClosedBy


def _counter(metric: str, text: str) -> int:
    """The default of a counter, with the name of its metric, without `offramp_`, and the help text."""
    return field(default=0, metadata={"metric": metric, "help": text})


@dataclass(slots=True)
class Counters:
    """Counters of one subscription since the sidecar started.

    A new counter is added here, and as a field of the same name to `offramp.v1.Counters`. Metrics and status are
    generated from this table.
    """

    fetched: int = _counter("fetched_records_total", "Records read from the broker.")
    delivered: int = _counter("delivered_records_total", "Records written to workers.")
    redelivered: int = _counter("redelivered_records_total", "Delivered records that had been delivered before.")
    acked: int = _counter("acked_records_total", "Records that workers acked.")
    nacked: int = _counter("nacked_records_total", "Records that workers nacked.")
    released: int = _counter("released_records_total", "Records that workers released.")
    rejected: int = _counter("rejected_records_total", "Records that workers rejected.")
    overloaded: int = _counter("overloaded_records_total", "Records that workers returned as overloaded.")
    expired: int = _counter("expired_records_total", "Records whose lease expired.")
    abandoned: int = _counter("abandoned_records_total", "Records held by workers whose session was lost.")
    parked: int = _counter("parked_records_total", "Records parked in the retry topic.")
    unparked: int = _counter("unparked_records_total", "Records that came back from the retry topic.")
    dead_lettered: int = _counter("dead_lettered_records_total", "Records written to the dead-letter topic.")
    dropped: int = _counter("dropped_records_total", "Records dropped because the settings say so.")
    #: settlements with the result STALE, UNKNOWN and REFUSED
    stale_settlements: int = _counter("stale_settlements_total", "Settlements that came too late.")
    unknown_settlements: int = _counter("unknown_settlements_total", "Settlements of unknown leases.")
    refused_settlements: int = _counter("refused_settlements_total", "Settlements that broke a rule.")
    batches: int = _counter("batches_total", "Batches delivered.")
    splits: int = _counter("splits_total", "Failing batches that were split to find the record that fails.")
    commits: int = _counter("commits_total", "Commits that the broker stored.")
    failed_commits: int = _counter("failed_commits_total", "Commits that failed; they are retried.")
    resumed_sessions: int = _counter(
        "resumed_sessions_total", "Sessions that their clients resumed after a lost connection."
    )
    removed: int = _counter("removed_records_total", "Records that the broker removed before they could be read.")

    def snapshot(self) -> "Counters":
        """A copy that no longer changes."""
        return replace(self)


class Histogram:
    """Counts values in buckets with fixed upper bounds, and those above the last bound."""

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


@dataclass(slots=True)
class Meters:
    """Distributions of one subscription since the sidecar started."""

    batch_records: Histogram = field(default_factory=lambda: Histogram(BATCH_RECORDS_BOUNDS))
    #: from the writing of a batch to its settlement
    settle_seconds: Histogram = field(default_factory=lambda: Histogram(SETTLE_SECONDS_BOUNDS))
    #: bytes fetched from the broker and discarded, because lanes were paused, moved or revoked
    refetched_bytes: int = 0
    #: seconds without fetching while revoked lanes were drained
    revoke_seconds: float = 0.0
    #: calls to the app of `push`, by HTTP status or, without one, by what happened
    push_calls: dict[str, int] = field(default_factory=dict)
    #: from the beginning of a call to its answer
    push_seconds: Histogram = field(default_factory=lambda: Histogram(SETTLE_SECONDS_BOUNDS))
    #: calls that are under way, and those that timed out and may be
    push_in_flight: int = 0
    #: the app is not there, the route is wrong, or the app has asked to wait
    push_waiting: bool = False
    #: batches by what closed them
    closed_by: dict[ClosedBy, int] = field(default_factory=lambda: dict.fromkeys(ClosedBy, 0))


#: every field that a log line may have besides time, level, logger and message. Never a payload.
LOG_FIELDS: Mapping[str, str] = {
    "address": "host and port",
    "batch": "the id of a batch",
    "broker": "a broker's name in the configuration",
    "caller": "who called: a client of the configuration, or the listener if it needs no token",
    "calls": "a number of calls",
    "client": "how a worker process identifies itself",
    "deadline": "seconds that are left",
    "error": "what went wrong, in one sentence",
    "expires": "when a certificate expires",
    "group": "a group on the broker",
    "how": "how a session ended",
    "http": "host and port of the probes and metrics",
    "lane": "a lane as topic/number",
    "lanes": "lanes as topic/number",
    "leases": "leases that workers hold",
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
    "topics": "topics' names, or patterns",
    "version": "the sidecar's version",
}

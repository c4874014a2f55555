"""All metrics, and the text that Prometheus scrapes.

The table `METRICS` has the name, type, help text, labels and source of each metric. The text is generated from this
table, and a test compares the documentation with it. Counters of subscriptions come from the table in `counters`.
Nothing is kept between two scrapes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from enum import StrEnum
from operator import attrgetter

from sidecar.observability.counters import Counters, Histogram, Meters
from sidecar.observability.status import LaneStatus, Status, SubscriptionState, SubscriptionStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """Measurements of the process."""

    #: seconds: the largest delay of the event loop since the previous scrape
    loop_lag: float = 0.0
    resident_bytes: int = 0
    cpu_seconds: float = 0.0
    open_files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Measurements of the listeners."""

    #: calls without a token or with a wrong one, by listener
    refused: Mapping[str, int] = field(default_factory=dict)
    #: when the certificate in use expires, in seconds since 1970; None without TLS
    certificate_expires: float | None = None


@dataclass(frozen=True, slots=True)
class Scrape:
    """The input of one scrape."""

    status: Status
    #: by subscription
    meters: Mapping[str, Meters] = field(default_factory=dict)
    process: Process = field(default_factory=Process)
    access: Access = field(default_factory=Access)


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


#: the values of the metric's labels, and its value
Sample = tuple[tuple[str, ...], float | Histogram]


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    samples: Callable[[Scrape], Iterable[Sample]]


def _process(name: str, kind: Kind, text: str, value: Callable[[Scrape], float]) -> Metric:
    return Metric(name, kind, text, (), lambda scrape: [((), value(scrape))])


def _subscription(name: str, kind: Kind, text: str, value: Callable[[SubscriptionStatus], float]) -> Metric:
    def samples(scrape: Scrape) -> Iterator[Sample]:
        for status in scrape.status.subscriptions:
            yield (status.name,), value(status)

    return Metric(f"offramp_{name}", kind, text, ("subscription",), samples)


def _counter(counter: Field[int]) -> Metric:
    """The metric of a field of `Counters`."""
    about = counter.metadata
    return _subscription(about["metric"], Kind.COUNTER, about["help"], attrgetter(f"counters.{counter.name}"))


def _gauge(name: str, text: str, value: Callable[[SubscriptionStatus], float]) -> Metric:
    return _subscription(name, Kind.GAUGE, text, value)


def _lane(name: str, text: str, value: Callable[[LaneStatus], float | None]) -> Metric:
    """A gauge per lane, left out where `value` returns None."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        for status in scrape.status.subscriptions:
            for lane in status.lanes:
                number = value(lane)
                if number is not None:
                    yield (status.name, lane.topic, str(lane.lane)), number

    return Metric(f"offramp_lane_{name}", Kind.GAUGE, text, ("subscription", "topic", "lane"), samples)


def _meter(name: str, kind: Kind, text: str, value: Callable[[Meters], float | Histogram]) -> Metric:
    def samples(scrape: Scrape) -> Iterator[Sample]:
        for subscription, meters in scrape.meters.items():
            yield (subscription,), value(meters)

    return Metric(f"offramp_{name}", kind, text, ("subscription",), samples)


def _closed_by(scrape: Scrape) -> Iterator[Sample]:
    for subscription, meters in scrape.meters.items():
        for reason, count in meters.closed_by.items():
            yield (subscription, reason.name.lower()), count


def _push_calls(scrape: Scrape) -> Iterator[Sample]:
    for subscription, meters in scrape.meters.items():
        for status, calls in sorted(meters.push_calls.items()):
            yield (subscription, status), calls


def _states(scrape: Scrape) -> Iterator[Sample]:
    for status in scrape.status.subscriptions:
        for state in SubscriptionState:
            yield (status.name, state.name.lower()), state is status.state


def _readers(scrape: Scrape) -> Iterator[Sample]:
    for status in scrape.status.subscriptions:
        if status.reader is not None:
            yield (status.name, status.reader.name), status.reader.age


def _refused(scrape: Scrape) -> Iterator[Sample]:
    for listener, calls in scrape.access.refused.items():
        yield (listener,), calls


def _expiry(scrape: Scrape) -> Iterator[Sample]:
    if scrape.access.certificate_expires is not None:
        yield (), scrape.access.certificate_expires


def _brokers_up(scrape: Scrape) -> Iterator[Sample]:
    for broker in scrape.status.brokers:
        yield (broker.name, broker.type), not broker.trouble


def _known(attribute: str) -> Callable[[LaneStatus], float | None]:
    """The status has -1 for an unknown value; the metric is left out then."""

    def value(lane: LaneStatus) -> float | None:
        number: int = getattr(lane, attribute)
        return None if number < 0 else number

    return value


METRICS: tuple[Metric, ...] = (
    Metric("offramp_info", Kind.GAUGE, "Always 1; the label carries the version.", ("version",),
           lambda scrape: [((scrape.status.version,), 1)]),
    _process("offramp_uptime_seconds", Kind.GAUGE, "Seconds since the sidecar started.",
             attrgetter("status.uptime")),
    _process("offramp_draining", Kind.GAUGE, "1 while the sidecar is stopping.", attrgetter("status.draining")),
    _process("offramp_loop_lag_seconds", Kind.GAUGE,
             "The largest delay of the event loop since the previous scrape.",
             attrgetter("process.loop_lag")),
    _process("process_resident_memory_bytes", Kind.GAUGE, "Memory of the process.",
             attrgetter("process.resident_bytes")),
    _process("process_cpu_seconds_total", Kind.COUNTER, "Processor time of the process, user and system.",
             attrgetter("process.cpu_seconds")),
    _process("process_open_fds", Kind.GAUGE, "Open file descriptors of the process.",
             attrgetter("process.open_files")),
    _process("offramp_sidecar_troubles", Kind.GAUGE,
             "Problems of the sidecar itself, as described in the status.",
             lambda scrape: len(scrape.status.trouble)),
    Metric("offramp_refused_calls_total", Kind.COUNTER, "Calls without a token or with a wrong one.", ("listener",),
           _refused),
    Metric("offramp_certificate_expires_timestamp_seconds", Kind.GAUGE,
           "When the certificate in use expires, in seconds since 1970; left out without TLS.", (), _expiry),
    Metric("offramp_broker_up", Kind.GAUGE, "1 while there is no problem with the broker.", ("broker", "type"),
           _brokers_up),
    Metric("offramp_subscription_state", Kind.GAUGE, "1 for the state that the subscription is in.",
           ("subscription", "state"), _states),
    _gauge("troubles", "Problems of the subscription, as described in the status.", lambda s: len(s.trouble)),
    _gauge("sessions", "Connected worker processes.", lambda s: sum(not one.away for one in s.sessions)),
    _gauge("leases", "Batches that workers hold.", lambda s: s.leases),
    _gauge("in_flight_records", "Records that workers hold.", lambda s: s.in_flight_records),
    _gauge("waiting_records", "Records that wait in memory for their retry.", lambda s: s.waiting_records),
    _gauge("buffered_records", "Records in memory.", lambda s: s.buffered_records),
    _gauge("buffered_bytes", "Memory held by records.", lambda s: s.buffered_bytes),
    _gauge("buffered_limit_bytes", "Memory that records may hold.", lambda s: s.buffered_bytes_limit),
    _gauge("concurrency_limit", "Batches that may be in flight; 0: no limit.", lambda s: s.concurrency_limit),
    _gauge("oldest_unsettled_seconds", "Age of the oldest unsettled record since it was fetched.",
           lambda s: s.oldest_unsettled),
    _gauge("would_be_replayed_records", "Records that would be delivered again if the sidecar were killed now.",
           lambda s: s.would_be_replayed),
    _gauge("paused_lanes", "Lanes from which nothing is fetched now.", lambda s: sum(lane.paused for lane in s.lanes)),
    *(_counter(counter) for counter in fields(Counters)),
    Metric("offramp_batches_closed_total", Kind.COUNTER, "Batches by what closed them.",
           ("subscription", "closed_by"), _closed_by),
    _meter("refetched_bytes_total", Kind.COUNTER,
           "Bytes fetched and discarded because lanes were paused, moved or revoked.",
           lambda meters: meters.refetched_bytes),
    _meter("revoke_seconds_total", Kind.COUNTER,
           "Seconds for which revoked lanes were drained before they moved; other lanes are consumed meanwhile.",
           lambda meters: meters.revoke_seconds),
    _meter("batch_records", Kind.HISTOGRAM, "Records in a batch.", lambda meters: meters.batch_records),
    _meter("settle_seconds", Kind.HISTOGRAM, "Time from the writing of a batch to its settlement.",
           lambda meters: meters.settle_seconds),
    Metric("offramp_push_calls_total", Kind.COUNTER,
           "Calls to the app, by the status of the answer; without one: refused, cut, timeout, invalid or cancelled.",
           ("subscription", "status"), _push_calls),
    _meter("push_call_seconds", Kind.HISTOGRAM, "Time from the beginning of a call to its answer.",
           lambda meters: meters.push_seconds),
    _meter("push_calls_in_flight", Kind.GAUGE, "Calls under way, with those that timed out and may still run.",
           lambda meters: meters.push_in_flight),
    _meter("push_waiting", Kind.GAUGE, "1 while the app cannot be reached or has asked to wait.",
           lambda meters: meters.push_waiting),
    Metric("offramp_reader_attached_seconds", Kind.GAUGE,
           "Seconds since the reader of a subscription with mode ranges attached.", ("subscription", "reader"),
           _readers),
    _lane("lag_records", "Records of the lane that are not settled.", _known("lag")),
    _lane("committed_position", "The committed position: the next one after a restart.", _known("committed")),
    _lane("end_position", "The end of the lane.", _known("end")),
    _lane("settled_beyond_records", "Records settled beyond the committed position.", lambda s: s.settled_beyond),
    _lane("in_flight_records", "Records of the lane that workers hold.", lambda s: s.in_flight_records),
    _lane("buffered_bytes", "Memory held by the lane's records.", lambda s: s.buffered_bytes),
    _lane("paused", "1 while nothing is fetched from the lane.", lambda s: s.paused),
)  # fmt: skip


def render(scrape: Scrape) -> str:
    """The text that Prometheus scrapes."""
    lines: list[str] = []
    for metric in METRICS:
        lines.append(f"# HELP {metric.name} {_escape(metric.help)}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        for values, value in metric.samples(scrape):
            labels = [f'{name}="{_escape_label(text)}"' for name, text in zip(metric.labels, values, strict=True)]
            if isinstance(value, Histogram):
                lines.extend(_buckets(metric.name, labels, value))
            else:
                lines.append(_line(metric.name, labels, value))
    return "\n".join(lines) + "\n"


def _buckets(name: str, labels: list[str], histogram: Histogram) -> Iterator[str]:
    so_far = 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        so_far += count
        yield _line(f"{name}_bucket", [*labels, f'le="{_number(bound)}"'], so_far)
    yield _line(f"{name}_sum", labels, histogram.total)
    yield _line(f"{name}_count", labels, so_far)


def _line(name: str, labels: list[str], value: float) -> str:
    return f"{name}{{{','.join(labels)}}} {_number(value)}" if labels else f"{name} {_number(value)}"


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    # Integers stay exact beyond 2^53, and 5 is more readable than 5.0.
    return str(int(value)) if value == int(value) else repr(float(value))


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escape_label(text: str) -> str:
    return _escape(text).replace('"', '\\"')

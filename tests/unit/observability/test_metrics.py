"""Metrics as Prometheus reads them."""

import re
from dataclasses import fields

import pytest

from sidecar.model.records import ClosedBy
from sidecar.observability.counters import Counters, Histogram, Meters
from sidecar.observability.metrics import METRICS, Kind, Scrape, render
from sidecar.observability.status import (
    BrokerStatus,
    LaneStatus,
    SessionStatus,
    Status,
    SubscriptionState,
    SubscriptionStatus,
)

LINE = re.compile(r'[a-z_]+(\{[a-z_]+="(\\.|[^"\\])*"(,[a-z_]+="(\\.|[^"\\])*")*\})? (\+Inf|-?[0-9.e+-]+)')


def scrape(**subscription: object) -> Scrape:
    values: dict[str, object] = {
        "name": "orders",
        "broker": "local",
        "group": "orders",
        "topics": ("orders",),
        "order": "none",
        "state": SubscriptionState.RUNNING,
        **subscription,
    }
    meters = Meters()
    meters.batch_records.observe(500, count=3)
    meters.closed_by[ClosedBy.RECORDS] += 3
    status = Status(
        version="1.2.3",
        boot=bytes(8),
        uptime=12.5,
        subscriptions=(SubscriptionStatus(**values),),  # type: ignore[arg-type]
        brokers=(BrokerStatus(name="local", type="local", trouble="the disk is full"),),
    )
    return Scrape(status, {"orders": meters})


def sample(text: str, name: str) -> str:
    (line,) = (line for line in text.splitlines() if line.startswith((name + " ", name + "{")))
    return line.rpartition(" ")[2]


def test_every_line_is_what_prometheus_reads() -> None:
    lane = LaneStatus(topic="orders", lane=3, committed=10, fetched=20, end=25, lag=15)
    text = render(scrape(lanes=(lane,), sessions=(SessionStatus(session=bytes(16)),), trouble=("a", "b")))
    for line in text.splitlines():
        assert line.startswith(("# HELP ", "# TYPE ")) or LINE.fullmatch(line), line
    assert text.endswith("\n")


def test_names_follow_the_conventions_and_are_unique() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert metric.name.startswith(("offramp_", "process_"))
        assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total")
        assert metric.help.endswith(".")


def test_every_counter_of_a_subscription_is_a_metric() -> None:
    counters = Counters(**{field.name: 1_000 + number for number, field in enumerate(fields(Counters))})
    text = render(scrape(counters=counters))
    for number, _ in enumerate(fields(Counters)):
        assert f" {1_000 + number}\n" in text


def test_a_lag_that_is_not_known_is_left_out() -> None:
    known = LaneStatus(topic="orders", lane=0, committed=0, fetched=0, end=7, lag=7)
    unknown = LaneStatus(topic="orders", lane=1, committed=0, fetched=0)
    text = render(scrape(lanes=(known, unknown)))
    lags = [line for line in text.splitlines() if line.startswith("offramp_lane_lag_records{")]
    assert lags == ['offramp_lane_lag_records{subscription="orders",topic="orders",lane="0"} 7']


def test_labels_are_escaped() -> None:
    text = render(scrape(name='a"b\\c\nd'))
    assert 'subscription="a\\"b\\\\c\\nd"' in text


def test_a_histogram_counts_up_to_each_bound_and_beyond_the_last() -> None:
    text = render(scrape())
    assert 'offramp_batch_records_bucket{subscription="orders",le="200"} 0\n' in text
    assert 'offramp_batch_records_bucket{subscription="orders",le="500"} 3\n' in text
    assert 'offramp_batch_records_bucket{subscription="orders",le="+Inf"} 3\n' in text
    assert 'offramp_batch_records_sum{subscription="orders"} 1500\n' in text
    assert 'offramp_batch_records_count{subscription="orders"} 3\n' in text


def test_batches_are_counted_by_what_closed_them() -> None:
    assert 'offramp_batches_closed_total{subscription="orders",closed_by="records"} 3\n' in render(scrape())


@pytest.mark.parametrize("state", list(SubscriptionState))
def test_exactly_one_state_is_one(state: SubscriptionState) -> None:
    lines = [
        line for line in render(scrape(state=state)).splitlines() if line.startswith("offramp_subscription_state{")
    ]
    assert [line for line in lines if line.endswith(" 1")] == [
        f'offramp_subscription_state{{subscription="orders",state="{state.name.lower()}"}} 1'
    ]
    assert len(lines) == len(SubscriptionState)


def test_a_broker_in_trouble_is_not_up() -> None:
    assert sample(render(scrape()), "offramp_broker_up") == "0"


def test_values_at_a_bound_belong_to_it() -> None:
    histogram = Histogram((1, 2))
    for value in (0.5, 1, 1.5, 2, 3):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.total == 8.0


def test_a_snapshot_of_the_counters_no_longer_changes() -> None:
    counters = Counters(acked=1)
    snapshot = counters.snapshot()
    counters.acked += 1
    assert snapshot.acked == 1

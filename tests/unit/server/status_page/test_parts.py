"""The parts of the status page: history, charts, events, numbers; and counts of reasons."""

import logging
from collections.abc import Iterator

import pytest

from sidecar.core.failures.reason_counts import OTHERS, ReasonCounts
from sidecar.observability import logs
from sidecar.observability.counters import Counters, Meters
from sidecar.observability.logs import Log
from sidecar.server.status_page.charts import MAX_SAMPLES, History, Line, Sample, bar, chart, quantile, take_sample
from sidecar.server.status_page.event_list import MAX_EVENTS, EventLog
from sidecar.server.status_page.format import count, duration, rate


def test_a_history_keeps_a_fixed_number_of_samples() -> None:
    history, meters = History(), Meters()
    for n in range(3 * MAX_SAMPLES):
        history.add(take_sample(n * 2.0, Counters(acked=n * 10), meters, in_flight=n))
    assert history.rates("acked") == [5.0] * MAX_SAMPLES
    assert history.in_flight() == [float(n) for n in range(2 * MAX_SAMPLES, 3 * MAX_SAMPLES)]
    assert history.seconds == MAX_SAMPLES * 2.0


def test_failures_are_all_that_did_not_end_well() -> None:
    counters = Counters(nacked=1, rejected=2, expired=4, abandoned=8, released=16, overloaded=32)
    assert take_sample(0.0, counters, Meters(), 0).failed == 15


def test_times_to_settle_are_those_of_the_last_moments_only() -> None:
    history, meters = History(), Meters()
    for seconds, batches in ((10.0, 1000), (0.001, 100)):
        history.add(take_sample(0.0, Counters(), meters, 0))
        meters.settle_seconds.observe(seconds, batches)
    history.add(take_sample(2.0, Counters(), meters, 0))
    history.add(take_sample(4.0, Counters(), meters, 0))
    before, lately, idle = history.settle_times(0.95)
    assert before == pytest.approx(9.75)
    assert lately == pytest.approx(0.00095)
    assert idle == 0.0


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ((0, 0, 0), 0.5, 0.0),
        ((10, 0, 0), 0.5, 0.5),
        ((0, 10, 0), 0.5, 1.5),
        ((5, 5, 0), 0.5, 1.0),
        ((0, 0, 10), 0.5, 2.0),
    ],
)
def test_a_quantile_lies_within_its_bounds(counts: tuple[int, ...], share: float, expected: float) -> None:
    assert quantile((1.0, 2.0), counts, share) == pytest.approx(expected)


def test_a_sample_that_comes_at_once_gives_no_infinite_rate() -> None:
    history = History()
    history.add(Sample(1.0, 0, 0, 0, 0, 0, ()))
    history.add(Sample(1.0, 0, 0, 1, 0, 0, ()))
    assert history.rates("acked") == [pytest.approx(1000.0)]


@pytest.fixture
def events() -> Iterator[EventLog]:
    listening = EventLog()
    listening.listen()
    level = logs.root().level
    logs.root().setLevel(logging.DEBUG)
    yield listening
    logs.root().setLevel(level)
    listening.close()


def test_events_are_what_was_logged_newest_first(events: EventLog) -> None:
    log = Log("lanes")
    log.info("lanes were assigned", subscription="orders", lanes=["orders/0", "orders/1"])
    log.warning("commits are held back")
    log.debug("nobody acts on this")
    newest, oldest = events.latest(10)
    assert (newest.level, newest.text, newest.fields) == ("warning", "commits are held back", "")
    assert oldest.fields == "subscription=orders lanes=orders/0,orders/1"


def test_an_event_that_repeats_itself_is_one_that_counts(events: EventLog) -> None:
    log = Log("broker")
    for _ in range(1000):
        log.warning("no answer", broker="kafka")
    log.info("the broker is open", broker="kafka")
    assert [(event.text, event.times) for event in events.latest(10)] == [
        ("the broker is open", 1),
        ("no answer", 1000),
    ]


def test_events_are_bounded_in_number_and_length(events: EventLog) -> None:
    log = Log("x")
    for n in range(3 * MAX_EVENTS):
        log.info(f"{n} " + "y" * 10_000, error="z" * 10_000)
    kept = events.latest(10 * MAX_EVENTS)
    assert len(kept) == MAX_EVENTS
    assert max(len(event.text) + len(event.fields) for event in kept) <= 800
    assert kept[0].text.startswith(str(3 * MAX_EVENTS - 1))


def test_the_trace_of_a_bug_stays_in_the_log(events: EventLog) -> None:
    Log("x").bug("nobody foresaw this", ValueError("secret"))
    assert [(event.level, event.text, event.fields) for event in events.latest(1)] == [
        ("error", "nobody foresaw this", "")
    ]


def test_nothing_is_kept_after_it_was_closed(events: EventLog) -> None:
    events.close()
    Log("x").info("later")
    assert events.latest(1) == []


def test_reasons_are_counted_by_their_first_line() -> None:
    reasons = ReasonCounts()
    reasons.add("ValueError: x\n  File ...", 2)
    reasons.add("ValueError: x\n  another place", 3)
    reasons.add("  ", 1)
    assert reasons.most(5) == [("ValueError: x", 5), ("no reason given", 1)]


def test_reasons_that_name_each_record_do_not_fill_the_memory() -> None:
    reasons = ReasonCounts()
    for n in range(10_000):
        reasons.add(f"order {n} failed", 1)
        reasons.add("the usual", 1)
    most = reasons.most(3)
    assert most[0] == ("the usual", 10_000)
    assert most[-1] == (OTHERS, 9_998)
    assert sum(records for _, records in most) == 20_000
    assert len(reasons.most(1_000)) <= 51


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0, "0 ms"), (0.0042, "4 ms"), (1.26, "1.3 s"), (42.9, "42 s"), (60, "1 min"), (192, "3 min 12 s"),
     (7500, "2 h 5 min"), (86400 * 4 + 3 * 3600 + 59, "4 d 3 h")],
)  # fmt: skip
def test_durations_read_well(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_numbers_read_well() -> None:
    assert [count(n) for n in (-1, 0, 999, 12_345, 2_500_000)] == ["?", "0", "999", "12,345", "2.5M"]
    assert [rate(n) for n in (0.0, 0.5, 5.0, 12.3, 12_345.0)] == ["0", "0.5", "5", "12", "12.3k"]


def test_a_bar_is_never_longer_than_its_track() -> None:
    assert 'width="100"' in bar(500, 100, "too much")
    assert "tight" in bar(95, 100, "nearly full")
    assert "tight" not in bar(5, 100, "little")
    assert bar(5, 0, "no limit").count("<rect") == 1


def test_a_chart_of_nothing_but_zeros_is_a_flat_line() -> None:
    assert "<polyline" not in chart("Failed", [Line([0.0] * 50, "bad")], rate, "records/s")

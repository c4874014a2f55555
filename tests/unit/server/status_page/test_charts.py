"""The history of the status page, and the charts of it."""

import pytest

from sidecar.observability.counters import Counters, Meters
from sidecar.server.status_page.charts import MAX_SAMPLES, History, Line, Sample, bar, chart, quantile, take_sample
from sidecar.server.status_page.format import rate


def test_a_history_keeps_a_fixed_number_of_samples() -> None:
    history, meters = History(), Meters()
    for n in range(3 * MAX_SAMPLES):
        history.add(take_sample(n * 2.0, Counters(acked=n * 10), meters, in_flight=n))
    assert history.rates("acked") == [5.0] * MAX_SAMPLES
    assert history.in_flight() == [float(n) for n in range(2 * MAX_SAMPLES, 3 * MAX_SAMPLES)]


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


def test_a_bar_is_never_longer_than_its_track() -> None:
    assert 'width="100"' in bar(500, 100, "too much")
    assert "tight" in bar(95, 100, "nearly full")
    assert "tight" not in bar(5, 100, "little")
    assert bar(5, 0, "no limit").count("<rect") == 1


def test_a_chart_of_nothing_but_zeros_is_a_flat_line() -> None:
    assert "<polyline" not in chart("Failed", [Line([0.0] * 50, "bad")], rate, "records/s")

"""Bad records beside good ones, outages, and services that are pushed too hard: their rates, in virtual time."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sidecar.settings import BatchSettings, BudgetSettings, Seconds, SubscriptionSettings
from tests.kit import subscription_settings
from tests.simulation.load import BAD, Load, Outcomes, bad_ones

WORKERS = 8


def settings(records: int, **more: Any) -> SubscriptionSettings:
    return subscription_settings(batch=BatchSettings(records=records), commit_every=Seconds(0.1), **more)


def steady(rate: int, share: float, seed: int = 1) -> Callable[[float], Sequence[bytes]]:
    """So many good records a second, and besides them this share of bad ones."""
    chance = random.Random(seed)
    number = 0

    def arrivals(_now: float) -> Sequence[bytes]:
        nonlocal number
        values: list[bytes] = []
        for _ in range(rate // 100):
            number += 1
            values.append(b"%d" % number)
            if chance.random() < share:
                values.append(BAD + b"%d" % number)
        return values

    return arrivals


@pytest.mark.parametrize(("records", "rate"), [(1, 600), (10, 4_000)])
def test_one_bad_record_in_a_hundred_leaves_the_others_their_rate_and_their_latency(records: int, rate: int) -> None:
    def outcomes(share: float) -> Outcomes:
        return Load(settings(records), workers=WORKERS).run(steady(rate, share), 8.0)

    well, ill = outcomes(0.0), outcomes(0.01)
    assert ill.rate(2.0, 8.0) >= 0.95 * well.rate(2.0, 8.0)
    assert ill.p99() <= 2 * well.p99()
    assert not ill.alarms
    assert all(value.startswith(BAD) for value in ill.dead)


def test_bad_records_that_are_not_named_are_no_outage_either() -> None:
    """A tenth of the batches fails as a whole."""
    load = Load(settings(10), workers=WORKERS, names_them=False)
    outcomes = load.run(steady(1_500, 0.01), 8.0)
    assert outcomes.rate(2.0, 8.0) >= 0.95 * 1_500
    assert not outcomes.alarms


def test_a_good_record_now_and_then_does_not_wait_for_bad_ones() -> None:
    """Four records that always fail, and a good one every three seconds."""

    def arrivals(now: float) -> Sequence[bytes]:
        if now == 0.0:
            return [BAD + b"%d" % number for number in range(4)]
        return [b"%f" % now] if round(now * 100) % 300 == 150 else []

    outcomes = Load(settings(1), workers=2).run(arrivals, 60.0)
    assert len(outcomes.latencies) == 20
    assert max(outcomes.latencies) < 0.1
    assert len(outcomes.alarms) <= 1, "at most before anything has succeeded"
    assert len(outcomes.dead) == 4


@pytest.mark.parametrize("share", [0.0, 0.01])
def test_an_outage_is_told_at_once_and_dead_letters_nothing(share: float) -> None:
    began, ended = 3.0, 13.0

    def fails(values: Sequence[bytes], now: float, here: int) -> Sequence[int]:
        return range(len(values)) if began <= now < ended else bad_ones(values, now, here)

    outcomes = Load(settings(1), workers=WORKERS, fails=fails).run(steady(100, share), 40.0)
    (alarm,) = outcomes.alarms
    assert began < alarm < began + 2.0
    assert all(value.startswith(BAD) for value in outcomes.dead)
    assert outcomes.rate(30.0, 40.0) == pytest.approx(100, rel=0.02)
    assert len(outcomes.left) < 10, "all but the latest are done"


ADAPTIVE = BudgetSettings(adaptive=True)


@pytest.mark.parametrize(("records", "rate", "share"), [(100, 20_000, 1 / 2_000), (1, 200, 0.01)])
def test_bad_records_leave_an_adaptive_budget_its_rate(records: int, rate: int, share: float) -> None:
    """More arrives than can be done."""

    def outcomes(budget: BudgetSettings) -> Outcomes:
        load = Load(settings(records, budget=budget), workers=WORKERS, service=lambda _here: 0.05)
        return load.run(steady(rate, share), 8.0)

    assert outcomes(ADAPTIVE).rate(3.0, 8.0) >= 0.95 * outcomes(BudgetSettings()).rate(3.0, 8.0)


def test_an_adaptive_budget_recovers_after_an_outage() -> None:
    """More arrives than can be done, and for ten seconds everything fails."""

    def fails(values: Sequence[bytes], now: float, here: int) -> Sequence[int]:
        return range(len(values)) if 3.0 <= now < 13.0 else ()

    def outcomes(budget: BudgetSettings) -> Outcomes:
        load = Load(settings(1, budget=budget), workers=WORKERS, service=lambda _here: 0.05, fails=fails)
        return load.run(steady(200, 0.0), 60.0)

    adaptive, full = outcomes(ADAPTIVE), outcomes(BudgetSettings())
    assert adaptive.rate(36.0, 60.0) >= 0.95 * full.rate(36.0, 60.0)
    assert adaptive.dead == full.dead == []


def test_an_adaptive_budget_does_not_push_a_service_that_refuses_too_much() -> None:
    """It serves eight batches at a time, and refuses all others."""

    def fails(values: Sequence[bytes], _now: float, here: int) -> Sequence[int]:
        return range(len(values)) if here > 8 else ()

    load = Load(settings(1, budget=ADAPTIVE), workers=64, fails=fails)
    outcomes = load.run(steady(3_000, 0.0), 8.0)
    late = sorted(outcomes.limits[len(outcomes.limits) // 2 :])
    assert 5 <= late[len(late) // 2] <= 14
    assert outcomes.dead == []

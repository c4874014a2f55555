"""Limits on concurrency and rate."""

from sidecar.core.scheduling.budget import Budget
from sidecar.settings import BudgetSettings


def test_without_settings_there_is_no_limit() -> None:
    budget = Budget(BudgetSettings())
    assert budget.limit == 0
    assert budget.allows(100_000, 0.0)


def test_no_more_batches_go_than_the_settings_say() -> None:
    budget = Budget(BudgetSettings(concurrency=3))
    assert budget.allows(2, 0.0)
    assert not budget.allows(3, 0.0)


def test_overloaded_lowers_the_limit_to_less_than_what_was_in_flight() -> None:
    budget = Budget(BudgetSettings())
    budget.overloaded(1.0, 10, now=100.0)
    assert budget.limit == 6


def test_workers_that_say_it_all_at_once_lower_it_once() -> None:
    budget = Budget(BudgetSettings())
    for left in range(10, 0, -1):
        budget.overloaded(1.0, left, now=100.0)
    assert budget.limit == 6


def test_the_limit_grows_again_while_it_is_used_up_and_all_is_well() -> None:
    budget = Budget(BudgetSettings(concurrency=10))
    budget.overloaded(1.0, 10, now=100.0)
    for batch in range(6):
        budget.settled(1.0, 0.0, 1.0, 6, now=101.0 + batch)
    assert budget.limit == 6
    budget.settled(1.0, 0.0, 1.0, 6, now=108.0)
    assert budget.limit == 7


def test_the_limit_does_not_grow_while_it_is_not_needed() -> None:
    budget = Budget(BudgetSettings(concurrency=10))
    budget.overloaded(1.0, 10, now=100.0)
    for batch in range(100):
        budget.settled(1.0, 0.0, 1.0, 2, now=101.0 + batch)
    assert budget.limit == 6


def test_at_least_one_batch_may_always_go() -> None:
    budget = Budget(BudgetSettings(concurrency=1))
    for now in range(100):
        budget.overloaded(0.0, 1, now=float(now))
    assert budget.allows(0, 100.0)
    assert budget.limit == 1


def test_failures_count_only_if_it_is_adaptive() -> None:
    for adaptive in (False, True):
        budget = Budget(BudgetSettings(concurrency=20, adaptive=adaptive))
        before = budget.limit
        for batch in range(100):
            budget.settled(0.0, 1.0, 1.0, budget.limit, now=300.0 + batch)
        assert (budget.limit < before) is adaptive


def test_an_adaptive_limit_starts_low_and_climbs_while_more_at_once_gets_more_done() -> None:
    budget = Budget(BudgetSettings(concurrency=20, adaptive=True))
    assert budget.limit == 4
    for batch in range(2_000):
        budget.settled(1.0, 0.0, 1.0, budget.limit, now=float(batch))
    assert budget.limit == 20


def test_after_a_stall_it_starts_low() -> None:
    """So that the backlog does not flood a service that has just recovered."""
    budget = Budget(BudgetSettings(concurrency=100, adaptive=True))
    for batch in range(10_000):
        budget.settled(1.0, 0.0, 1.0, budget.limit, now=float(batch))
    assert budget.limit > 20
    budget.restart(in_flight=0, now=10_000.0)
    assert budget.limit == 1


def test_a_rate_spreads_records_over_time() -> None:
    budget = Budget(BudgetSettings(rate=10.0))
    assert budget.allows(0, 100.0)
    budget.sent(6)
    assert not budget.allows(0, 100.0)
    at = budget.next_token(100.0)
    assert at is not None
    assert 100.4 < at < 100.6
    assert budget.allows(0, at + 0.001)
    assert budget.next_token(at + 0.001) is None


def test_idle_time_allows_no_burst() -> None:
    budget = Budget(BudgetSettings(rate=10.0))
    assert budget.allows(0, 1_000_000.0)
    budget.sent(11)
    at = budget.next_token(1_000_000.0)
    assert at is not None
    assert at >= 1_000_000.99

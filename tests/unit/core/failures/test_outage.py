"""Backoff, splitting and the detection of outages."""

import random

import pytest

from sidecar.core.failures.backoff import Backoff
from sidecar.core.failures.outage import OutageDetector, RejectRateMonitor
from sidecar.core.failures.splitting import split_batch
from sidecar.core.state.record_slices import sort_by_position
from sidecar.model.records import Order
from sidecar.settings import OutageSettings, RetrySettings, Seconds
from tests.kit import NoJitter, lane_state, places_of, positions_of, slice_of


def test_each_wait_is_longer_by_a_factor_up_to_the_longest() -> None:
    backoff = Backoff(1.0, 2.0, 10.0, 0.2, NoJitter())
    assert [backoff.wait(failures) for failures in range(1, 7)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_a_wait_never_overflows_however_often_it_failed() -> None:
    assert Backoff.of(RetrySettings(), NoJitter()).wait(1_000_000) == 300.0
    assert Backoff.of(RetrySettings(first=Seconds(0.0)), NoJitter()).wait(1_000_000) == 0.0


def test_what_failed_together_does_not_come_back_together() -> None:
    backoff = Backoff(10.0, 2.0, 100.0, 0.2, random.Random(1))
    waits = {backoff.wait(1) for _ in range(100)}
    assert len(waits) > 50
    assert all(8.0 <= wait <= 10.0 for wait in waits)


def outage(failures: int = 3) -> OutageDetector:
    """For a handler that succeeded at 100.0."""
    made = OutageDetector(OutageSettings(failures=failures, lately=Seconds(60.0)))
    made.success(100.0)
    return made


def test_different_batches_that_fail_in_a_row_are_an_outage() -> None:
    handler = outage()
    assert [handler.failure(batch, 101.0, first=True) for batch in (1, 2, 3)] == [False, False, True]
    assert handler.down


def test_one_batch_that_fails_again_and_again_is_no_outage() -> None:
    handler = outage()
    assert not any(handler.failure(1, 101.0, first=True) for _ in range(20))
    assert handler.may_split(101.0)


def test_records_that_fail_again_after_others_succeeded_are_no_outage() -> None:
    handler = outage()
    assert not any(handler.failure(batch, 101.0, first=False) for batch in range(20))


def test_an_outage_is_certain_when_as_many_again_have_failed() -> None:
    handler = outage()
    for batch in range(5):
        handler.failure(batch, 101.0, first=True)
    for batch in range(20):
        handler.failure(batch, 101.0, first=False)
    assert (handler.down, handler.certain) == (True, False), "it may be bad records in a row"
    assert not handler.failure(21, 101.0, first=True), "it has begun before"
    assert handler.certain
    handler.success(102.0)
    assert not handler.certain


@pytest.mark.parametrize(("first", "certain"), [(True, True), (False, False)])
def test_an_outage_is_certain_when_nothing_has_succeeded_for_long(first: bool, certain: bool) -> None:
    handler = outage(failures=1)
    handler.failure(1, 161.0, first=first)
    assert not handler.certain
    handler.failure(1, 162.0, first=False)
    assert handler.certain is certain, "of records that failed before others succeeded it is not known"


def test_a_success_in_between_shows_that_the_handler_works() -> None:
    handler = outage()
    for batch in range(20):
        handler.failure(batch, 101.0, first=True)
        handler.success(101.0)
    assert not handler.down


@pytest.mark.parametrize("first", [True, False])
def test_a_failure_long_after_the_last_success_is_an_outage(first: bool) -> None:
    handler = outage()
    assert handler.failure(1, 161.0, first=first)


def test_a_handler_that_never_succeeded_is_down_with_its_first_failure() -> None:
    assert OutageDetector(OutageSettings()).failure(1, 0.0, first=True)


def test_a_success_ends_an_outage() -> None:
    handler = outage(failures=1)
    handler.failure(1, 101.0, first=True)
    handler.success(102.0)
    assert not handler.down


def test_nothing_is_split_and_nothing_given_up_while_the_handler_is_down() -> None:
    handler = outage(failures=1)
    handler.failure(1, 101.0, first=True)
    assert not handler.may_split(101.0)
    assert not handler.may_give_up(first_failed=50.0)


def test_a_record_is_given_up_only_if_others_succeeded_since_it_first_failed() -> None:
    handler = outage()
    assert handler.may_give_up(first_failed=99.0)
    assert not handler.may_give_up(first_failed=101.0)


def test_without_the_guard_every_failure_counts_as_poison() -> None:
    handler = OutageDetector(OutageSettings(enabled=False))
    assert not handler.failure(1, 0.0, first=True)
    assert handler.may_split(0.0)
    assert handler.may_give_up(first_failed=0.0)


def test_too_many_rejects_are_alarming_once_enough_was_seen() -> None:
    watch = RejectRateMonitor(OutageSettings(reject_share=0.5, reject_sample=100))
    watch.settled(99, rejected=True)
    assert not watch.alarming()
    watch.settled(1, rejected=True)
    assert watch.alarming()


def test_rejects_of_long_ago_fade() -> None:
    watch = RejectRateMonitor(OutageSettings(reject_share=0.5, reject_sample=100))
    watch.settled(200, rejected=True)
    for _ in range(10):
        watch.settled(100, rejected=False)
    assert not watch.alarming()


def test_a_share_of_one_never_alarms() -> None:
    watch = RejectRateMonitor(OutageSettings(reject_share=1.0, reject_sample=1))
    watch.settled(1_000, rejected=True)
    assert not watch.alarming()


def test_a_failing_batch_is_cut_in_the_middle() -> None:
    first, second = split_batch([slice_of(3), slice_of([10, 11])], Order.NONE)
    assert (positions_of(first), positions_of(second)) == ([0, 1, 2], [10, 11])


def test_the_records_of_a_key_stay_together() -> None:
    """So that neither half has to wait for the other."""
    first, second = split_batch([slice_of(5, keys=[b"a", b"b", b"a", b"c", b"a"])], Order.KEY)
    assert (positions_of(first), positions_of(second)) == ([0, 2, 4], [1, 3])


def test_a_single_key_is_cut_in_the_middle() -> None:
    first, second = split_batch([slice_of(4, keys=[b"a"] * 4)], Order.KEY)
    assert (positions_of(first), positions_of(second)) == ([0, 1], [2, 3])


def test_records_stand_in_the_order_of_their_positions_lane_by_lane() -> None:
    one, other = lane_state(0), lane_state(1)
    a, b, c = slice_of(3, state=one).singles()
    d, e = slice_of(2, state=other).singles()
    ordered = sort_by_position([c, e, a, d, b])
    assert places_of(ordered) == [(one.lane, 0), (one.lane, 1), (one.lane, 2), (other.lane, 0), (other.lane, 1)]
    assert len(ordered) == 2, "neighbours are one slice again"

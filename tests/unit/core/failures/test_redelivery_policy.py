"""What becomes of records that were not acked."""

from sidecar.core.failures.outage import OutageDetector
from sidecar.core.failures.redelivery_policy import (
    DeadLetter,
    Decision,
    Discard,
    FailedRecords,
    Redeliver,
    RedeliveryPolicy,
)
from sidecar.core.state.record_slices import DeliveryHistory, RecordSlice
from sidecar.observability.counters import Counters
from sidecar.settings import Exhausted, OutageSettings, RetrySettings, Seconds
from tests.kit import NoJitter, positions_of, slice_of, subscription_settings

NOW = 1_000.0


def a_policy(
    *,
    success: float | None = NOW,
    exhausted: Exhausted = Exhausted.DEAD_LETTER,
    counters: Counters | None = None,
) -> RedeliveryPolicy:
    """With three attempts, for a handler that succeeded last at that time."""
    retry = RetrySettings(attempts=3, first=Seconds(1.0), factor=2.0, max=Seconds(60.0), exhausted=exhausted)
    outage = OutageDetector(OutageSettings())
    if success is not None:
        outage.success(success)
    return RedeliveryPolicy(subscription_settings(retry=retry), outage, counters or Counters(), NoJitter())


def failed(
    *slices: RecordSlice, covered: int | None = None, blamed: bool = False, uncounted_failures: int = 0
) -> FailedRecords:
    records = sum(slice_.records for slice_ in slices)
    return FailedRecords(slices, blamed, covered or records, 7, uncounted_failures, isolated=False)


def nacked(
    policy: RedeliveryPolicy, what: FailedRecords, *, retry_after: float | None = None, in_outage: bool = False
) -> list[Decision]:
    return policy.failed(what, NOW, reason="no", retry_after=retry_after, in_outage=in_outage)


def back(decisions: list[Decision]) -> Redeliver:
    (decision,) = decisions
    assert isinstance(decision, Redeliver)
    return decision


def test_a_record_that_failed_alone_comes_back_after_its_backoff_with_one_attempt_more() -> None:
    decision = back(nacked(a_policy(), failed(slice_of(1))))
    assert (decision.after, decision.isolated) == (1.0, True)
    assert decision.slices[0].history.failures == 1


def test_a_record_that_failed_alone_as_often_as_it_may_is_dead_lettered() -> None:
    past = DeliveryHistory(failures=2, counted_failures=2, first_failed=NOW - 10.0)
    (decision,) = nacked(a_policy(), failed(slice_of(1, history=past)))
    assert isinstance(decision, DeadLetter)
    assert decision.reason == "no"


def test_a_record_is_not_given_up_while_nothing_else_succeeds() -> None:
    past = DeliveryHistory(failures=9, counted_failures=9, first_failed=NOW - 10.0)
    assert back(nacked(a_policy(success=NOW - 20.0), failed(slice_of(1, history=past)))).after == 60.0


def test_failing_while_the_handler_is_down_does_not_speak_against_the_record() -> None:
    decision = back(nacked(a_policy(), failed(slice_of(1)), in_outage=True))
    assert (decision.slices[0].history.failures, decision.slices[0].history.counted_failures) == (1, 0)


def test_a_handler_may_ask_for_another_delay() -> None:
    assert back(nacked(a_policy(), failed(slice_of(1)), retry_after=90.0)).after == 90.0
    assert back(nacked(a_policy(), failed(slice_of(1)), retry_after=0.0)).after == 0.0


def test_a_record_that_is_held_comes_back_after_the_longest_wait_forever() -> None:
    past = DeliveryHistory(failures=2, counted_failures=2, first_failed=NOW - 10.0)
    assert back(nacked(a_policy(exhausted=Exhausted.HOLD), failed(slice_of(1, history=past)))).after == 60.0


def test_a_record_that_may_be_lost_is_dropped() -> None:
    past = DeliveryHistory(failures=2, counted_failures=2, first_failed=NOW - 10.0)
    (decision,) = nacked(a_policy(exhausted=Exhausted.DROP), failed(slice_of(1, history=past)))
    assert isinstance(decision, Discard)


def test_a_failing_batch_is_split_at_once_and_that_is_not_an_attempt() -> None:
    counters = Counters()
    first, second = nacked(a_policy(counters=counters), failed(slice_of(4)))
    assert isinstance(first, Redeliver)
    assert isinstance(second, Redeliver)
    assert (positions_of(first.slices), positions_of(second.slices)) == ([0, 1], [2, 3])
    assert (first.after, first.isolated, first.first_lease) == (0.0, True, 7)
    assert first.slices[0].history.failures == 0
    assert counters.splits == 1


def test_a_failing_batch_stays_whole_and_waits_while_nothing_succeeds() -> None:
    policy = a_policy(success=None)
    decision = back(nacked(policy, failed(slice_of(4))))
    assert (decision.after, decision.uncounted_failures) == (1.0, 1)
    decision = back(nacked(policy, failed(slice_of(4), uncounted_failures=1)))
    assert (decision.after, decision.uncounted_failures) == (2.0, 2)


def test_a_record_that_the_worker_named_need_not_be_looked_for() -> None:
    decision = back(nacked(a_policy(), failed(slice_of(1), blamed=True)))
    assert decision.slices[0].history.failures == 1
    assert not decision.isolated


def test_the_last_record_of_a_batch_whose_others_moved_away_did_not_fail_alone() -> None:
    decision = back(nacked(a_policy(), failed(slice_of(1), covered=4)))
    assert decision.slices[0].history.failures == 0
    assert decision.isolated


def test_after_an_expiry_the_records_may_have_been_processed() -> None:
    decisions = a_policy().failed(failed(slice_of(2)), NOW, reason="EXPIRED", possibly_processed=True)
    assert all(slice_.history.possibly_processed for decision in decisions for slice_ in decision.slices)


def test_a_lost_session_brings_its_records_back_at_once_the_first_time() -> None:
    decision = back(a_policy().abandoned(failed(slice_of(3)), NOW, alone=True))
    assert (decision.after, decision.isolated) == (0.0, True)
    assert decision.slices[0].history == DeliveryHistory(
        failures=1, counted_failures=1, worker_crashes=1, possibly_processed=True, first_failed=NOW
    )


def test_records_whose_worker_died_twice_come_back_one_by_one_with_backoff() -> None:
    once = DeliveryHistory(
        failures=1, counted_failures=1, worker_crashes=1, possibly_processed=True, first_failed=NOW - 1.0
    )
    decisions = a_policy().abandoned(failed(slice_of(3, history=once)), NOW, alone=True)
    assert [positions_of(decision.slices) for decision in decisions] == [[0], [1], [2]]
    assert all(
        isinstance(decision, Redeliver) and decision.after == 1.0 and decision.isolated for decision in decisions
    )


def test_a_record_that_killed_its_worker_all_alone_is_dead_lettered() -> None:
    twice = DeliveryHistory(
        failures=2, counted_failures=2, worker_crashes=2, possibly_processed=True, first_failed=NOW - 1.0
    )
    (decision,) = a_policy().abandoned(failed(slice_of(1, history=twice)), NOW, alone=True)
    assert isinstance(decision, DeadLetter)
    assert decision.reason == "WORKER_DIED"


def test_a_record_that_was_there_among_others_when_a_worker_died_is_not_blamed() -> None:
    twice = DeliveryHistory(
        failures=2, counted_failures=2, worker_crashes=2, possibly_processed=True, first_failed=NOW - 1.0
    )
    assert back(a_policy().abandoned(failed(slice_of(1, history=twice)), NOW, alone=False)).after == 2.0


def test_a_worker_that_dies_while_the_handler_is_down_does_not_speak_against_its_record() -> None:
    decision = back(a_policy().abandoned(failed(slice_of(1)), NOW, alone=True, in_outage=True))
    assert (decision.after, decision.isolated) == (0.0, True)
    assert decision.slices[0].history == DeliveryHistory(failures=1, possibly_processed=True, first_failed=NOW)
    twice = DeliveryHistory(
        failures=2, counted_failures=2, worker_crashes=2, possibly_processed=True, first_failed=NOW - 1.0
    )
    decision = back(a_policy().abandoned(failed(slice_of(1, history=twice)), NOW, alone=True, in_outage=True))
    assert decision.slices[0].history == twice._replace(failures=3, max_batch_size=1)


def test_a_release_comes_back_at_once_and_counts_nothing() -> None:
    decision = back(a_policy().released(failed(slice_of(3))))
    assert decision.after == 0.0
    assert decision.slices[0].history == DeliveryHistory()


def test_overloaded_comes_back_later_each_time_and_counts_nothing() -> None:
    decision = back(a_policy().overloaded(failed(slice_of(3), uncounted_failures=2), None))
    assert (decision.after, decision.uncounted_failures) == (4.0, 3)
    assert decision.slices[0].history == DeliveryHistory()
    assert back(a_policy().overloaded(failed(slice_of(3)), 30.0)).after == 30.0

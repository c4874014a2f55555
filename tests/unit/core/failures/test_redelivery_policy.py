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
from sidecar.core.state.record_slices import History, RecordSlice
from sidecar.settings import Exhausted, OutageSettings, RetrySettings, Seconds
from tests.kit import NoJitter, positions_of, span_of, subscription_settings

NOW = 1_000.0


def verdicts(*, success: float | None = NOW, exhausted: Exhausted = Exhausted.DEAD_LETTER) -> RedeliveryPolicy:
    """With three attempts, of a handler that succeeded last at that time."""
    retry = RetrySettings(attempts=3, first=Seconds(1.0), factor=2.0, max=Seconds(60.0), exhausted=exhausted)
    outage = OutageDetector(OutageSettings())
    if success is not None:
        outage.success(success)
    return RedeliveryPolicy(subscription_settings(retry=retry), outage, NoJitter())


def failed(
    *slices: RecordSlice, covered: int | None = None, blamed: bool = False, uncounted_failures: int = 0
) -> FailedRecords:
    records = sum(slice_.records for slice_ in slices)
    return FailedRecords(slices, blamed, covered or records, 7, uncounted_failures, isolated=False)


def nacked(
    room: RedeliveryPolicy, what: FailedRecords, *, retry_after: float | None = None, in_outage: bool = False
) -> list[Decision]:
    return room.failed(what, NOW, reason="no", retry_after=retry_after, in_outage=in_outage)


def back(moves: list[Decision]) -> Redeliver:
    (move,) = moves
    assert isinstance(move, Redeliver)
    return move


def test_a_record_that_failed_alone_comes_back_after_its_backoff_with_one_attempt_more() -> None:
    move = back(nacked(verdicts(), failed(span_of(1))))
    assert (move.after, move.isolated) == (1.0, True)
    assert move.slices[0].history.failures == 1


def test_a_record_that_failed_alone_as_often_as_it_may_is_dead_lettered() -> None:
    past = History(failures=2, counted_failures=2, first_failed=NOW - 10.0)
    (move,) = nacked(verdicts(), failed(span_of(1, history=past)))
    assert isinstance(move, DeadLetter)
    assert move.reason == "no"


def test_a_record_is_not_given_up_while_nothing_else_succeeds() -> None:
    past = History(failures=9, counted_failures=9, first_failed=NOW - 10.0)
    assert back(nacked(verdicts(success=NOW - 20.0), failed(span_of(1, history=past)))).after == 60.0


def test_failing_while_the_handler_is_down_does_not_speak_against_the_record() -> None:
    move = back(nacked(verdicts(), failed(span_of(1)), in_outage=True))
    assert (move.slices[0].history.failures, move.slices[0].history.counted_failures) == (1, 0)


def test_a_handler_may_ask_for_another_delay() -> None:
    assert back(nacked(verdicts(), failed(span_of(1)), retry_after=90.0)).after == 90.0
    assert back(nacked(verdicts(), failed(span_of(1)), retry_after=0.0)).after == 0.0


def test_a_record_that_is_held_comes_back_after_the_longest_wait_for_ever() -> None:
    past = History(failures=2, counted_failures=2, first_failed=NOW - 10.0)
    assert back(nacked(verdicts(exhausted=Exhausted.HOLD), failed(span_of(1, history=past)))).after == 60.0


def test_a_record_that_may_be_lost_is_dropped() -> None:
    past = History(failures=2, counted_failures=2, first_failed=NOW - 10.0)
    (move,) = nacked(verdicts(exhausted=Exhausted.DROP), failed(span_of(1, history=past)))
    assert isinstance(move, Discard)


def test_a_failing_batch_is_split_at_once_and_that_is_not_an_attempt() -> None:
    room = verdicts()
    first, second = nacked(room, failed(span_of(4)))
    assert isinstance(first, Redeliver)
    assert isinstance(second, Redeliver)
    assert (positions_of(first.slices), positions_of(second.slices)) == ([0, 1], [2, 3])
    assert (first.after, first.isolated, first.first_lease) == (0.0, True, 7)
    assert first.slices[0].history.failures == 0
    assert room.splits == 1


def test_a_failing_batch_stays_whole_and_waits_while_nothing_succeeds() -> None:
    room = verdicts(success=None)
    move = back(nacked(room, failed(span_of(4))))
    assert (move.after, move.uncounted_failures) == (1.0, 1)
    move = back(nacked(room, failed(span_of(4), uncounted_failures=1)))
    assert (move.after, move.uncounted_failures) == (2.0, 2)


def test_a_record_that_the_worker_named_need_not_be_looked_for() -> None:
    move = back(nacked(verdicts(), failed(span_of(1), blamed=True)))
    assert move.slices[0].history.failures == 1
    assert not move.isolated


def test_the_last_record_of_a_batch_whose_others_moved_away_did_not_fail_alone() -> None:
    move = back(nacked(verdicts(), failed(span_of(1), covered=4)))
    assert move.slices[0].history.failures == 0
    assert move.isolated


def test_after_an_expiry_the_records_may_have_been_processed() -> None:
    moves = verdicts().failed(failed(span_of(2)), NOW, reason="EXPIRED", possibly_processed=True)
    assert all(slice_.history.possibly_processed for move in moves for slice_ in move.slices)


def test_a_lost_session_brings_its_records_back_at_once_the_first_time() -> None:
    move = back(verdicts().abandoned(failed(span_of(3)), NOW, alone=True))
    assert (move.after, move.isolated) == (0.0, True)
    assert move.slices[0].history == History(
        failures=1, counted_failures=1, worker_crashes=1, possibly_processed=True, first_failed=NOW
    )


def test_records_whose_worker_died_twice_come_back_one_by_one_with_backoff() -> None:
    once = History(failures=1, counted_failures=1, worker_crashes=1, possibly_processed=True, first_failed=NOW - 1.0)
    moves = verdicts().abandoned(failed(span_of(3, history=once)), NOW, alone=True)
    assert [positions_of(move.slices) for move in moves] == [[0], [1], [2]]
    assert all(isinstance(move, Redeliver) and move.after == 1.0 and move.isolated for move in moves)


def test_a_record_that_killed_its_worker_all_alone_is_dead_lettered() -> None:
    twice = History(failures=2, counted_failures=2, worker_crashes=2, possibly_processed=True, first_failed=NOW - 1.0)
    (move,) = verdicts().abandoned(failed(span_of(1, history=twice)), NOW, alone=True)
    assert isinstance(move, DeadLetter)
    assert move.reason == "WORKER_DIED"


def test_a_record_that_was_there_among_others_when_a_worker_died_is_not_blamed() -> None:
    twice = History(failures=2, counted_failures=2, worker_crashes=2, possibly_processed=True, first_failed=NOW - 1.0)
    assert back(verdicts().abandoned(failed(span_of(1, history=twice)), NOW, alone=False)).after == 2.0


def test_a_worker_that_dies_while_the_handler_is_down_does_not_speak_against_its_record() -> None:
    move = back(verdicts().abandoned(failed(span_of(1)), NOW, alone=True, in_outage=True))
    assert (move.after, move.isolated) == (0.0, True)
    assert move.slices[0].history == History(failures=1, possibly_processed=True, first_failed=NOW)
    twice = History(failures=2, counted_failures=2, worker_crashes=2, possibly_processed=True, first_failed=NOW - 1.0)
    move = back(verdicts().abandoned(failed(span_of(1, history=twice)), NOW, alone=True, in_outage=True))
    assert move.slices[0].history == twice._replace(failures=3, max_batch_size=1)


def test_a_release_comes_back_at_once_and_counts_nothing() -> None:
    move = back(verdicts().released(failed(span_of(3))))
    assert move.after == 0.0
    assert move.slices[0].history == History()


def test_overloaded_comes_back_later_each_time_and_counts_nothing() -> None:
    move = back(verdicts().overloaded(failed(span_of(3), uncounted_failures=2), None))
    assert (move.after, move.uncounted_failures) == (4.0, 3)
    assert move.slices[0].history == History()
    assert back(verdicts().overloaded(failed(span_of(3)), 30.0)).after == 30.0

"""What is settled in one lane, and so what can be committed."""

from sidecar.core.state.ledger import Ledger
from sidecar.model.records import Commit, Run


def test_the_commit_waits_for_the_first_record_that_is_not_settled() -> None:
    ledger = Ledger(0)
    ledger.track(range(5))
    ledger.settle(Run(1, 4))
    assert ledger.committable(with_beyond=False) is None
    ledger.settle(Run(0, 1))
    assert ledger.committable(with_beyond=False) == Commit(4)


def test_acks_beyond_the_first_unsettled_record_are_committed_where_the_broker_keeps_them() -> None:
    ledger = Ledger(10)
    ledger.track(range(10, 20))
    ledger.settle(Run(12, 14))
    ledger.settle(Run(16, 20))
    assert ledger.committable(with_beyond=True) == Commit(10, (Run(12, 14), Run(16, 20)))


def test_a_record_settles_the_gap_before_it() -> None:
    """Compaction and transaction markers leave gaps, which nobody settles."""
    ledger = Ledger(0)
    ((_, _, low),) = ledger.track([7, 9])
    assert low == 0
    ledger.settle(Run(low, 10))
    assert ledger.low_watermark == 10


def test_a_gap_that_the_broker_tells_of_needs_no_record_to_settle_it() -> None:
    ledger = Ledger(0)
    ledger.track([0])
    ledger.settle(Run(0, 1))
    ledger.advance(50)
    assert ledger.committable(with_beyond=False) == Commit(50)


def test_a_record_that_the_broker_gives_twice_counts_once() -> None:
    ledger = Ledger(0)
    assert ledger.track(range(3)) == [(0, 3, 0)]
    assert ledger.track(range(5)) == [(3, 5, 3)]
    assert ledger.track(range(5)) == []


def test_what_an_earlier_run_settled_is_not_delivered_again() -> None:
    ledger = Ledger(0, [Run(2, 4)])
    assert ledger.track(range(6)) == [(0, 2, 0), (4, 6, 4)]
    ledger.settle(Run(0, 2))
    assert ledger.committable(with_beyond=False) == Commit(4)


def test_settling_again_changes_nothing() -> None:
    ledger = Ledger(0)
    ledger.track(range(3))
    ledger.settle(Run(0, 3))
    ledger.commit_sent()
    ledger.settle(Run(0, 3))
    assert ledger.committable(with_beyond=True) is None


def test_a_commit_that_failed_is_offered_again() -> None:
    ledger = Ledger(0)
    ledger.track(range(3))
    ledger.settle(Run(0, 3))
    ledger.commit_sent()
    assert ledger.committable(with_beyond=True) is None
    ledger.commit_failed()
    assert ledger.committable(with_beyond=True) == Commit(3)


def test_what_is_settled_while_a_commit_is_under_way_needs_another_commit() -> None:
    ledger = Ledger(0)
    ledger.track(range(3))
    ledger.settle(Run(0, 1))
    sent = ledger.committable(with_beyond=True)
    assert sent == Commit(1)
    ledger.commit_sent()
    ledger.settle(Run(1, 2))
    ledger.commit_done(sent)
    assert ledger.committable(with_beyond=True) == Commit(2)


def test_a_low_watermark_that_rises_over_records_settled_before_a_restart_is_committed() -> None:
    """Nothing is left to be settled, so nothing else would cause the commit."""
    ledger = Ledger(0, [Run(3, 5)])
    assert ledger.track([3, 4]) == []
    assert ledger.committable(with_beyond=True) == Commit(5)


def test_a_commit_costs_by_runs_however_far_apart_positions_are() -> None:
    ledger = Ledger(0)
    far = 1 << 60
    ledger.track([0, far])
    ledger.settle(Run(1, far + 1))
    assert ledger.committable(with_beyond=True) == Commit(0, (Run(1, far + 1),))

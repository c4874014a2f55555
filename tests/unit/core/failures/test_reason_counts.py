"""Counts of reasons stay small, whatever the reasons are."""

from sidecar.core.failures.reason_counts import OTHERS, ReasonCounts


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

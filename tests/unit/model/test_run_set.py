"""RunSet."""

from sidecar.model.records import Run
from sidecar.model.run_set import RunSet


def test_runs_that_touch_become_one() -> None:
    assert list(RunSet([Run(0, 3), Run(5, 7), Run(3, 5)])) == [Run(0, 7)]


def test_a_run_that_is_cut_in_the_middle_becomes_two() -> None:
    runs = RunSet([Run(0, 10)])
    runs.discard(Run(4, 6))
    assert list(runs) == [Run(0, 4), Run(6, 10)]


def test_its_length_counts_positions_not_runs() -> None:
    runs = RunSet([Run(0, 1_000), Run(2_000, 2_001)])
    assert len(runs) == 1_001
    assert len([*runs]) == 2


def test_what_is_missing_of_a_run_is_what_lies_between() -> None:
    assert RunSet([Run(2, 4), Run(6, 8)]).missing(Run(0, 10)) == [Run(0, 2), Run(4, 6), Run(8, 10)]


def test_the_next_position_may_be_the_one_asked_for() -> None:
    runs = RunSet([Run(5, 8)])
    assert [runs.next_from(position) for position in (0, 6, 8)] == [5, 6, None]

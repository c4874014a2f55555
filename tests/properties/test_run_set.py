"""RunSet, against a set of positions."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sidecar.model.records import Run
from sidecar.model.run_set import RunSet

#: few, so that edges meet
positions = st.integers(0, 14)
runs = st.builds(lambda start, length: Run(start, start + length), positions, st.integers(-1, 6))


class RunSetIsASetOfPositions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runs = RunSet()
        self.model: set[int] = set()

    @rule(run=runs)
    def add(self, run: Run) -> None:
        self.runs.add(run)
        self.model |= set(range(*run))

    @rule(run=runs)
    def discard(self, run: Run) -> None:
        self.runs.discard(run)
        self.model -= set(range(*run))

    @precondition(lambda self: self.model)
    @rule()
    def pop_first(self) -> None:
        first = self.runs.pop_first()
        gone = set(range(*first))
        assert gone == set(_runs(self.model)[0])
        self.model -= gone

    @rule(more=st.lists(runs, max_size=4))
    def start_again(self, more: list[Run]) -> None:
        self.runs = RunSet(more)
        self.model = {position for run in more for position in range(*run)}

    @rule(run=runs)
    def missing(self, run: Run) -> None:
        missing = self.runs.missing(run)
        assert [position for part in missing for position in range(*part)] == sorted(set(range(*run)) - self.model)
        assert all(part.start < part.stop for part in missing)

    @rule(run=runs.filter(lambda run: run.start < run.stop))
    def meeting(self, run: Run) -> None:
        met = [each for each in _runs(self.model) if {*each} & {*range(*run)}]
        assert self.runs.meeting(run) == [Run(each.start, each.stop) for each in met]

    @rule(position=positions)
    def ask_for_one(self, position: int) -> None:
        assert (position in self.runs) == (position in self.model)
        assert self.runs.next_from(position) == min((p for p in self.model if p >= position), default=None)

    @invariant()
    def is_the_same_set(self) -> None:
        expected = [Run(each.start, each.stop) for each in _runs(self.model)]
        assert list(self.runs) == expected
        assert len(self.runs) == len(self.model)
        assert bool(self.runs) == bool(self.model)
        assert self.runs.first == (expected[0] if expected else None)
        assert self.runs.last == (expected[-1] if expected else None)


def _runs(positions: set[int]) -> list[range]:
    """Maximal runs, found one position at a time."""
    out: list[range] = []
    for position in sorted(positions):
        if out and out[-1].stop == position:
            out[-1] = range(out[-1].start, position + 1)
        else:
            out.append(range(position, position + 1))
    return out


TestRunSetIsASetOfPositions = RunSetIsASetOfPositions.TestCase

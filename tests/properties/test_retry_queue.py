"""The queue of returned groups, against a plain list."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sidecar.core.scheduling.retry_queue import DueQueue
from sidecar.core.state.record_slices import RedeliveryGroup, RedeliveryState
from tests.kit import slice_of


class ReturnsGiveBackWhatIsDue(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.returns = DueQueue()
        self.model: list[RedeliveryGroup] = []
        #: groups seen to be due, oldest first: the order in which they must be delivered
        self.order: list[RedeliveryGroup] = []
        self.now = 50.0

    @rule(after=st.sampled_from([-1.0, 0.0, 1.0, 2.0, 2.0, 5.0]))
    def a_group_comes_back(self, after: float) -> None:
        group = RedeliveryGroup([slice_of(1)], self.now + after)
        self.returns.put_back(group, self.now)
        self.model.append(group)

    @rule(later=st.floats(0.0, 3.0))
    def time_passes(self, later: float) -> None:
        self.now += later

    @precondition(lambda self: self.waiting())
    @rule(
        data=st.data(),
        state=st.sampled_from([state for state in RedeliveryState if state is not RedeliveryState.WAITING]),
    )
    def a_group_stops_waiting_elsewhere(self, data: st.DataObject, state: RedeliveryState) -> None:
        data.draw(st.sampled_from(self.waiting())).state = state

    @rule()
    def those_that_stopped_waiting_are_let_go(self) -> None:
        self.returns.prune()

    @rule()
    def the_first_that_is_due_goes(self) -> None:
        due = self.returns.due(self.now)
        if due:
            group = due.popleft()
            assert group.state is RedeliveryState.WAITING
            group.state = RedeliveryState.LEASED

    def waiting(self) -> list[RedeliveryGroup]:
        return [group for group in self.model if group.state is RedeliveryState.WAITING]

    @invariant()
    def what_is_due_is_there_and_nothing_else(self) -> None:
        there = self.returns.due(self.now)
        due = [group for group in there if group.state is RedeliveryState.WAITING]
        assert {*map(id, due)} == {id(group) for group in self.waiting() if group.due <= self.now}
        assert bool(there) == bool(due)
        # Groups that were due before come before those that became due since; the latter by their time.
        before = [group for group in self.order if group.state is RedeliveryState.WAITING]
        assert due[: len(before)] == before
        self.order = due

    @invariant()
    def it_knows_when_the_next_becomes_due(self) -> None:
        self.returns.due(self.now)
        later = [group.due for group in self.waiting() if group.due > self.now]
        assert self.returns.next_due() == min(later, default=None)

    @invariant()
    def all_that_wait_are_in_it(self) -> None:
        assert sorted(map(id, self.returns)) == sorted(map(id, self.waiting()))


TestReturns = ReturnsGiveBackWhatIsDue.TestCase

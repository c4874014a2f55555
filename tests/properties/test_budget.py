"""The budget: its limit holds, recovers after overload, and never blocks everything."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sidecar.core.scheduling.budget import Budget
from sidecar.settings import BudgetSettings


class ConcurrencyIsLimited(RuleBasedStateMachine):
    """The model is the list of batches in flight, by the time of their delivery."""

    @initialize(concurrency=st.integers(0, 30), adaptive=st.booleans())
    def start(self, concurrency: int, adaptive: bool) -> None:
        self.budget = Budget(BudgetSettings(concurrency=concurrency, adaptive=adaptive))
        self.ceiling = concurrency or 1 << 40
        self.adaptive = adaptive
        self.now = 10.0
        self.in_flight: list[float] = []
        self.last_cut = float("-inf")

    def limit(self) -> int:
        return self.budget.limit or 1 << 40

    @rule(wanted=st.integers(1, 20))
    def batches_go(self, wanted: int) -> None:
        while wanted and self.budget.allows(len(self.in_flight), self.now):
            wanted -= 1
            self.in_flight.append(self.now)
        assert not wanted or len(self.in_flight) >= self.limit()

    @rule(later=st.floats(0.0, 2.0))
    def time_passes(self, later: float) -> None:
        self.now += later

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def a_batch_succeeds(self, data: st.DataObject) -> None:
        before, went, flying = self.limit(), self.take(data), len(self.in_flight) + 1
        self.budget.settled(1.0, 0.0, self.now - went, flying, self.now)
        if self.adaptive:
            assert before / 2 <= self.limit() <= max(before * 2, before + 1)
        else:
            assert before <= self.limit() <= before + 1

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def a_batch_fails(self, data: st.DataObject) -> None:
        before, went, flying = self.limit(), self.take(data), len(self.in_flight) + 1
        self.budget.settled(0.0, 1.0, self.now - went, flying, self.now)
        assert self.limit() == before or (self.adaptive and self.limit() <= max(before * 2, before + 1))

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def a_batch_is_too_much(self, data: st.DataObject) -> None:
        before, went, flying = self.limit(), self.take(data), len(self.in_flight) + 1
        self.budget.overloaded(self.now - went, flying, self.now)
        if went >= self.last_cut:
            assert self.limit() <= max(1, 0.6 * flying)
            self.last_cut = self.now
        else:
            assert self.limit() == before, "the limit fell twice for one round trip"

    @rule()
    def the_handler_is_back_after_a_stall(self) -> None:
        before = self.limit()
        self.budget.restart(len(self.in_flight), self.now)
        if self.adaptive:
            assert self.limit() <= max(1, len(self.in_flight) // 4)
        assert self.limit() <= before

    def take(self, data: st.DataObject) -> float:
        return self.in_flight.pop(data.draw(st.integers(0, len(self.in_flight) - 1), "which"))

    @invariant()
    def it_is_within_its_bounds(self) -> None:
        assert 1 <= self.limit() <= self.ceiling
        assert self.budget.allows(0, self.now)
        assert self.budget.allows(self.limit() - 1, self.now)
        assert not self.budget.allows(self.limit(), self.now)


TestBudget = ConcurrencyIsLimited.TestCase


@given(st.booleans(), st.integers(2, 40), st.floats(0.1, 10.0))
def test_the_limit_comes_back_while_all_is_well(adaptive: bool, concurrency: int, latency: float) -> None:
    """Round after round everything that is allowed is in flight and then acked, one after the other."""
    budget = Budget(BudgetSettings(concurrency=concurrency, adaptive=adaptive))
    now, most = 0.0, 0
    budget.overloaded(latency, 1, now)
    assert budget.limit == 1
    for _ in range(200 + 8 * concurrency):
        flying = budget.limit
        assert flying <= concurrency
        now += latency
        for left in range(flying, 0, -1):
            budget.settled(1.0, 0.0, latency, left, now)
        if not adaptive:
            assert budget.limit <= flying + 1
        most = max(most, budget.limit)
    assert most == concurrency


@given(
    rate=st.floats(0.5, 1e5),
    batches=st.lists(st.tuples(st.integers(1, 500), st.floats(0.0, 1.0)), min_size=1, max_size=30),
    start=st.floats(0.0, 1e6),
)
def test_no_stretch_of_time_sees_more_records_than_the_rate_allows(
    rate: float, batches: list[tuple[int, float]], start: float
) -> None:
    budget = Budget(BudgetSettings(rate=rate))
    saved_up = max(1.0, rate * 0.1)
    now = start
    sent: list[tuple[float, int]] = []
    for records, idle in batches:
        now += idle
        if not budget.allows(0, now):
            at = budget.next_token(now)
            assert at is not None
            # The timer fires a millisecond later at the earliest.
            now = max(at, now + 0.001)
        assert budget.allows(0, now), "the time that it named has come"
        assert budget.next_token(now) is None
        budget.sent(records)
        sent.append((now, records))
    for first, (begin, _) in enumerate(sent):
        for last in range(first + 1, len(sent)):
            between = sum(records for _, records in sent[first:last])
            assert between <= saved_up + rate * (sent[last][0] - begin) + 1e-3 * rate


@given(st.integers(1, 1000), st.floats(0.0, 1e6))
def test_without_a_rate_nothing_waits(records: int, now: float) -> None:
    budget = Budget(BudgetSettings())
    budget.sent(records)
    assert budget.allows(1_000_000, now)
    assert budget.next_token(now) is None

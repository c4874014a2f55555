"""The ledger, against a list of records and a set of settled ones."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sidecar.core.state.ledger import Ledger
from sidecar.model.records import Commit, Run


class LedgerKnowsWhatMayBeCommitted(RuleBasedStateMachine):
    """The model is the broker's log, record by record, and the settled positions."""

    @initialize(
        start=st.integers(0, 5),
        log=st.sets(st.integers(0, 70), max_size=50),
        restored=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 10)), max_size=3),
    )
    def assign(self, start: int, log: set[int], restored: list[tuple[int, int]]) -> None:
        runs = [Run(start + offset, start + offset + length) for offset, length in restored]
        self.start = start
        self.ledger = Ledger(start, runs)
        self.restored = {position for run in runs for position in range(*run)}
        #: what the broker will still deliver, in order
        self.log = sorted(position for position in log if position >= start)
        self.arrived: list[int] = []
        #: the positions that each unsettled record settles
        self.answers: dict[int, Run] = {}
        #: everything before it has arrived, or is known not to exist
        self.tracked = start
        self.gaps: set[int] = set()
        self.settled: set[int] = set()
        self.sent: Commit | None = None

    @precondition(lambda self: self.log)
    @rule(records=st.integers(1, 12), repeated=st.integers(0, 5))
    def records_arrive(self, records: int, repeated: int) -> None:
        """Some of them for the second time."""
        fresh, self.log = self.log[:records], self.log[records:]
        chunk = self.arrived[-repeated or len(self.arrived) :] + fresh
        new = []
        for first, stop, low in self.ledger.track(chunk):
            assert first < stop
            for position in chunk[first:stop]:
                self.answers[position] = Run(low, position + 1)
                low = position + 1
                new.append(position)
        assert new == [position for position in fresh if position not in self.restored]
        self.arrived += fresh
        self.tracked = fresh[-1] + 1

    @rule(further=st.integers(0, 20))
    def the_broker_says_that_a_gap_is_a_gap(self, further: int) -> None:
        position = min(self.tracked + further, self.log[0] if self.log else 110)
        self.ledger.advance(position)
        self.gaps |= set(range(self.tracked, position))
        self.tracked = max(self.tracked, position)

    @precondition(lambda self: self.unsettled())
    @rule(data=st.data())
    def some_records_are_settled(self, data: st.DataObject) -> None:
        unsettled = self.unsettled()
        first = data.draw(st.integers(0, len(unsettled) - 1))
        together = unsettled[first : first + data.draw(st.integers(1, 6))]
        for start, stop in _contiguous([self.answers[position] for position in together]):
            self.ledger.settle(Run(start, stop))
        self.settled |= set(together)

    @precondition(lambda self: self.settled)
    @rule(data=st.data())
    def a_record_is_settled_again(self, data: st.DataObject) -> None:
        before = self.ledger.committable(with_beyond=False)
        self.ledger.settle(self.answers[data.draw(st.sampled_from(sorted(self.settled)))])
        assert self.ledger.committable(with_beyond=False) == before

    @precondition(lambda self: self.sent is None)
    @rule(with_beyond=st.booleans())
    def a_commit_is_sent(self, with_beyond: bool) -> None:
        self.sent = self.ledger.committable(with_beyond=with_beyond)
        if self.sent:
            self.ledger.commit_sent()

    @precondition(lambda self: self.sent is not None)
    @rule(arrives=st.booleans())
    def the_commit_ends(self, arrives: bool) -> None:
        assert self.sent is not None
        if arrives:
            self.ledger.commit_done(self.sent)
            assert self.ledger.committed == self.sent.position
        else:
            self.ledger.commit_failed()
            again = self.ledger.committable(with_beyond=True)
            assert again is not None
            assert again.position >= self.sent.position
        self.sent = None

    def unsettled(self) -> list[int]:
        return [p for p in self.arrived if p not in self.restored and p not in self.settled]

    def is_settled(self, position: int) -> bool:
        """A position without a record is settled with the next record, unless the broker has reported a gap."""
        if position < self.start or position in self.restored or position in self.gaps:
            return True
        record = next((each for each in self.arrived if each >= position), None)
        return record is not None and (record in self.settled or record in self.restored)

    @invariant()
    def the_low_watermark_is_the_first_position_that_is_not_settled(self) -> None:
        floor = self.start
        while self.is_settled(floor):
            floor += 1
        assert self.ledger.low_watermark == floor
        assert self.ledger.settled_beyond == sum(self.is_settled(p) for p in range(floor, 120))

    @invariant()
    def a_commit_never_covers_an_unsettled_record(self) -> None:
        for commit in (self.ledger.committable(with_beyond=True), self.ledger.committable(with_beyond=False)):
            if commit is not None:
                covered = {*range(commit.position), *(p for run in commit.beyond for p in range(*run))}
                assert not covered & set(self.unsettled())

    @invariant()
    def what_is_beyond_is_exact(self) -> None:
        commit = self.ledger.committable(with_beyond=True)
        if commit is not None:
            beyond = {position for run in commit.beyond for position in range(*run)}
            assert beyond == {p for p in range(commit.position, 120) if self.is_settled(p)}
            assert all(run.start > commit.position for run in commit.beyond)
            assert list(commit.beyond) == sorted(commit.beyond)

    @invariant()
    def nothing_is_held_back_that_the_broker_does_not_know(self) -> None:
        """While no commit is under way, a low watermark past the committed position can be committed."""
        if self.sent is None and self.ledger.low_watermark > self.ledger.committed:
            for with_beyond in (True, False):
                commit = self.ledger.committable(with_beyond=with_beyond)
                assert commit is not None
                assert commit.position == self.ledger.low_watermark


def _contiguous(runs: list[Run]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for start, stop in runs:
        if out and out[-1][1] == start:
            out[-1] = (out[-1][0], stop)
        else:
            out.append((start, stop))
    return out


TestLedger = LedgerKnowsWhatMayBeCommitted.TestCase

"""The window, against a list of records that is measured one by one."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sidecar.core.state.window import Window
from sidecar.settings import Bytes, WindowSettings
from tests.kit import chunk


class WindowMeasuresFromTheCommittedPosition(RuleBasedStateMachine):
    @initialize(
        start=st.integers(0, 3),
        records=st.integers(1, 12),
        size=st.integers(1, 400),
        span=st.integers(1, 60),
    )
    def assign(self, start: int, records: int, size: int, span: int) -> None:
        self.settings = WindowSettings(records=records, bytes=Bytes(size), span=span)
        self.window = Window(self.settings, start)
        self.committed = self.tracked = start
        #: position and bytes
        self.records: list[tuple[int, int]] = []
        self.was_full = False
        self.could_go: set[int] = set()
        self.arrived: dict[int, float] = {}
        self.now = 0.0

    @rule(
        gaps=st.lists(st.sampled_from([0, 0, 0, 0, 1, 2, 70]), min_size=1, max_size=6),
        sizes=st.lists(st.integers(0, 120), min_size=6, max_size=6),
        repeated=st.integers(0, 3),
    )
    def records_arrive(self, gaps: list[int], sizes: list[int], repeated: int) -> None:
        """Some of them for the second time: a resumed lane may return prefetched records again."""
        positions = [position for position, _ in self.records[-repeated or len(self.records) :]]
        again = len(positions)
        for gap in gaps:
            self.tracked += gap + 1
            positions.append(self.tracked - 1)
        arrived = chunk(positions, sizes=[*[50] * again, *sizes[: len(gaps)]])
        self.now += 1.0
        self.window.track(arrived, self.now)
        for index in range(again, len(positions)):
            self.records.append((positions[index], arrived.size(index, index + 1)))
            self.arrived[positions[index]] = self.now

    @precondition(lambda self: self.tracked > self.committed)
    @rule(data=st.data())
    def a_commit_arrives(self, data: st.DataObject) -> None:
        self.committed = data.draw(st.integers(self.committed, self.tracked))
        self.window.commit(self.committed)

    def past(self) -> list[tuple[int, int]]:
        return [record for record in self.records if record[0] >= self.committed]

    def within(self) -> list[int]:
        """Positions of the records that may be delivered, one by one."""
        out: list[int] = []
        size = 0
        for position, bytes_ in self.past():
            size += bytes_
            fits = (
                len(out) < self.settings.records
                and size <= self.settings.bytes
                and position < self.committed + self.settings.span
            )
            if out and not fits:
                break
            out.append(position)
            if not fits:
                break
        return out

    @invariant()
    def exactly_the_records_within_may_go(self) -> None:
        before = self.window.delivery_limit()
        assert [position for position, _ in self.past() if position < before] == self.within()

    @invariant()
    def a_record_that_may_go_always_may(self) -> None:
        # Ordering relies on it, for records that wait for their key.
        may_go = {position for position, _ in self.records if position < self.window.delivery_limit()}
        assert may_go >= self.could_go
        self.could_go = may_go

    @invariant()
    def full_at_all_of_it_and_free_at_four_fifths(self) -> None:
        past = self.past()
        share = 0.8 if self.was_full else 1.0
        used_up = (
            len(past) >= max(1, self.settings.records * share)
            or sum(size for _, size in past) >= self.settings.bytes * share
            or self.tracked - self.committed >= max(1, self.settings.span * share)
        )
        assert self.window.full() == used_up
        self.was_full = used_up

    @invariant()
    def it_never_locks_itself(self) -> None:
        past = self.past()
        if past:
            assert self.window.delivery_limit() > past[0][0]
        elif self.tracked == self.committed:
            assert not self.window.full()

    @invariant()
    def it_knows_the_next_record_and_when_it_arrived(self) -> None:
        past = [position for position, _ in self.past()]
        for position in {self.committed, self.tracked, *past[:5], *past[-5:]}:
            expected = next(((each, self.arrived[each]) for each in past if each >= position), None)
            assert self.window.first_from(position) == expected


TestWindow = WindowMeasuresFromTheCommittedPosition.TestCase

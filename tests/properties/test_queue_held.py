"""Held messages of a queue: each handle is acked, renewed or given back exactly as long as it is good."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sidecar.brokers.queue.credit import Credit
from sidecar.brokers.queue.driver import Received
from sidecar.brokers.queue.held import Acks, HeldMessages, Renewal
from sidecar.model.records import Commit, Run
from sidecar.model.run_set import RunSet

EVERY = 10.0


@dataclass
class Modelled:
    """One message that was received."""

    ref: bytes
    #: None: it ran out, and nobody has told a new one
    handle: int | None
    renew_at: float
    settled: bool = False
    #: it was settled after its handle had run out
    late: bool = False


@dataclass
class Model:
    by_position: dict[int, Modelled] = field(default_factory=dict)
    repeats: list[int] = field(default_factory=list)
    next: int = 0

    def live(self) -> dict[int, int]:
        return {
            position: one.handle
            for position, one in self.by_position.items()
            if one.handle is not None and not one.settled
        }


class HeldIsWhatIsNotSettled(RuleBasedStateMachine):
    """The model is a dict of all messages ever received."""

    @initialize(start=st.integers(0, 100), renews=st.booleans())
    def start(self, start: int, renews: bool) -> None:
        self.every = EVERY if renews else None
        self.held: HeldMessages[int] = HeldMessages(start, self.every)
        self.model = Model(next=start)
        self.now = 0.0
        self.handles = 0
        self.refs = 0
        self.committed = start
        #: under way
        self.acking: tuple[Commit, Acks[int]] | None = None
        self.renewing: Renewal[int] | None = None

    def handle(self) -> int:
        self.handles += 1
        return self.handles

    @rule(numbers=st.lists(st.none() | st.integers(-5, 30), max_size=6))
    def new_messages_arrive(self, numbers: list[int | None]) -> None:
        batch, expected = [], []
        for offset in numbers:
            self.refs += 1
            ref, handle = b"%d" % self.refs, self.handle()
            number = -1 if offset is None else self.model.next + offset
            position = max(number, self.model.next)
            self.model.next = position + 1
            self.model.by_position[position] = Modelled(ref, handle, self.now + EVERY)
            batch.append(Received(handle, None, b"", (), 0, ref, number))
            expected.append(position)
        assert self.held.add(batch, self.now) == expected

    @precondition(lambda self: self.every is not None and self.again())
    @rule(data=st.data())
    def a_message_comes_again_whose_handle_ran_out(self, data: Any) -> None:
        """Whether or not anybody knows yet that it ran out."""
        position = data.draw(st.sampled_from(self.again()))
        one, handle = self.model.by_position[position], self.handle()
        assert self.held.add([Received(handle, None, b"", (), 0, one.ref, position)], self.now) == [-1]
        if one.settled:
            one.late = False
            self.model.repeats.append(handle)
        else:
            if one.handle is None:
                one.renew_at = self.now
            one.handle = handle

    def again(self) -> list[int]:
        return [at for at, one in self.model.by_position.items() if one.late or not one.settled]

    @precondition(lambda self: self.acking is None)
    @rule(upto=st.integers(0, 40), gaps=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), max_size=3))
    def a_commit_begins(self, upto: int, gaps: list[tuple[int, int]]) -> None:
        position = max(self.committed, min(self.committed + upto, self.model.next))
        beyond, at = RunSet(), position + 1
        for skipped, settled in gaps:
            beyond.add(Run(at + skipped, at + skipped + settled))
            at += skipped + settled
        # What was settled before stays settled.
        for before, one in self.model.by_position.items():
            if one.settled and before > position:
                beyond.add(Run(before, before + 1))
        while (first := beyond.first) is not None and first.start <= position:
            position = max(position, beyond.pop_first().stop)
        commit = Commit(position, tuple(run for run in beyond))
        acks = self.held.covered(commit)
        covered = {at: handle for at, handle in self.model.live().items() if _covers(commit, at)}
        assert list(acks.positions) == sorted(covered)
        assert list(acks.handles) == [covered[at] for at in sorted(covered)] + self.model.repeats
        before_it = [handle for at, handle in sorted(self.model.live().items()) if at < position]
        assert list(acks.handles[: acks.cumulative]) == before_it
        self.acking = commit, acks

    @precondition(lambda self: self.acking is not None)
    @rule(data=st.data())
    def a_commit_succeeds(self, data: Any) -> None:
        assert self.acking is not None
        commit, acks = self.acking
        self.acking = None
        not_ours = data.draw(st.sets(st.sampled_from(range(len(acks.handles))))) if acks.handles else set()
        self.held.settle(commit, acks, sorted(not_ours))
        self.model.repeats = self.model.repeats[len(acks.handles) - len(acks.positions) :]
        for index in sorted(not_ours):
            if index < len(acks.positions):
                one = self.model.by_position[acks.positions[index]]
                if one.handle is not None and one.handle != acks.handles[index]:
                    self.model.repeats.append(one.handle)
                else:
                    one.late = self.every is not None
        for position, one in self.model.by_position.items():
            one.settled = one.settled or _covers(commit, position)
        self.committed = commit.position

    @precondition(lambda self: self.acking is not None)
    @rule()
    def a_commit_fails(self) -> None:
        self.acking = None

    @precondition(lambda self: self.every is not None)
    @rule(seconds=st.floats(0.0, 15.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.every is not None and self.renewing is None)
    @rule()
    def a_renewal_begins(self) -> None:
        self.renewing = self.held.due(self.now)
        found = dict(zip(self.renewing.positions, self.renewing.handles, strict=True))
        live = self.model.live()
        assert len(found) == len(self.renewing.positions), "renewed twice at a time"
        assert found.items() <= live.items()
        assert {at for at in live if self.model.by_position[at].renew_at <= self.now} <= found.keys()

    @precondition(lambda self: self.renewing is not None)
    @rule(data=st.data(), change=st.booleans())
    def a_renewal_succeeds(self, data: Any, change: bool) -> None:
        assert self.renewing is not None
        renewal, self.renewing = self.renewing, None
        gone = data.draw(st.sets(st.sampled_from(renewal.positions))) if renewal.positions else set()
        # A commit under way has the handles of before; at a real broker either of the two comes first.
        if self.acking is not None:
            gone = set()
            change = False
        new = [
            None if at in gone else (self.handle() if change else handle)
            for at, handle in zip(renewal.positions, renewal.handles, strict=True)
        ]
        self.held.renewed(renewal, new, self.now)
        for at, before, after in zip(renewal.positions, renewal.handles, new, strict=True):
            one = self.model.by_position[at]
            if not one.settled and one.handle == before:
                one.handle, one.renew_at = after, self.now + EVERY

    @precondition(lambda self: self.renewing is not None)
    @rule()
    def a_renewal_fails(self) -> None:
        assert self.renewing is not None
        self.held.not_renewed(self.renewing, self.now + 1.0)
        for at in self.renewing.positions:
            self.model.by_position[at].renew_at = self.now + 1.0
        self.renewing = None

    @invariant()
    def as_many_are_held_as_are_not_settled(self) -> None:
        if hasattr(self, "held"):
            assert len(self.held) == len(self.model.live())
            assert self.held.next == self.model.next

    def teardown(self) -> None:
        if hasattr(self, "held"):
            expected = [handle for _, handle in sorted(self.model.live().items())] + self.model.repeats
            assert self.held.take_all() == expected
            assert not len(self.held)


def _covers(commit: Commit, position: int) -> bool:
    return position < commit.position or any(start <= position < stop for start, stop in commit.beyond)


TestHeldIsWhatIsNotSettled = HeldIsWhatIsNotSettled.TestCase


@given(
    sizes=st.lists(st.integers(1, 10_000), min_size=1, max_size=300),
    limit=st.integers(1, 100_000),
    most=st.integers(1, 1000),
)
def test_credit_asks_for_no_more_than_fits_by_the_largest_so_far(sizes: list[int], limit: int, most: int) -> None:
    credit = Credit(most)
    assert credit.next(1 << 40) <= 4
    arrived: list[int] = []
    while sizes:
        asked = credit.next(limit)
        assert 1 <= asked <= most
        assert asked == 1 or not arrived or asked * max(arrived) <= limit
        batch, sizes = sizes[:asked], sizes[asked:]
        credit.received(asked, batch)
        arrived += batch


def test_credit_grows_while_questions_are_answered_in_full() -> None:
    credit = Credit(500)
    for _ in range(10):
        asked = credit.next(1 << 20)
        credit.received(asked, [100] * asked)
    assert credit.next(1 << 20) == 500
    credit.received(500, [10 << 20])
    assert credit.next(1 << 20) == 1


def test_credit_forgets_a_large_message_in_time() -> None:
    credit = Credit(500)
    credit.received(4, [1 << 20])
    assert credit.next(1 << 20) == 1
    for _ in range(5000):
        credit.received(credit.next(1 << 20), [100])
    assert credit.next(1 << 20) > 1

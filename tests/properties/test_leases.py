"""Leases, against a model that knows what became of each record of each lease."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sidecar.core.state.leases import Lease, LeasePhase, Leases
from sidecar.core.state.record_slices import RecordSlice, RedeliveryGroup, RedeliveryState, count
from sidecar.model.records import Extended, ExtendStatus, Outcome, Part, Range, Settlement, SettleStatus
from tests.kit import positions_of, slice_of

#: after these outcomes a record does not wait for its next delivery any more
FINAL = (Outcome.ACK, Outcome.REJECT)
outcomes = st.sampled_from(Outcome)
#: few, so that times coincide
seconds = st.sampled_from([1.0, 2.0, 5.0])


class Fate(Enum):
    """The state of an unsettled record."""

    HELD = "the worker has it"
    WAITING = "the lease ended, and the record waits for its next delivery"
    GONE = "the lease ended, and the record was given to another or put aside"


@dataclass
class Known:
    """A lease in the model: for each of its records the outcome or the state."""

    lease: Lease[str]
    records: list[Outcome | Fate]
    deadline: float
    longest: float
    #: the position of a record is its index, because each lease has its own chunk
    written: bool = False
    granted: float = 0.0
    limit: float = 0.0
    redeliveries: list[RedeliveryGroup] = field(default_factory=list)
    #: records that wait for their next delivery, whatever was said of them late
    waiting: set[int] = field(default_factory=set)

    @property
    def is_held(self) -> bool:
        return Fate.HELD in self.records


@st.composite
def settlements(draw: st.DrawFn, records: int) -> tuple[Outcome | None, tuple[Part, ...]]:
    parts: list[Part] = []
    at = 0
    for _ in range(draw(st.integers(0, 3))):
        first = draw(st.integers(at, at + 3))
        length = draw(st.integers(1, 3))
        if first + length > records:
            break
        parts.append(Part(first, length, draw(outcomes), draw(st.sampled_from(["", "why"]))))
        at = first + length
    return draw(st.one_of(st.none(), outcomes) if parts else outcomes), tuple(parts)


class SettlingIsAnsweredTruthfully(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.leases: Leases[str] = Leases(b"boot")
        self.known: list[Known] = []
        self.now = 100.0

    @rule(
        cuts=st.lists(st.integers(1, 4), min_size=1, max_size=3),
        limit=seconds,
        more=st.sampled_from([0.0, 0.0, 1.0, 3.0]),
    )
    def a_batch_is_leased(self, cuts: list[int], limit: float, more: float) -> None:
        longest = limit + more
        whole = slice_of(sum(cuts))
        slices: list[RecordSlice] = []
        for records in cuts:
            start = slices[-1].stop if slices else 0
            slices.append(whole.slice(start, start + records))
        lease = self.leases.grant("worker", slices, self.now, limit, longest)
        known = Known(lease, [Fate.HELD] * sum(cuts), self.now + longest, longest, granted=self.now, limit=limit)
        self.known.append(known)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def a_batch_is_written(self, data: st.DataObject) -> None:
        known = self.one_of(data)
        self.leases.mark_written([known.lease.id], self.now)
        if known.is_held and not known.written:
            known.written = True
            known.granted = self.now
            known.deadline = self.now + known.limit

    @precondition(lambda self: self.known)
    @rule(data=st.data(), asked=seconds)
    def a_lease_is_extended(self, data: st.DataObject, asked: float) -> None:
        known = self.one_of(data)
        answer = self.leases.extend(known.lease.id, asked, known.longest, self.now)
        if not known.is_held:
            assert answer == Extended(known.lease.id, ExtendStatus.ENDED)
        elif not known.written:
            known.limit = min(max(known.limit, asked), known.longest)
            assert answer == Extended(known.lease.id, ExtendStatus.EXTENDED, known.limit)
        else:
            known.deadline = max(known.deadline, min(self.now + asked, known.granted + known.longest))
            assert answer.status is ExtendStatus.EXTENDED
            assert answer.lease_for == pytest.approx(max(0.0, known.deadline - self.now))

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def a_worker_settles(self, data: st.DataObject) -> None:
        known = self.one_of(data)
        outcome, parts = data.draw(settlements(len(known.records)), "says")
        settlement = Settlement(known.lease.id, outcome, "the rest", None, parts)

        said: dict[int, tuple[Outcome, str]] = {}
        if outcome is not None:
            said = dict.fromkeys(range(len(known.records)), (outcome, "the rest"))
        for part in parts:
            said |= dict.fromkeys(range(part.first, part.first + part.count), (part.outcome, part.reason))
        stale: set[int] = set()
        settled: dict[int, tuple[Outcome, str]] = {}
        for index, (word, reason) in said.items():
            before = known.records[index]
            if before is Fate.GONE or (isinstance(before, Outcome) and before is not word):
                stale.add(index)
            elif before in (Fate.HELD, Fate.WAITING):
                settled[index] = word, reason

        late = not known.is_held

        def breath_of(index: int) -> set[int]:
            """The indexes that the same statement of the worker covers."""
            named = [set(range(part.first, part.first + part.count)) for part in parts]
            rest = set(said).difference(*named)
            return next(each for each in [*named, rest] if index in each)

        result, lease, done = self.leases.settle(settlement)

        assert lease is known.lease
        assert result.lease == known.lease.id
        assert result.status is (SettleStatus.STALE if stale else SettleStatus.SETTLED)
        assert list(result.stale) == _ranges(stale)
        assert bool(result.detail) == bool(stale)
        answered: dict[int, tuple[Outcome, str]] = {}
        for each in done:
            indexes = range(each.part.first, each.part.first + each.part.count)
            assert positions_of(each.slices) == list(indexes)
            if not late:
                assert each.blamed == (each.part.count < len(known.records))
                assert each.covered == len(settled.keys() & breath_of(each.part.first))
            assert each.waits == (late and each.part.outcome not in FINAL)
            assert not answered.keys() & set(indexes)
            answered |= dict.fromkeys(indexes, (each.part.outcome, each.part.reason))
        assert answered == settled
        for index, (word, _) in settled.items():
            known.records[index] = word
            if word in FINAL:
                known.waiting.discard(index)
        still_waiting = [
            slice_ for group in known.redeliveries if group.state is RedeliveryState.WAITING for slice_ in group.slices
        ]
        assert sorted(positions_of(still_waiting)) == sorted(known.waiting)

    @rule(data=st.data(), later=st.sampled_from([0.0, 0.5, 1.0, 5.0]))
    def time_passes(self, data: st.DataObject, later: float) -> None:
        self.now += later
        due = [known for known in self.known if known.is_held and known.deadline <= self.now]
        expired = self.leases.expire(self.now)
        assert sorted(lease.number for lease in expired) == [known.lease.number for known in due]
        assert [lease.deadline for lease in expired] == sorted(known.deadline for known in due)
        # Otherwise the timer would fire again and again.
        next_deadline = self.leases.next_deadline()
        assert next_deadline is None or next_deadline > self.now
        for known in due:
            self.end(known, data)

    @precondition(lambda self: any(known.is_held for known in self.known))
    @rule(data=st.data())
    def a_session_ends(self, data: st.DataObject) -> None:
        self.end(data.draw(st.sampled_from([known for known in self.known if known.is_held]), "of"), data)

    def one_of(self, data: st.DataObject) -> Known:
        """Any lease, mostly one that is held."""
        return data.draw(st.sampled_from([known for known in self.known if known.is_held] * 3 + self.known), "of")

    def end(self, known: Known, data: st.DataObject) -> None:
        """Its records go into two groups, one of which may be put aside at once."""
        slices = self.leases.end(known.lease)
        unsettled = [index for index, fate in enumerate(known.records) if fate is Fate.HELD]
        assert positions_of(slices) == unsettled
        singles = [single for slice_ in slices for single in slice_.singles()]
        middle = data.draw(st.integers(0, len(singles)), "first group")
        aside = data.draw(st.booleans(), "the second is put aside")
        for mine, state in (
            (singles[:middle], RedeliveryState.WAITING),
            (singles[middle:], RedeliveryState.ASIDE if aside else RedeliveryState.WAITING),
        ):
            if mine:
                group = RedeliveryGroup(mine, self.now, expired_lease=known.lease, state=state)
                known.lease.redeliveries.append(group)
                known.redeliveries.append(group)
                for position in positions_of(mine):
                    known.records[position] = Fate.WAITING if state is RedeliveryState.WAITING else Fate.GONE
                    if state is RedeliveryState.WAITING:
                        known.waiting.add(position)

    @precondition(lambda self: any(self.waiting()))
    @rule(data=st.data())
    def records_are_given_out_again(self, data: st.DataObject) -> None:
        known, group = data.draw(st.sampled_from(self.waiting()), "of")
        records = data.draw(st.integers(1, count(group.slices)), "records")
        singles = [single for slice_ in group.slices for single in slice_.singles()]
        for position in positions_of(singles[:records]):
            known.waiting.discard(position)
            if known.records[position] is Fate.WAITING:
                known.records[position] = Fate.GONE
        if records < len(singles):
            group.slices = singles[records:]
        else:
            group.state = RedeliveryState.LEASED
            self.leases.group_finished(group)

    def waiting(self) -> list[tuple[Known, RedeliveryGroup]]:
        return [
            (known, group)
            for known in self.known
            for group in known.redeliveries
            if group.state is RedeliveryState.WAITING
        ]

    @invariant()
    def it_knows_who_holds_what(self) -> None:
        held = [known for known in self.known if known.is_held]
        assert len(self.leases) == len(held)
        assert [lease.id for lease in self.leases.held()] == [known.lease.id for known in held]
        next_deadline = self.leases.next_deadline()
        assert (next_deadline is not None) == bool(held)
        assert all(next_deadline is not None and next_deadline <= known.deadline for known in held)
        for known in self.known:
            if known.is_held:
                assert known.lease.phase is LeasePhase.HELD
            elif not known.redeliveries:
                assert known.lease.phase is LeasePhase.SETTLED
            else:
                assert known.lease.phase is LeasePhase.ENDED

    @invariant()
    def an_ended_lease_keeps_no_records_that_nobody_can_settle_by_it(self) -> None:
        for known in self.known:
            if known.lease.phase is LeasePhase.ENDED and not any(
                h.state is RedeliveryState.WAITING for h in known.redeliveries
            ):
                aside_at_once = all(group.state is RedeliveryState.ASIDE for group in known.redeliveries)
                assert aside_at_once or not known.lease.slices


def _ranges(indexes: set[int]) -> list[Range]:
    out: list[Range] = []
    for index in sorted(indexes):
        if out and out[-1].first + out[-1].count == index:
            out[-1] = Range(out[-1].first, out[-1].count + 1)
        else:
            out.append(Range(index, 1))
    return out


TestLeases = SettlingIsAnsweredTruthfully.TestCase

parts = st.builds(Part, st.integers(0, 6), st.integers(0, 4), outcomes)


@given(st.integers(1, 6), st.lists(parts, max_size=4), st.booleans())
def test_parts_are_refused_unless_they_ascend_within_the_batch(records: int, parts: list[Part], ended: bool) -> None:
    leases: Leases[str] = Leases(b"boot")
    lease = leases.grant("worker", [slice_of(records)], 0.0, 1.0, 1.0)
    if ended:
        leases.end(lease)
    named = [index for part in parts for index in range(part.first, part.first + part.count)]
    fits = named == sorted(set(named)) and all(part.count for part in parts) and all(i < records for i in named)
    settlement = Settlement(lease.id, Outcome.ACK, parts=tuple(parts))
    result, _, done = leases.settle(settlement)
    assert (result.status is SettleStatus.REFUSED) is not fits
    if not fits:
        assert f"the batch has {records} records" in result.detail
        assert (done, lease.outcomes, lease.settled) == ([], [], None)


@given(st.binary(max_size=14), st.integers(0, 3), st.data())
def test_a_lease_that_never_was_is_unknown(id_: bytes, granted: int, data: Any) -> None:
    leases: Leases[str] = Leases(b"boot")
    ids = {leases.grant("worker", [slice_of(3)], 0.0, 1.0, 1.0).id for _ in range(granted)}
    outcome, parts = data.draw(settlements(9))
    if id_ not in ids:
        settlement = Settlement(id_, outcome, parts=parts)
        result, lease, done = leases.settle(settlement)
        assert (result.status, lease, done) == (SettleStatus.UNKNOWN, None, [])
        assert leases.extend(id_, 1.0, 1.0, 0.0).status is ExtendStatus.UNKNOWN

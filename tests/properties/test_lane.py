"""A lane: records that may have been delivered before are flagged, and its counts are right."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sidecar.core.state.lane import LaneState
from sidecar.core.state.record_slices import RecordSlice
from sidecar.core.state.window import Window
from sidecar.model.records import Assigned, Chunk, Lane, Order, Run
from sidecar.settings import Bytes, WindowSettings
from tests.kit import chunk, lane_state, positions_of

LANE = Lane("orders", 0)


def chunks_of(positions: list[int], cuts: list[int]) -> list[Chunk]:
    edges = sorted({0, len(positions), *(cut for cut in cuts if cut < len(positions))})
    return [chunk(positions[start:stop]) for start, stop in pairwise(edges)]


@given(
    log=st.sets(st.integers(0, 80), min_size=1, max_size=40),
    start=st.integers(0, 10),
    settled=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 6)), max_size=2),
    records=st.integers(1, 20),
    span=st.integers(1, 60),
    cuts=st.lists(st.integers(1, 40), max_size=4),
    other_cuts=st.lists(st.integers(1, 40), max_size=4),
)
def test_what_an_earlier_run_may_have_delivered_is_flagged(
    log: set[int],
    start: int,
    settled: list[tuple[int, int]],
    records: int,
    span: int,
    cuts: list[int],
    other_cuts: list[int],
) -> None:
    """Whatever the chunks are this time, and whatever was acked before beyond the start."""
    positions = sorted(position for position in log if position >= start)
    settings = WindowSettings(records=records, bytes=Bytes(1 << 30), span=span)
    before = Window(settings, start)
    for arrived in chunks_of(positions, cuts):
        before.track(arrived, 0.0)
    may_have_been_delivered = {position for position in positions if position < before.delivery_limit()}

    runs = tuple(Run(start + offset, start + offset + length) for offset, length in settled)
    state = LaneState(Assigned(LANE, start, runs), Order.NONE, settings, parked=False)
    slices = [each for arrived in chunks_of(positions, other_cuts) for each in state.track(arrived, 0.0)]

    flagged = {position for each in slices if each.history.possibly_processed for position in positions_of([each])}
    acked = {position for run in runs for position in range(*run)}
    assert positions_of(slices) == [position for position in positions if position not in acked]
    assert flagged == may_have_been_delivered - acked


@given(st.sets(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 10))
def test_nothing_is_flagged_in_a_lane_that_is_read_for_the_first_time(log: set[int], records: int) -> None:
    window = WindowSettings(records=records, bytes=Bytes(1 << 30), span=10)
    state = LaneState(Assigned(LANE, 0, first=True), Order.NONE, window, parked=False)
    assert not any(slice_.history.possibly_processed for slice_ in state.track(chunk(sorted(log)), 0.0))


class ItsCountsAreThoseOfItsRecords(RuleBasedStateMachine):
    """The model is a list of unsettled records and two sets of settled ones: committed and not."""

    @initialize()
    def assign(self) -> None:
        self.state = lane_state()
        self.unsettled: list[RecordSlice] = []
        self.settled: set[int] = set()
        self.committed = 0
        #: acks that the broker knows, also beyond the committed position
        self.known: set[int] = set()

    @rule(gaps=st.lists(st.integers(0, 2), min_size=1, max_size=5))
    def records_arrive(self, gaps: list[int]) -> None:
        position = self.state.ledger.tracked
        positions = []
        for gap in gaps:
            positions.append(position + gap)
            position += gap + 1
        slices = self.state.track(chunk(positions), 0.0)
        self.state.in_flight += len(gaps)
        self.unsettled += [single for slice_ in slices for single in slice_.singles()]

    @precondition(lambda self: self.unsettled)
    @rule(data=st.data())
    def records_are_settled(self, data: st.DataObject) -> None:
        first = data.draw(st.integers(0, len(self.unsettled) - 1))
        several = self.unsettled[first : first + 3]
        del self.unsettled[first : first + 3]
        size = sum(slice_.size for slice_ in several)
        assert self.state.settle(several) == size
        self.state.in_flight -= len(several)
        self.settled |= {*positions_of(several)}

    @rule()
    def the_broker_is_told(self) -> None:
        commit = self.state.ledger.committable(with_beyond=True)
        if commit is not None:
            self.state.ledger.commit_sent()
            self.state.commit_done(commit, self.state.uncommitted)
            self.committed, self.known = commit.position, {*self.settled}

    @invariant()
    def it_knows_what_is_unsettled(self) -> None:
        assert self.state.unsettled_records == len(self.unsettled)
        assert self.state.unsettled_bytes == sum(slice_.size for slice_ in self.unsettled)
        assert self.state.uncommitted == len(self.settled - self.known)

    @invariant()
    def it_knows_what_would_be_replayed(self) -> None:
        in_flight = len(self.unsettled)
        unknown = len(self.settled - self.known)
        past = sum(position >= self.committed for position in self.settled)
        assert self.state.would_be_replayed(keeps_acks_beyond=True) == in_flight + unknown
        assert self.state.would_be_replayed(keeps_acks_beyond=False) == in_flight + past


TestLane = ItsCountsAreThoseOfItsRecords.TestCase

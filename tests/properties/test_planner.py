"""The planner, against a naive model: one record at a time, to the lane that is furthest behind its share."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from sidecar.brokers.range_cursor import PositionEstimate
from sidecar.model.records import Lane, Run
from sidecar.ranges.planner import Limits, allocate, plan, rotation_seed

LANES = [Lane("a", 0), Lane("a", 1), Lane("b", 0), Lane("b", 7), Lane("c", 2)]

wanted = st.lists(st.integers(0, 60), min_size=1, max_size=6)
limits = st.integers(1, 200)
turns = st.integers(0, 10**6)


def naive(wants: list[int], limit: int, turn: int) -> list[int]:
    """One each, in turn; then always for the lane that is furthest behind its share."""
    order = [(index + turn) % len(wants) for index in range(len(wants))]
    shares = [0] * len(wants)
    for index in order:
        if wants[index] and sum(shares) < limit:
            shares[index] = 1
    while sum(shares) < min(limit, sum(wants)):
        behind = [index for index in order if 0 < shares[index] < wants[index]]
        least = min(behind, key=lambda index: Fraction(shares[index] - 1, wants[index] - 1))
        shares[least] += 1
    return shares


@given(wanted, limits, turns)
def test_records_are_shared_as_one_by_one_would_give_them(wants: list[int], limit: int, turn: int) -> None:
    shares = allocate(wants, [1] * len(wants), limit, turn)
    expected = naive(wants, limit, turn)
    assert sum(shares) == sum(expected) == min(limit, sum(wants))
    assert all(abs(got - model) <= len(wants) for got, model in zip(shares, expected, strict=True))
    assert [got > 0 for got in shares] == [model > 0 for model in expected]


@given(st.lists(st.tuples(st.integers(0, 10**12), st.integers(1, 10**6)), min_size=1, max_size=6), turns, st.data())
def test_shares_fit_and_no_lane_gets_more_than_it_has(
    lanes: list[tuple[int, int]], turn: int, data: st.DataObject
) -> None:
    wants, sizes = [want for want, _ in lanes], [size for _, size in lanes]
    limit = data.draw(st.integers(1, 10**8))
    shares = allocate(wants, sizes, limit, turn)
    assert all(0 <= got <= want for got, want in zip(shares, wants, strict=True))
    used = sum(got * size for got, size in zip(shares, sizes, strict=True))
    # A single record may be too large: without it nothing would ever advance.
    assert used <= limit or sum(shares) == 1
    if any(wants):
        assert any(shares)
    if sum(size for want, size in lanes if want) <= limit:
        assert all(got > 0 for got, want in zip(shares, wants, strict=True) if want), "a lane starves"
    # What is left is too little for one more record of any lane that got some.
    for got, want, size in zip(shares, wants, sizes, strict=True):
        if 0 < got < want and used <= limit:
            assert limit - used < size + max(sizes)


@given(st.integers(2, 5), st.integers(1, 4), st.integers(1, 20))
def test_lanes_take_turns_where_there_is_not_enough_for_all(lanes: int, limit: int, backlog: int) -> None:
    """However small the limit is, all lanes come to their ends."""
    ends = dict.fromkeys(LANES[:lanes], backlog)
    at = dict.fromkeys(ends, 0)
    for _ in range(lanes * backlog + 1):
        waiting = {lane: PositionEstimate(Run(position, ends[lane])) for lane, position in at.items()}
        at.update(plan(waiting, {}, Limits(records=limit), turn=rotation_seed(at)))
    assert at == ends


@given(st.integers(2, 5), st.integers(0, 1 << 40), st.sampled_from([1, 2, 3, 4, 5, 1000, 2048, 1 << 33]))
def test_no_lane_starves_whatever_the_steps_are_in_which_positions_move(lanes: int, start: int, step: int) -> None:
    at = {lane: start + number * step for number, lane in enumerate(LANES[:lanes])}
    served = dict.fromkeys(at, 0)
    for _ in range(100 * lanes):
        first = sorted(at)[rotation_seed(at) % lanes]
        at[first] += step
        served[first] += 1
    # One hundred each would be exactly fair; each lane gets its turn soon enough.
    assert min(served.values()) > 40


@given(
    st.dictionaries(st.sampled_from(LANES), st.tuples(st.integers(0, 10**15), st.integers(0, 10**6)), min_size=1),
    st.integers(0, 10**6),
    st.integers(0, 10**9),
    turns,
)
def test_a_plan_stays_within_its_lanes_and_its_limits(
    lanes: dict[Lane, tuple[int, int]], records: int, bytes_: int, turn: int
) -> None:
    runs = {lane: Run(start, start + count) for lane, (start, count) in lanes.items()}
    waiting = {lane: PositionEstimate(run) for lane, run in runs.items()}
    sizes = dict.fromkeys(lanes, 100)
    until = plan(waiting, sizes, Limits(records, bytes_), turn=turn)
    assert all(runs[lane].start < position <= runs[lane].stop for lane, position in until.items())
    planned = sum(position - runs[lane].start for lane, position in until.items())
    if records:
        assert planned <= records
    if bytes_:
        assert planned * 100 <= bytes_ or planned == 1
    if not records and not bytes_:
        assert until == {lane: run.stop for lane, run in runs.items() if run.start < run.stop}
    assert bool(until) == any(run.start < run.stop for run in runs.values())

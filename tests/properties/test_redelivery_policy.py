"""The redelivery policy: poison is found in few calls, and only failures of a record alone count."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.failures.outage import OutageDetector
from sidecar.core.failures.redelivery_policy import (
    DeadLetter,
    Decision,
    Discard,
    FailedRecords,
    Redeliver,
    RedeliveryPolicy,
)
from sidecar.core.failures.splitting import split_batch
from sidecar.core.state.record_slices import RecordSlice, count
from sidecar.model.records import Order
from sidecar.observability.counters import Counters
from sidecar.settings import Exhausted, OutageSettings, RetrySettings, Seconds
from tests.kit import NoJitter, lane_state, positions_of, slice_of, subscription_settings

KEYS = [None, b"a", b"b", b"c", b"d", b"e"]


def calls_to_isolate(slices: Sequence[RecordSlice], bad: set[int], order: Order) -> int:
    """Deliver a batch to a handler that fails for the bad records, until each of them has failed alone."""
    settings = subscription_settings(order=order)
    outage = OutageDetector(settings.outage)
    outage.success(0.0)
    policy = RedeliveryPolicy(settings, outage, Counters(), NoJitter())
    waiting = deque([slices])
    calls = 0
    acked: list[int] = []
    found: list[int] = []
    while waiting:
        batch = waiting.popleft()
        calls += 1
        positions = positions_of(batch)
        if not bad & {*positions}:
            acked += positions
        elif len(positions) == 1:
            found += positions
        else:
            failed = FailedRecords(batch, False, len(positions), 1, 0, True)
            for decision in policy.failed(failed, 1.0, reason="no"):
                assert isinstance(decision, Redeliver)
                assert decision.isolated, "halves must be isolated"
                assert decision.after == 0.0
                assert {slice_.history.failures for slice_ in decision.slices} == {0}, "a split is not an attempt"
                waiting.append(decision.slices)
    assert sorted(found) == sorted(bad)
    assert sorted(acked) == sorted({*positions_of(slices)} - bad)
    return calls


def most_calls(records: int, bad: int) -> int:
    return 2 * bad * math.ceil(math.log2(records)) + 1


@cache
def worst(records: int, bad: int) -> tuple[int, tuple[int, ...]]:
    """The most calls that any such batch can cost, and the positions of its bad records then."""
    if bad == 0 or records == 1:
        return 1, (0,) * bad
    left = (records + 1) // 2
    calls = 0
    places: tuple[int, ...] = ()
    for on_the_left in range(max(0, bad - (records - left)), min(bad, left) + 1):
        first, first_places = worst(left, on_the_left)
        second, second_places = worst(records - left, bad - on_the_left)
        if 1 + first + second > calls:
            calls = 1 + first + second
            places = (*first_places, *(left + place for place in second_places))
    return calls, places


@pytest.mark.parametrize("order", [Order.NONE, Order.LANE])
def test_k_bad_of_n_are_found_within_the_promised_calls_in_the_worst_case(order: Order) -> None:
    for records in range(1, 65):
        for bad in range(min(4, records) + 1):
            expected, places = worst(records, bad)
            calls = calls_to_isolate([slice_of(records)], {*places}, order)
            assert calls == expected
            assert calls <= most_calls(records, bad)


@given(st.integers(1, 64), st.sets(st.integers(0, 63), max_size=4), st.lists(st.integers(0, 64), max_size=3))
def test_no_batch_costs_more_than_the_worst_one(records: int, bad: set[int], cuts: list[int]) -> None:
    """However the records are spread over slices."""
    slices: list[RecordSlice] = []
    whole = slice_of(records)
    edges = sorted({0, records, *(cut for cut in cuts if cut < records)})
    for start, stop in pairwise(edges):
        slices.append(whole.slice(start, stop))
    bad = {position for position in bad if position < records}
    calls = calls_to_isolate(slices, bad, Order.NONE)
    assert calls <= worst(records, len(bad))[0] <= most_calls(records, len(bad))


@given(st.lists(st.sampled_from(KEYS), min_size=1, max_size=64), st.data())
def test_with_order_key_it_costs_one_round_more_at_the_most(keys: list[bytes | None], data: st.DataObject) -> None:
    """The records of a key stay together as long as there are others, so halves may be uneven."""
    bad = data.draw(st.sets(st.integers(0, len(keys) - 1), max_size=4))
    calls = calls_to_isolate([slice_of(len(keys), keys=keys)], bad, Order.KEY)
    assert calls <= most_calls(len(keys), len(bad)) + 2 * len(bad)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(KEYS)), min_size=2, max_size=30), st.sampled_from(Order))
def test_halves_are_all_of_it_in_order_and_do_not_share_a_key_unless_they_must(
    records: list[tuple[bool, bytes | None]], order: Order
) -> None:
    slices: list[RecordSlice] = []
    keys: dict[tuple[object, int], tuple[object, bytes | None]] = {}
    for lane in (False, True):
        mine = [key for in_this, key in records if in_this is lane]
        if mine:
            state = lane_state(int(lane), order=order)
            slices.append(slice_of(len(mine), state=state, keys=mine))
            keys |= {(state, position): (state, key) for position, key in enumerate(mine)}
    first, second = split_batch(slices, order)
    assert count(first) > 0
    assert count(second) > 0
    places = [
        [(slice_.lane, position) for slice_ in half for position in positions_of([slice_])] for half in (first, second)
    ]
    assert sorted(places[0] + places[1], key=str) == sorted(keys, key=str)
    for half in places:
        for state in {state for state, _ in half}:
            mine_here = [position for lane_, position in half if lane_ is state]
            assert mine_here == sorted(mine_here)
    if order is Order.KEY:
        shared = {keys[place] for place in places[0]} & {keys[place] for place in places[1]}
        assert len({*keys.values()}) == 1 or all(key is None for _, key in shared)
    else:
        assert abs(len(places[0]) - len(places[1])) <= 1


@dataclass(frozen=True)
class Event:
    """What happens next to the record and so many others."""

    what: str
    others: int = 0
    #: another batch succeeds before this
    success_before: bool = False
    in_outage: bool = False
    retry_after: float | None = None


events = st.builds(
    Event,
    what=st.sampled_from(["nacked", "expired", "lost", "released", "overloaded"]),
    others=st.sampled_from([0, 0, 0, 1, 3]),
    success_before=st.booleans(),
    in_outage=st.booleans(),
    retry_after=st.none() | st.just(9.0),
)


@given(
    st.lists(events, min_size=1, max_size=12),
    st.integers(1, 4),
    st.sampled_from(Exhausted),
    st.booleans(),
)
def test_only_what_happens_to_a_record_alone_counts_against_it(
    history: list[Event], attempts: int, exhausted: Exhausted, guarded: bool
) -> None:
    """Follows one record through everything that can happen to it."""
    retry = RetrySettings(
        attempts=attempts, first=Seconds(1.0), factor=2.0, max=Seconds(30.0), jitter=0.0, exhausted=exhausted
    )
    detection = OutageSettings(enabled=guarded, failures=1_000, lately=Seconds(1e9))
    settings = subscription_settings(retry=retry, outage=detection)
    outage = OutageDetector(detection)
    policy = RedeliveryPolicy(settings, outage, Counters(), NoJitter())
    record = slice_of(1)
    failures = counted_failures = worker_crashes = uncounted_failures = 0
    first_failed: float | None = None
    last_success: float | None = None
    possibly_processed = False
    now = 100.0
    for event in history:
        now += 1.0
        if event.success_before:
            outage.success(now)
            last_success = now
        alone = event.others == 0
        together = [record] if alone else [record, slice_of([*range(1, event.others + 1)])]
        failed = FailedRecords(together, False, 1 + event.others, 1, uncounted_failures, True)
        counts = event.what == "lost" or (alone and event.what in ("nacked", "expired"))
        if event.what in ("nacked", "expired", "lost"):
            first_failed = now if first_failed is None else first_failed
            possibly_processed = possibly_processed or event.what in ("expired", "lost")
        failures += counts
        counted_failures += counts and not event.in_outage
        worker_crashes += event.what == "lost" and not event.in_outage
        others_succeeded = not guarded or (
            first_failed is not None and last_success is not None and last_success >= first_failed
        )
        given_up = (
            alone
            and others_succeeded
            and (
                (event.what == "lost" and worker_crashes >= 3)
                or (event.what in ("nacked", "expired") and counted_failures >= attempts)
            )
        )

        decision = _of_the_record(_happens(policy, event, failed, now), record)

        if given_up and exhausted is Exhausted.DEAD_LETTER:
            assert isinstance(decision, DeadLetter)
            assert decision.reason == ("WORKER_DIED" if event.what == "lost" else event.what)
            return
        if given_up and exhausted is Exhausted.DROP:
            assert isinstance(decision, Discard)
            return
        assert isinstance(decision, Redeliver), "it was given up too early"
        mine = next(slice_ for slice_ in decision.slices if slice_.chunk is record.chunk)
        assert (mine.history.failures, mine.history.counted_failures, mine.history.worker_crashes) == (
            failures,
            counted_failures,
            worker_crashes,
        )
        assert (mine.history.possibly_processed, mine.history.first_failed) == (possibly_processed, first_failed)
        assert decision.after == _expected_wait(
            event, failures, worker_crashes, decision.uncounted_failures, given_up=given_up
        )
        if event.what == "lost" and worker_crashes > 1:
            assert [*decision.slices] == [mine], "a record whose worker crashed twice is delivered alone"
        record, uncounted_failures = mine, decision.uncounted_failures


def _happens(policy: RedeliveryPolicy, event: Event, failed: FailedRecords, now: float) -> list[Decision]:
    match event.what:
        case "lost":
            return policy.abandoned(failed, now, alone=True, in_outage=event.in_outage)
        case "released":
            return policy.released(failed)
        case "overloaded":
            return policy.overloaded(failed, event.retry_after)
        case _:
            return policy.failed(
                failed,
                now,
                reason=event.what,
                retry_after=event.retry_after if event.what == "nacked" else None,
                possibly_processed=event.what == "expired",
                in_outage=event.in_outage,
            )


def _of_the_record(decisions: list[Decision], record: RecordSlice) -> Decision:
    """Every record of a batch is in exactly one decision."""
    mine = [decision for decision in decisions for slice_ in decision.slices if slice_.chunk is record.chunk]
    assert len(mine) == 1
    return mine[0]


def _backoff(failures: int) -> float:
    return float(min(30.0, 2.0 ** max(0, failures - 1)))


def _expected_wait(
    event: Event, failures: int, worker_crashes: int, uncounted_failures: int, *, given_up: bool
) -> float:
    if given_up:
        return 30.0
    match event.what:
        case "lost":
            return 0.0 if worker_crashes <= 1 else _backoff(worker_crashes - 1)
        case "released":
            return 0.0
        case "overloaded":
            return _backoff(uncounted_failures) if event.retry_after is None else event.retry_after
    asked = event.retry_after if event.what == "nacked" else None
    if asked is not None:
        return asked
    if event.others == 0:
        return _backoff(failures)
    # A batch that is split is redelivered at once; one that is not split, because nothing succeeded, waits.
    return _backoff(uncounted_failures) if uncounted_failures else 0.0

"""Cost depends on runs, not on records. It is measured in calls or lines, not seconds, so load does not change it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sidecar.core.scheduling.dispatcher import Dispatcher
from sidecar.core.scheduling.selection import Batching, Capacity
from sidecar.core.state.lane import LaneState
from sidecar.core.state.ledger import Ledger
from sidecar.core.state.record_slices import RedeliveryGroup
from sidecar.core.tracker import RecordTracker
from sidecar.model.clock import Clock
from sidecar.model.records import (
    Chunk,
    ClientInfo,
    Credit,
    Delivery,
    Notice,
    Order,
    Outcome,
    Part,
    Run,
    Settlement,
)
from sidecar.model.run_set import RunSet
from sidecar.settings import BatchSettings, Bytes, WindowSettings
from sidecar.subscription.session import Consumer
from sidecar.subscription.subscription import Subscription
from tests.counting import calls_of, lines_of
from tests.kit import chunk, lane_state, subscription_settings
from tests.memory_broker import MemoryBroker

FEW, MANY = 10, 1_000
HUGE = Capacity(1 << 40, 1 << 40)


class Way:
    """Takes a batch of contiguous records through all stages, and counts the calls of each. Without `batch` it has all
    that arrive, of one key; with it the first so many of them, each of a key of its own."""

    def __init__(self, records: int, order: Order, *, batch: int = 0) -> None:
        self.calls: dict[str, int] = {}
        dispatcher = Dispatcher(Batching(BatchSettings(records=batch or 100_000, bytes=Bytes(1 << 40))), order)
        self.tracker: RecordTracker[Any] = RecordTracker(dispatcher, b"boot")
        self.state = lane_state(order=order)
        keys = [b"key%d" % number if batch else b"key" for number in range(records)]
        arrived: Chunk = chunk([*range(records)], keys=keys)
        self._stage("track", lambda: self._track(arrived))
        self._stage("selection", lambda: self._select())
        self._stage("lease", lambda: self._lease())
        self._stage("settle", lambda: self._settle())
        self._stage("commit", lambda: self._commit())
        assert self.state.ledger.committed == (batch or records)

    def _stage(self, name: str, work: Callable[[], object]) -> None:
        self.calls[name] = calls_of(work)

    def _track(self, arrived: Chunk) -> None:
        self.tracker.track(self.state, arrived, 0.0)

    def _select(self) -> None:
        selection = self.tracker.dispatcher.select(HUGE, 0.0)
        assert selection is not None
        self.selection = selection

    def _lease(self) -> None:
        self.lease = self.tracker.lease(self.selection, None, 0.0, 1.0, 1.0)

    def _settle(self) -> None:
        _, _, (settled,) = self.tracker.settle_lease(Settlement(self.lease.id, Outcome.ACK))
        self.tracker.settle(settled.slices)

    def _commit(self) -> None:
        commit = self.state.ledger.committable(with_beyond=True)
        assert commit is not None
        self.state.ledger.commit_sent()
        self.state.commit_done(commit, self.state.uncommitted)


@pytest.mark.parametrize("order", [Order.NONE, Order.LANE])
def test_a_contiguous_batch_costs_the_same_for_ten_records_and_for_a_thousand(order: Order) -> None:
    assert Way(FEW, order).calls == Way(MANY, order).calls


def test_with_order_key_only_telling_the_keys_apart_costs_by_records() -> None:
    few, many = Way(FEW, Order.KEY).calls, Way(MANY, Order.KEY).calls
    by_runs = ("track", "lease", "commit")
    assert {stage: few[stage] for stage in by_runs} == {stage: many[stage] for stage in by_runs}
    assert many["selection"] < few["selection"] * (MANY / FEW) * 1.5
    assert many["settle"] < few["settle"] * (MANY / FEW) * 1.5


def test_a_settlement_with_one_exception_costs_the_same_for_ten_records_and_for_a_thousand() -> None:
    def calls(records: int) -> int:
        way = Way(records, Order.NONE)
        state = lane_state()
        (slice_,) = state.track(chunk([*range(records)]), 0.0)
        lease = way.tracker.leases.grant(None, [slice_], 0.0, 1.0, 1.0)
        settlement = Settlement(lease.id, Outcome.ACK, parts=(Part(5, 1, Outcome.NACK),))

        def settle() -> None:
            _, _, settled = way.tracker.leases.settle(settlement)
            assert len(settled) == 3
            for each in settled:
                if each.part.outcome is Outcome.ACK:
                    way.tracker.settle(each.slices)

        return calls_of(settle)

    assert calls(FEW) == calls(MANY)


@pytest.mark.parametrize("ends", [False, True])
def test_settling_many_parts_twice_costs_by_parts(ends: bool) -> None:
    """As a client does that did not get the response. `ends`: the lease ended, and its records still wait."""

    def calls(records: int) -> int:
        leases = Way(1, Order.NONE).tracker.leases
        (slice_,) = lane_state().track(chunk([*range(records)]), 0.0)
        lease = leases.grant(None, [slice_], 0.0, 1.0, 1.0)
        parts = tuple(Part(at, 1, (Outcome.ACK, Outcome.NACK)[at % 2]) for at in range(records))
        if ends:
            lease.redeliveries.append(RedeliveryGroup([*leases.end(lease)], 0.0, expired_lease=lease))
        leases.settle(Settlement(lease.id, None, parts=parts))
        return calls_of(lambda: leases.settle(Settlement(lease.id, None, parts=parts)))

    assert calls(400) < 5 * calls(100)


@pytest.mark.parametrize("ends", [False, True])
def test_settling_a_batch_of_many_slices_in_many_parts_costs_by_both_once(ends: bool) -> None:
    """Every record is a slice of its own, as after redeliveries, and gets an outcome of its own."""

    def calls(records: int) -> int:
        leases = Way(1, Order.NONE).tracker.leases
        (slice_,) = lane_state().track(chunk([*range(records)]), 0.0)
        lease = leases.grant(None, [*slice_.singles()], 0.0, 1.0, 1.0)
        parts = tuple(Part(at, 1, (Outcome.ACK, Outcome.NACK)[at % 2]) for at in range(records))
        if ends:
            leases.settle(Settlement(lease.id, None, parts=parts[::3]))
            return calls_of(lambda: leases.end(lease))
        return calls_of(lambda: leases.settle(Settlement(lease.id, None, parts=parts)))

    assert calls(5_000) < 11 * calls(500)


def test_a_run_set_costs_by_runs() -> None:
    def calls(length: int) -> int:
        def work() -> None:
            runs = RunSet()
            for number in range(20):
                runs.add(Run(number * 2 * length, number * 2 * length + length))
            runs.discard(Run(length // 2, 10 * length))
            assert runs.missing(Run(0, 50 * length))
            assert runs.next_from(0) == 0

        return calls_of(work)

    assert calls(FEW) == calls(MANY)


def test_a_slow_record_does_not_make_those_behind_it_dearer() -> None:
    """A lane with one record in each chunk, behind one record that is not settled."""

    def calls(behind: int) -> int:
        window = WindowSettings(records=behind + 10, bytes=Bytes(1 << 40), span=1 << 40)
        state = lane_state(window=window)
        dispatcher = Dispatcher(Batching(BatchSettings()), Order.NONE)

        def one_more(position: int) -> None:
            for slice_ in state.track(chunk([position]), 0.0):
                state.ordering.add(slice_)
            dispatcher.wake(state)
            selection = dispatcher.select(HUGE, 0.0)
            assert selection is not None
            if position:
                state.settle(selection.slices)
            assert not state.window.full()
            commit = state.ledger.committable(with_beyond=True)
            if commit is not None:
                state.ledger.commit_sent()
                state.window.commit(commit.position)

        for position in range(behind):
            one_more(position)
        return calls_of(lambda: one_more(behind))

    assert calls(FEW) == calls(MANY)


def test_a_hot_key_costs_by_what_is_delivered_not_by_what_waits() -> None:
    def calls(waiting: int) -> int:
        state = lane_state(order=Order.KEY)
        dispatcher = Dispatcher(Batching(BatchSettings(records=5)), Order.KEY)
        (slice_,) = state.track(chunk([*range(waiting)], keys=[b"hot"] * waiting), 0.0)
        state.ordering.add(slice_)
        dispatcher.wake(state)
        first = dispatcher.select(HUGE, 0.0)
        assert first is not None
        assert dispatcher.select(HUGE, 0.0) is None, "the key is out"

        def the_next() -> None:
            state.settle(first.slices)
            dispatcher.wake(state)
            assert dispatcher.select(HUGE, 0.0) is not None

        return calls_of(the_next)

    assert calls(100) == calls(MANY)


def test_many_lanes_that_go_together_cost_one_look_at_what_waits() -> None:
    def calls(lanes: int) -> int:
        tracker: RecordTracker[Any] = RecordTracker(Dispatcher(Batching(BatchSettings()), Order.NONE), b"boot")
        states = [lane_state(number) for number in range(lanes)]
        (slice_,) = states[0].track(chunk([*range(MANY)]), 0.0)
        for single in slice_.singles():
            tracker.put_back(RedeliveryGroup([single], 3600.0), 0.0)
        return calls_of(lambda: tracker.end_lanes(states))

    assert calls(50) < 2 * calls(1)


def test_a_chunk_costs_by_the_settled_runs_that_it_meets_not_by_all_of_them() -> None:
    """A restart with sparse acks: the broker sends each unsettled record in a chunk of its own."""

    def lines(runs: int) -> int:
        ledger = Ledger(0, [Run(2 * number + 1, 2 * number + 2) for number in range(runs)])
        middle = runs // 2 * 2
        for position in range(0, middle, 2):
            ledger.track([position])
        return lines_of(lambda: ledger.track([middle]))

    assert lines(100) == lines(10_000)


def test_a_select_costs_by_what_it_takes_not_by_how_many_groups_wait() -> None:
    """Among many records that are due and must each be delivered alone is one that could take others along."""

    def lines(groups: int) -> int:
        dispatcher = Dispatcher(Batching(BatchSettings(records=100)), Order.NONE)
        (slice_,) = lane_state().track(chunk([*range(groups)]), 0.0)
        for number, single in enumerate(slice_.singles()):
            dispatcher.put_back(RedeliveryGroup([single], 0.0, isolated=number > 0), 0.0)
        return lines_of(lambda: dispatcher.select(HUGE, 0.0))

    assert lines(1_000) == lines(60_000)


class StoppedClock(Clock):
    def now(self) -> float:
        return 0.0


@pytest.mark.parametrize("of_full_lane", [True, False])
def test_parking_costs_by_what_can_be_parked_not_by_all_that_waits(of_full_lane: bool) -> None:
    """Records that the retry topic does not take, or that wait in a lane with room, are not looked at."""

    def calls(waiting: int) -> int:
        subscription = Subscription(subscription_settings(), MemoryBroker(), prefix=b"boot", clock=StoppedClock())
        full, wide = lane_state(0, window=WindowSettings(records=1)), lane_state(1)

        def wait(state: LaneState, records: int, *, never_park: bool) -> None:
            subscription.tracker.add_lane(state)
            (slice_,) = state.track(chunk([*range(records)]), 0.0)
            for single in slice_.singles():
                subscription.tracker.put_back(RedeliveryGroup([single], 60.0, never_park=never_park), 0.0)

        wait(full, waiting if of_full_lane else FEW, never_park=True)
        wait(wide, FEW if of_full_lane else waiting, never_park=False)
        assert full.window.full()
        return calls_of(subscription.window_full)

    assert calls(FEW) == calls(60_000)


def test_what_may_be_parked_is_remembered_no_longer_than_it_waits() -> None:
    tracker: RecordTracker[Any] = RecordTracker(Dispatcher(Batching(BatchSettings()), Order.NONE), b"boot")
    state = lane_state()
    (slice_,) = state.track(chunk([*range(10_000)]), 0.0)
    for single in slice_.singles():
        group = RedeliveryGroup([single], 60.0)
        tracker.put_back(group, 0.0)
        tracker.settle(tracker.close_group(group))
    assert len(state.to_park) < 1_100


def test_a_batch_costs_by_its_records_not_by_how_many_keys_there_are() -> None:
    def calls(keys: int) -> dict[str, int]:
        return {stage: calls for stage, calls in Way(keys, Order.KEY, batch=100).calls.items() if stage != "track"}

    assert calls(1_000) == calls(100_000)


def test_each_poll_looks_at_each_lane_with_few_calls() -> None:
    """Whether it must be paused. With many lanes, most polls bring records of few of them."""

    def calls(lanes: int) -> int:
        subscription = Subscription(subscription_settings(), MemoryBroker(), prefix=b"boot", clock=StoppedClock())
        for number in range(lanes):
            state = lane_state(number)
            state.paused = False
            subscription.tracker.add_lane(state)
            subscription.tracker.track(state, chunk([*range(FEW)], lane=state.lane), 0.0)

        async def play() -> int:
            check = subscription.fetcher._pause_and_resume()
            return calls_of(lambda: next(check.__await__(), None))

        return asyncio.run(play())

    assert calls(200) - calls(100) < 100 * 8


class Worker(Consumer):
    def __init__(self) -> None:
        self.leases: list[bytes] = []

    def deliver(self, delivery: Delivery) -> None:
        self.leases.append(delivery.lease)

    def notify(self, notice: Notice) -> None:
        pass


def calls_of_batches_of_one(batches: int) -> tuple[float, float]:
    """The calls of each batch when so many are delivered in one turn, and when one request acks them."""

    async def play() -> tuple[int, int]:
        settings = subscription_settings(batch=BatchSettings(records=1))
        subscription = Subscription(settings, MemoryBroker(), prefix=b"boot", clock=StoppedClock())
        lanes, worker = [lane_state(number) for number in range(4)], Worker()
        for state in lanes:
            subscription.tracker.add_lane(state)
            subscription.tracker.track(state, chunk([*range(batches // 4)], lane=state.lane), 0.0)
        credit = Credit(batches)
        subscription.connect(worker, client=ClientInfo(), credit=credit, max_message_bytes=1 << 20, lease=None)
        delivering = calls_of(subscription._deliverer.deliver_ready)
        acks = [Settlement(lease, Outcome.ACK) for lease in worker.leases]
        settling = calls_of(lambda: subscription.settle(acks))
        assert [state.ledger.low_watermark for state in lanes] == [batches // 4] * 4
        return delivering, settling

    delivering, settling = asyncio.run(play())
    return delivering / batches, settling / batches


def test_a_batch_of_one_is_delivered_and_acked_with_few_calls() -> None:
    """Most of what a small batch costs is calls. The limits are what it takes now, and a little more."""
    delivering, settling = calls_of_batches_of_one(1_000)
    assert delivering < 70
    assert settling < 25

"""The dispatcher and the tracker, against a model that knows the place of each record."""

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sidecar.core.scheduling.dispatcher import Dispatcher
from sidecar.core.scheduling.selection import Batching, Capacity, Selection
from sidecar.core.state.lane import LanePhase, LaneState
from sidecar.core.state.leases import Lease
from sidecar.core.state.record_slices import FRESH, DeliveryHistory, RecordSlice, RedeliveryGroup, RedeliveryState
from sidecar.core.tracker import RecordTracker
from sidecar.model.records import Chunk, ClosedBy, Lane, Order
from sidecar.settings import BatchSettings, Bytes, WindowSettings
from tests.kit import chunk, lane_state, positions_of

KEYS = [None, b"a", b"b"]
NOW = 1_000.0


class Where(Enum):
    FRESH = "fresh"
    LEASED = "leased"
    WAITING = "waiting"
    SETTLED = "settled"


@dataclass
class Known:
    """A record in the model."""

    state: LaneState
    position: int
    topic: str
    key: object
    size: int
    where: Where = Where.FRESH
    #: the group in which it waits
    group: RedeliveryGroup | None = None

    @property
    def suspected(self) -> bool:
        """It is suspected to crash its worker."""
        return self.group is not None and self.group.slices[0].history.worker_crashes >= 2


class EveryRecordIsInOnePlace(RuleBasedStateMachine):
    @initialize(
        order=st.sampled_from(Order),
        records=st.integers(1, 8),
        size=st.integers(40, 300),
        window=st.integers(1, 30),
    )
    def start(self, order: Order, records: int, size: int, window: int) -> None:
        self.order = order
        self.batch = BatchSettings(records=records, bytes=Bytes(size))
        self.tracker: RecordTracker[None] = RecordTracker(Dispatcher(Batching(self.batch), order), b"boot")
        self.dispatcher = self.tracker.dispatcher
        self.window = WindowSettings(records=window, bytes=Bytes(1 << 30), span=1 << 30)
        self.lanes: list[LaneState] = []
        self.known: dict[tuple[LaneState, int], Known] = {}
        self.leases: list[Lease[None]] = []
        self.now = NOW
        for topic in ("orders", "orders", "refunds", "retry"):
            self.a_lane_is_assigned(topic)

    @precondition(lambda self: len(self.lanes) < 5)
    @rule(topic=st.sampled_from(["orders", "refunds"]))
    def a_lane_is_assigned(self, topic: str) -> None:
        parked = topic == "retry"
        lane = lane_state(len(self.lanes), topic=topic, order=self.order, window=self.window, parked=parked)
        self.lanes.append(lane)

    @rule(data=st.data())
    def records_arrive(self, data: st.DataObject) -> None:
        state = data.draw(st.sampled_from(self.lanes), "lane")
        records = data.draw(st.integers(1, 6), "records")
        first = state.ledger.tracked
        positions = [*range(first, first + records)]
        keys = [data.draw(st.sampled_from(KEYS)) for _ in positions]
        sizes = [data.draw(st.sampled_from([0, 10, 20, 200])) for _ in positions]
        arrived = chunk(positions, lane=state.lane, keys=keys, sizes=sizes)
        slices = self.tracker.track(state, arrived, self.now)
        for index, position in enumerate(positions):
            key: object = {Order.NONE: None, Order.KEY: keys[index], Order.LANE: "lane"}[self.order]
            if key is None or state.parked:
                key = object()
            known = Known(state, position, state.lane.topic, (state, key), arrived.size(index, index + 1))
            self.known[state, position] = known
        if state.parked:
            # Each gets its original form, in a chunk of its own. Some travel together.
            originals = []
            for single in [single for slice_ in slices for single in slice_.singles()]:
                (position,) = positions_of([single])
                topic = data.draw(st.sampled_from(["orders", "refunds"]), "origin")
                self.known[state, position].topic = topic
                original = Chunk(state.lane, [position], [single.chunk.frames[single.start]], origin=Lane(topic, 7))
                originals.append(self.tracker.restore(single, original, FRESH))
            together = data.draw(st.integers(1, 3), "together")
            for first_of in range(0, len(originals), together):
                due = self.now + data.draw(st.sampled_from([0.0, 5.0]), "due")
                self.put_back(RedeliveryGroup(originals[first_of : first_of + together], due, isolated=together > 1))

    def put_back(self, group: RedeliveryGroup) -> None:
        for slice_ in group.slices:
            for position in positions_of([slice_]):
                known = self.known[slice_.lane, position]
                known.where, known.group = Where.WAITING, group
        self.tracker.put_back(group, self.now)

    @rule(later=st.sampled_from([1.0, 5.0]))
    def time_passes(self, later: float) -> None:
        self.now += later

    @rule(size=st.integers(1, 400), hard=st.sampled_from([60, 150, 10_000]))
    def a_worker_asks(self, size: int, hard: int) -> None:
        capacity = Capacity(min(size, hard, int(self.batch.bytes)), hard)
        could_go = self.could_go()
        selection = self.dispatcher.select(capacity, self.now)
        self.note_too_large(capacity)
        if selection is None:
            # All that this worker could take was delivered, except for suspected records.
            assert not [known for known in could_go if known.size <= hard and not known.suspected]
            return
        taken = self.taken(selection)
        assert not any(each.suspected for each in taken)
        assert len(taken) <= self.batch.records
        assert sum(each.size for each in taken) <= capacity.bytes or len(taken) == 1
        assert all(each.size <= hard for each in taken)
        assert selection.closed_by is not ClosedBy.RECORDS or len(taken) == self.batch.records
        self.lease(selection, taken)

    @rule()
    def a_worker_takes_what_may_kill_it(self) -> None:
        could_go = [known for known in self.could_go() if known.suspected]
        assert self.dispatcher.has_suspect(self.now) == bool(could_go)
        selection = self.dispatcher.suspect(Capacity(1_000, 1_000), self.now)
        if selection is None:
            assert not could_go
            return
        (one,) = self.taken(selection)
        assert one.suspected
        self.lease(selection, [one])

    @rule()
    def a_worker_probes(self) -> None:
        could_go = self.could_go()
        capacity = Capacity(1_000, 1_000)
        selection = self.dispatcher.probe_fresh(capacity, self.now)
        assert selection is None or not selection.waited
        selection = selection or self.dispatcher.probe_returned(capacity, self.now)
        assert not self.tracker.hold_too_large()
        if selection is None:
            assert not could_go
            return
        taken = self.taken(selection)
        assert len(taken) == 1
        assert selection.isolated
        assert selection.closed_by is ClosedBy.PROBE
        self.lease(selection, taken)

    def taken(self, selection: Selection) -> list[Known]:
        """The selected records, once all that must hold for them is checked."""
        taken = [
            self.known[slice_.lane, position] for slice_ in selection.slices for position in positions_of([slice_])
        ]
        assert taken, "an empty batch"
        assert len({id(each) for each in taken}) == len(taken), "a record twice"
        assert len({each.topic for each in taken}) == 1, "a batch of two topics"
        assert {each.where for each in taken} in ({Where.FRESH}, {Where.WAITING})
        assert all(each.state.phase is LanePhase.ACTIVE for each in taken)
        if self.order is Order.LANE:
            assert len({each.state for each in taken}) == 1, "a batch of two lanes"
        for state in {each.state for each in taken}:
            positions = [each.position for each in taken if each.state is state]
            assert positions == sorted(positions), "out of the order of positions"
        for each in taken:
            assert all(earlier in taken for earlier in self.before(each)), "overtook another of its key"
            if each.where is Where.FRESH or each.state.parked:
                assert each.position < each.state.window.delivery_limit()
            else:
                assert each.group is not None
                assert each.group.due <= self.now
        groups = {id(each.group) for each in taken if each.group}
        assert len(groups) <= 1 or not any(each.group.isolated for each in taken if each.group)
        return taken

    def lease(self, selection: Selection, taken: list[Known]) -> None:
        for each in taken:
            each.where, each.group = Where.LEASED, None
        self.leases.append(self.tracker.lease(selection, None, self.now, 1.0, 1.0))

    def note_too_large(self, capacity: Capacity) -> None:
        """A record that is too large for a worker waits in a group of its own for another one."""
        for group in self.tracker.hold_too_large():
            assert group.records == 1
            assert group.state is RedeliveryState.WAITING
            known = self.known[group.slices[0].lane, positions_of(group.slices)[0]]
            assert known.size > capacity.hard_bytes
            known.where, known.group = Where.WAITING, group

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def a_worker_settles(self, data: st.DataObject) -> None:
        """Some records are acked, others come back: in one group or two, now or later."""
        back: list[RecordSlice] = []
        for slice_ in self.ended(data):
            records = data.draw(st.integers(0, slice_.records), "acked")
            if records:
                acked = slice_.slice(0, records)
                self.tracker.settle([acked])
                for position in positions_of([acked]):
                    self.known[slice_.lane, position].where = Where.SETTLED
            if records < slice_.records:
                back.append(slice_.slice(records, slice_.records).with_history(DeliveryHistory(failures=1)))
        if back:
            cut = data.draw(st.integers(0, len(back)), "cut")
            isolated = data.draw(st.booleans(), "apart")
            due = self.now + data.draw(st.sampled_from([0.0, 0.0, 1.0, 5.0]), "after")
            for part in (back[:cut], back[cut:]):
                if part:
                    self.put_back(RedeliveryGroup(part, due, isolated, first_lease=1))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), after=st.sampled_from([0.0, 1.0]))
    def a_worker_dies_for_the_second_time(self, data: st.DataObject, after: float) -> None:
        """Each of its records is delivered alone from now on."""
        for slice_ in self.ended(data):
            for single in slice_.with_history(DeliveryHistory(failures=2, worker_crashes=2)).singles():
                self.put_back(RedeliveryGroup([single], self.now + after, isolated=True, first_lease=1))

    def ended(self, data: st.DataObject) -> list[RecordSlice]:
        """The unsettled records of a lease that ends."""
        return self.tracker.end_lease(self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1), "which")))

    @rule(data=st.data())
    def a_lane_is_committed(self, data: st.DataObject) -> None:
        state = data.draw(st.sampled_from(self.lanes))
        state.window.commit(state.ledger.low_watermark)
        self.dispatcher.wake(state)

    @precondition(lambda self: len(self.lanes) > 3)
    @rule(data=st.data())
    def a_lane_goes(self, data: st.DataObject) -> None:
        state = data.draw(st.sampled_from(self.lanes))
        self.lanes.remove(state)
        leased = [lease for lease in self.leases if any(slice_.lane is state for slice_ in lease.slices)]
        assert {lease.id for lease in self.tracker.end_lanes([state])} == {lease.id for lease in leased}
        self.known = {place: each for place, each in self.known.items() if each.state is not state}

    def before(self, record: Known) -> list[Known]:
        return [
            each
            for each in self.known.values()
            if each.key == record.key and each.position < record.position and each.where is not Where.SETTLED
        ]

    def could_go(self) -> list[Known]:
        """Records that may be delivered now, each by itself."""
        return [
            each
            for each in self.known.values()
            if not self.before(each)
            and (
                (each.where is Where.FRESH and each.position < each.state.window.delivery_limit())
                or (
                    each.where is Where.WAITING
                    and each.group is not None
                    and each.group.due <= self.now
                    and (not each.state.parked or each.position < each.state.window.delivery_limit())
                )
            )
        ]

    @invariant()
    def nothing_is_lost_and_nothing_is_in_two_places(self) -> None:
        waiting = Counter(each.state for each in self.known.values() if each.where is Where.WAITING)
        fresh = Counter(each.state for each in self.known.values() if each.where is Where.FRESH)
        leased = Counter(each.state for each in self.known.values() if each.where is Where.LEASED)
        for state in self.lanes:
            assert state.waiting == waiting[state]
            assert state.in_flight == leased[state]
            assert state.ordering.fresh_records == fresh[state]
        in_groups = [
            (slice_.lane, position)
            for group in self.dispatcher.waiting()
            for slice_ in group.slices
            for position in positions_of([slice_])
        ]
        assert Counter(in_groups) == Counter(place for place, each in self.known.items() if each.where is Where.WAITING)
        if self.could_go():
            assert not self.dispatcher.idle(self.now)


TestDispatcher = EveryRecordIsInOnePlace.TestCase


@given(
    st.lists(st.integers(1, 40), min_size=2, max_size=6),
    st.integers(1, 5),
    st.sampled_from([Order.NONE, Order.LANE]),
)
def test_every_lane_with_records_gets_its_turn(backlogs: list[int], records: int, order: Order) -> None:
    """However much the others have, a lane waits for no more batches than there are lanes."""
    dispatcher = Dispatcher(Batching(BatchSettings(records=records)), order)
    lanes = [lane_state(number, order=order) for number in range(len(backlogs))]
    for state, backlog in zip(lanes, backlogs, strict=True):
        for slice_ in state.track(chunk([*range(backlog)], lane=state.lane), 0.0):
            state.ordering.add(slice_)
        dispatcher.wake(state)
    since = dict.fromkeys(lanes, 0)
    delivered = 0
    while (selection := dispatcher.select(Capacity(1 << 20, 1 << 20), 0.0)) is not None:
        for state in lanes:
            since[state] = 0 if not state.ordering.fresh_records else since[state] + 1
        for slice_ in selection.slices:
            since[slice_.lane] = 0
            delivered += slice_.records
            slice_.lane.settle([slice_])
            dispatcher.wake(slice_.lane)
        assert max(since.values()) < len(lanes)
    assert delivered == sum(backlogs)


@given(st.integers(1, 10), st.integers(1, 10), st.integers(1, 3))
def test_returned_and_fresh_records_take_turns(fresh: int, returned: int, records: int) -> None:
    dispatcher = Dispatcher(Batching(BatchSettings(records=records)), Order.NONE)
    state = lane_state()
    (slice_,) = state.track(chunk([*range((fresh + returned) * records)]), 0.0)
    back, rest = slice_.cut(returned * records)
    for single in back.singles():
        dispatcher.put_back(RedeliveryGroup([single.with_history(FRESH._replace(failures=1))], 0.0), 0.0)
    state.ordering.add(rest)
    dispatcher.wake(state)
    kinds = []
    while (selection := dispatcher.select(Capacity(1 << 20, 1 << 20), 0.0)) is not None:
        kinds.append(selection.closed_by is ClosedBy.RETRY)
    assert kinds.count(True) == returned
    assert kinds.count(False) == fresh
    both = kinds[: 2 * min(fresh, returned)]
    assert all(one is not other for one, other in pairwise(both))

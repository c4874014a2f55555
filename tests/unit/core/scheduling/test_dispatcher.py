"""Which records go into the next batch."""

from collections.abc import Sequence

from sidecar.core.scheduling.dispatcher import Dispatcher
from sidecar.core.scheduling.selection import Batching, Capacity, Selection
from sidecar.core.state.lane import LaneState
from sidecar.core.state.record_slices import DeliveryHistory, RecordSlice, RedeliveryGroup, between
from sidecar.core.tracker import RecordTracker
from sidecar.model.records import Chunk, ClosedBy, Lane, Order, Run
from sidecar.settings import BatchSettings, Bytes, Seconds, WindowSettings
from tests.kit import WIDE, chunk, lane_state, places_of, positions_of

ANY = Capacity(1 << 30, 1 << 30)
FAILED = DeliveryHistory(failures=1)


class Setup:
    """A dispatcher, and lanes whose records arrive on call."""

    def __init__(
        self, *, records: int = 10, linger: float = 0.0, order: Order = Order.NONE, window: WindowSettings = WIDE
    ) -> None:
        batch = BatchSettings(records=records, bytes=Bytes(1 << 20), linger=Seconds(linger))
        self.tracker: RecordTracker[None] = RecordTracker(Dispatcher(Batching(batch), order), b"boot")
        self.dispatcher = self.tracker.dispatcher
        self._order = order
        self._window = window
        self._lanes: dict[Lane, LaneState] = {}

    def lane(self, number: int = 0, topic: str = "orders") -> LaneState:
        state = lane_state(number, topic=topic, order=self._order, window=self._window)
        return self._lanes.setdefault(state.lane, state)

    def arrive(
        self,
        state: LaneState,
        records: int,
        *,
        keys: Sequence[bytes | None] | None = None,
        sizes: Sequence[int] | None = None,
        now: float = 0.0,
    ) -> None:
        first = state.ledger.tracked
        arrived = chunk(range(first, first + records), lane=state.lane, keys=keys, sizes=sizes)
        for slice_ in state.track(arrived, now):
            state.ordering.add(slice_)
        self.dispatcher.wake(state)

    def select(self, capacity: Capacity = ANY, now: float = 0.0) -> Selection:
        selection = self.dispatcher.select(capacity, now)
        assert selection is not None
        return selection

    def settle(self, slices: Sequence[RecordSlice]) -> None:
        for slice_ in slices:
            slice_.lane.settle([slice_])
            self.dispatcher.wake(slice_.lane)

    def release(self, slices: Sequence[RecordSlice]) -> None:
        self.dispatcher.put_back(RedeliveryGroup([*slices], 0.0, first_lease=1), 0.0)

    def put_back(self, slices: Sequence[RecordSlice], *, due: float = 0.0, isolated: bool = False) -> RedeliveryGroup:
        group = RedeliveryGroup([slice_.with_history(FAILED) for slice_ in slices], due, isolated, first_lease=1)
        self.dispatcher.put_back(group, 0.0)
        return group


def test_a_batch_may_hold_several_lanes_of_one_topic() -> None:
    setup = Setup()
    setup.arrive(setup.lane(0), 3)
    setup.arrive(setup.lane(1), 4)
    selection = setup.select()
    assert len(places_of(selection.slices)) == 7
    assert selection.closed_by is ClosedBy.LINGER


def test_a_batch_never_holds_two_topics() -> None:
    setup = Setup()
    setup.arrive(setup.lane(0, "orders"), 3)
    setup.arrive(setup.lane(0, "refunds"), 3)
    topics = [{lane.topic for lane, _ in places_of(setup.select().slices)} for _ in range(2)]
    assert topics == [{"orders"}, {"refunds"}]


def test_with_order_lane_a_batch_holds_one_lane() -> None:
    setup = Setup(order=Order.LANE)
    setup.arrive(setup.lane(0), 3)
    setup.arrive(setup.lane(1), 3)
    assert [{slice_.lane.lane.number for slice_ in setup.select().slices} for _ in range(2)] == [{0}, {1}]


def test_a_batch_holds_no_more_records_than_the_settings_say() -> None:
    setup = Setup(records=4)
    setup.arrive(setup.lane(), 10)
    selection = setup.select()
    assert positions_of(selection.slices) == [0, 1, 2, 3]
    assert selection.closed_by is ClosedBy.RECORDS


def test_a_batch_holds_no_more_bytes_than_its_worker_takes() -> None:
    setup = Setup()
    setup.arrive(setup.lane(), 4, sizes=[100] * 4)
    selection = setup.select(Capacity(250, 250))
    assert positions_of(selection.slices) == [0, 1]
    assert selection.closed_by is ClosedBy.BYTES


def test_a_record_larger_than_a_batch_travels_alone() -> None:
    setup = Setup()
    setup.arrive(setup.lane(), 3, sizes=[1, 500, 1])
    assert [positions_of(setup.select(Capacity(200, 1_000)).slices) for _ in range(3)] == [[0], [1], [2]]


def test_a_record_that_a_worker_cannot_take_waits_for_another_worker() -> None:
    setup = Setup()
    setup.arrive(setup.lane(), 3, sizes=[500, 1, 1])
    assert positions_of(setup.select(Capacity(200, 200)).slices) == [1, 2]
    assert [positions_of(group.slices) for group in setup.tracker.hold_too_large()] == [[0]]
    assert positions_of(setup.select(Capacity(200, 1_000)).slices) == [0]


def test_a_backlogged_lane_does_not_starve_a_trickling_one() -> None:
    setup = Setup(records=5)
    setup.arrive(setup.lane(0), 1_000)
    setup.arrive(setup.lane(1), 1)
    setup.select()
    assert setup.lane(1).lane in {lane for lane, _ in places_of(setup.select().slices)}


def test_a_lane_that_found_no_room_beside_another_goes_next() -> None:
    setup = Setup()
    setup.arrive(setup.lane(0), 1, sizes=[100])
    setup.arrive(setup.lane(1), 1, sizes=[300])
    first = setup.select(Capacity(350, 1_000))
    assert {lane.number for lane, _ in places_of(first.slices)} == {0}
    assert first.closed_by is ClosedBy.BYTES
    assert {lane.number for lane, _ in places_of(setup.select(Capacity(350, 1_000)).slices)} == {1}


def test_returned_and_fresh_records_take_turns() -> None:
    setup = Setup(records=1)
    setup.arrive(setup.lane(), 6)
    for slices in [setup.select().slices for _ in range(3)]:
        setup.put_back(slices, isolated=True)
    assert [setup.select().closed_by for _ in range(6)] == [ClosedBy.RETRY, ClosedBy.RECORDS] * 3


def test_what_was_released_untried_looks_like_any_batch() -> None:
    setup = Setup(records=4)
    setup.arrive(setup.lane(), 6)
    for slices in [setup.select().slices for _ in range(2)]:
        setup.release(slices)
    assert [setup.select().closed_by for _ in range(2)] == [ClosedBy.RECORDS, ClosedBy.LINGER]


def test_what_was_released_together_with_what_failed_says_so() -> None:
    setup = Setup(records=4)
    setup.arrive(setup.lane(), 4)
    first, second = between(setup.select().slices, [Run(0, 2), Run(2, 4)])
    setup.release(first)
    setup.put_back(second)
    assert setup.select().closed_by is ClosedBy.RETRY


def test_a_returned_batch_that_is_kept_apart_travels_with_nothing_else() -> None:
    setup = Setup(records=6)
    setup.arrive(setup.lane(), 6)
    whole = setup.select().slices
    first, second, third = between(whole, [Run(0, 2), Run(2, 4), Run(4, 6)])
    setup.put_back(first, isolated=True)
    setup.put_back(second)
    setup.put_back(third, isolated=True)
    picks = [setup.select() for _ in range(3)]
    assert [(positions_of(selection.slices), selection.isolated) for selection in picks] == [
        ([0, 1], True),
        ([2, 3], False),
        ([4, 5], True),
    ]


def test_returned_records_that_need_not_be_apart_travel_together_in_order() -> None:
    setup = Setup(records=2)
    setup.arrive(setup.lane(), 4)
    first, second = setup.select().slices, setup.select().slices
    one, two = first[0].cut(1)
    for late in ([two], [one]):
        setup.put_back(late)
    assert positions_of(setup.select().slices) == [0, 1]
    assert positions_of(second) == [2, 3]


def test_a_returned_record_waits_for_earlier_ones_of_its_key() -> None:
    setup = Setup(order=Order.KEY)
    setup.arrive(setup.lane(), 3, keys=[b"a", b"a", b"b"])
    first, second, other = (single for slice_ in setup.select().slices for single in slice_.singles())
    setup.put_back([second, other])
    assert positions_of(setup.select().slices) == [2]
    assert setup.dispatcher.select(ANY, 0.0) is None
    setup.settle([first])
    assert positions_of(setup.select().slices) == [1]


def test_a_group_is_not_delivered_before_it_is_due() -> None:
    setup = Setup()
    setup.arrive(setup.lane(), 1)
    setup.put_back(setup.select().slices, due=5.0)
    assert setup.dispatcher.select(ANY, 4.0) is None
    assert positions_of(setup.select(now=5.0).slices) == [0]


def test_nothing_past_the_window_goes_until_the_window_moves() -> None:
    setup = Setup(window=WindowSettings(records=3, bytes=Bytes(1 << 30), span=1_000))
    setup.arrive(setup.lane(), 5)
    selection = setup.select()
    assert positions_of(selection.slices) == [0, 1, 2]
    assert setup.dispatcher.select(ANY, 0.0) is None
    setup.settle(selection.slices)
    setup.lane().window.commit(3)
    setup.dispatcher.wake(setup.lane())
    assert positions_of(setup.select().slices) == [3, 4]


def test_an_incomplete_batch_lingers_for_more_records() -> None:
    setup = Setup(records=10, linger=0.5)
    setup.arrive(setup.lane(0), 3, now=100.0)
    assert setup.dispatcher.select(ANY, 100.4) is None
    assert setup.dispatcher.linger_ends(100.4) == 100.5
    setup.arrive(setup.lane(1), 3, now=100.4)
    assert len(places_of(setup.select(now=100.5).slices)) == 6


def test_a_complete_batch_does_not_linger() -> None:
    setup = Setup(records=3, linger=0.5)
    setup.arrive(setup.lane(0), 2, now=100.0)
    setup.arrive(setup.lane(1), 1, now=100.0)
    assert setup.select(now=100.0).closed_by is ClosedBy.RECORDS


def test_a_worker_gets_no_more_records_than_it_asks_for() -> None:
    setup = Setup(records=10)
    setup.arrive(setup.lane(0), 3)
    setup.arrive(setup.lane(1), 2)
    two = ANY._replace(records=2)
    fresh = setup.select(two)
    assert (len(places_of(fresh.slices)), fresh.closed_by) == (2, ClosedBy.RECORDS)
    rest = setup.select(ANY)
    assert len(places_of(rest.slices)) == 3
    setup.put_back(fresh.slices)
    setup.put_back(rest.slices)
    assert [len(places_of(setup.select(two).slices)) for _ in range(3)] == [2, 2, 1]


def test_a_batch_that_is_all_a_worker_asks_for_does_not_linger() -> None:
    setup = Setup(records=10, linger=0.5)
    setup.arrive(setup.lane(0), 3, now=100.0)
    assert setup.select(ANY._replace(records=1), now=100.0).closed_by is ClosedBy.RECORDS
    assert setup.dispatcher.select(ANY, 100.0) is None


def test_records_of_a_topic_that_was_recreated_do_not_share_a_batch_with_parked_ones_of_the_old() -> None:
    setup = Setup()
    new, parked = setup.lane(0), lane_state(1, topic="retry", parked=True)
    new.topic_id = "new"
    chunks = [Chunk(parked.lane, [position], [b"x"], origin=new.lane, topic_id="old") for position in (0, 1)]
    old = [RecordSlice(parked, one, 0, 1, one.positions[0]) for one in chunks]
    setup.arrive(new, 1)
    fresh = setup.select().slices
    setup.put_back([*old, *fresh])
    assert [selection.slices[0].topic for selection in (setup.select(), setup.select())] == [
        ("orders", "old"),
        ("orders", "new"),
    ]


def test_a_probe_is_a_single_record_each_time_from_another_lane() -> None:
    setup = Setup()
    for number in range(3):
        setup.arrive(setup.lane(number), 5)
    probes = [setup.dispatcher.probe_fresh(ANY, 0.0) for _ in range(6)]
    places = [place for probe in probes if probe for place in places_of(probe.slices)]
    assert [lane.number for lane, _ in places] == [0, 1, 2, 0, 1, 2]


def test_a_record_that_may_kill_its_worker_is_selected_only_on_its_own() -> None:
    setup = Setup()
    setup.arrive(setup.lane(), 2)
    (slice_,) = setup.select().slices
    one, other = (single.with_history(DeliveryHistory(failures=2, worker_crashes=2)) for single in slice_.singles())
    for single in (one, other):
        setup.dispatcher.put_back(RedeliveryGroup([single], 0.0, isolated=True), 0.0)
    assert setup.dispatcher.select(ANY, 0.0) is None
    assert setup.dispatcher.has_suspect(0.0)
    suspect = setup.dispatcher.suspect(ANY, 0.0)
    assert suspect is not None
    assert positions_of(suspect.slices) == [0]


def test_nothing_of_a_lane_that_goes_is_delivered_any_more() -> None:
    setup = Setup(records=4)
    setup.arrive(setup.lane(0), 2)
    setup.arrive(setup.lane(1), 4)
    group = setup.put_back(setup.select().slices)
    assert setup.dispatcher.forget([setup.lane(1)]) == [group]
    assert places_of(setup.select().slices) == [(setup.lane(0).lane, 0), (setup.lane(0).lane, 1)]
    assert setup.dispatcher.idle(0.0)


def test_groups_of_a_lane_that_goes_are_not_kept_until_they_are_due() -> None:
    setup = Setup()
    setup.arrive(setup.lane(0), 10)
    for single in setup.select().slices[0].singles():
        setup.put_back([single], due=3600.0)
    setup.dispatcher.forget([setup.lane(0)])
    assert not setup.dispatcher._returned._later

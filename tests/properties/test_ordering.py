"""The orderings, against their one rule, checked record by record.

Records may be delivered if every earlier unsettled record of their key is delivered with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sidecar.core.state.ordering import make_ordering
from sidecar.core.state.record_slices import RecordSlice, sort_by_position
from sidecar.model.records import Order
from tests.kit import chunk, lane_state, positions_of

KEYS = [None, b"a", b"a", b"b"]


@dataclass
class Known:
    """A record in the model."""

    position: int
    key: object
    size: int
    out: bool = False
    settled: bool = False


class OrderingKeepsTheRule(RuleBasedStateMachine):
    @initialize(order=st.sampled_from([*Order, Order.KEY, Order.KEY]))
    def assign(self, order: Order) -> None:
        self.order = order
        self.ordering = make_ordering(order)
        self.state = lane_state()
        self.records: dict[int, Known] = {}
        #: all slices that are out, whether a worker has them or they wait
        self.out: list[RecordSlice] = []
        self.next_position = 0
        self.window = 0
        self.low = 0

    @rule(
        gaps=st.lists(st.integers(0, 2), min_size=1, max_size=6),
        keys=st.lists(st.sampled_from(KEYS), min_size=6, max_size=6),
        sizes=st.lists(st.integers(0, 60), min_size=6, max_size=6),
    )
    def records_arrive(self, gaps: list[int], keys: list[bytes | None], sizes: list[int]) -> None:
        positions = []
        for gap in gaps:
            positions.append(self.next_position + gap)
            self.next_position += gap + 1
        whole = chunk(positions, keys=keys[: len(gaps)], sizes=sizes[: len(gaps)])
        self.ordering.add(RecordSlice(self.state, whole, 0, len(positions), self.low))
        self.low = self.next_position
        for index, position in enumerate(positions):
            key = {Order.NONE: position, Order.LANE: "the lane", Order.KEY: keys[index]}[self.order]
            size = whole.size(index, index + 1)
            self.records[position] = Known(position, position if key is None else key, size)

    @rule(
        records=st.sampled_from([1, 2, 3, 8]),
        size=st.sampled_from([0, 60, 300, 1_000]),
        before=st.sampled_from([5, 20, 100]),
        force=st.booleans(),
    )
    def fresh_records_are_taken(self, records: int, size: int, before: int, force: bool) -> None:
        # A window only moves forward.
        self.window = before = max(self.window, before)
        available = self.ordering.available()
        slices = self.ordering.take(records, size, before, force=force)
        taken = [self.records[position] for position in positions_of(slices)]
        assert available or not taken
        assert [each.position for each in taken] == sorted(each.position for each in taken)
        assert all(not each.out and not each.settled and each.position < before for each in taken)
        self.assert_the_rule(taken)

        assert len(taken) <= records
        used = sum(each.size for each in taken)
        assert used <= size or (force and len(taken) == 1)
        for each in taken:
            each.out = True
        self.out += slices

        # Records are left only if the batch is complete, or the next one did not fit into it.
        if len(taken) < records:
            left = self.could_go(before, along_with=taken)
            room = size - used
            assert not left or any(each.size > room for each in self.fresh())
            assert not left or taken or not force

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def records_came_back(self, data: st.DataObject) -> None:
        """Asking changes nothing."""
        back = sort_by_position([slice_ for slice_ in self.pieces() if data.draw(st.booleans())])
        go, stay = self.ordering.eligible(back)
        goes = [self.records[position] for position in positions_of(go)]
        stays = [self.records[position] for position in positions_of(stay)]
        assert sorted(positions_of(back)) == sorted(each.position for each in goes + stays)
        self.assert_the_rule(goes)
        for each in stays:
            assert any(earlier not in goes for earlier in self.before(each)), "it waits for nobody"

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def records_are_settled(self, data: st.DataObject) -> None:
        pieces = self.pieces()
        settled = [piece for piece in pieces if data.draw(st.booleans())]
        self.ordering.leave(settled)
        for position in positions_of(settled):
            self.records[position].settled = True
        self.out = [piece for piece in pieces if piece not in settled]

    @rule(going=st.sampled_from([False] * 9 + [True]))
    def the_lane_is_about_to_go(self, going: bool) -> None:
        if going:
            self.ordering.clear()
            for position in [position for position, each in self.records.items() if not each.out]:
                del self.records[position]

    def pieces(self) -> list[RecordSlice]:
        """What is out, record by record."""
        return [single for slice_ in self.out for single in slice_.singles()]

    def before(self, record: Known) -> list[Known]:
        """Earlier unsettled records of its key."""
        return [
            each
            for each in self.records.values()
            if each.key == record.key and each.position < record.position and not each.settled
        ]

    def fresh(self) -> list[Known]:
        return [each for each in self.records.values() if not each.out and not each.settled]

    def could_go(self, before: int, along_with: Sequence[Known] = ()) -> list[Known]:
        """Fresh records that wait for no others than these."""
        return [
            each
            for each in self.fresh()
            if each.position < before and all(earlier in along_with for earlier in self.before(each))
        ]

    def assert_the_rule(self, together: list[Known]) -> None:
        for each in together:
            assert all(earlier in together for earlier in self.before(each)), f"{each} overtook another of its key"

    @invariant()
    def it_knows_how_much_is_fresh(self) -> None:
        fresh = self.fresh()
        assert self.ordering.fresh_records == len(fresh)
        assert self.ordering.fresh_bytes == sum(each.size for each in fresh)
        if not self.ordering.available():
            assert not self.could_go(1 << 40)
        first = self.ordering.first_position()
        assert first is None or not self.records[first].out


TestOrdering = OrderingKeepsTheRule.TestCase

"""Memory: each lane has its own part whatever the others do, and all together stay within the limit."""

import math

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sidecar.core.state.memory_limit import LaneUsage, MemoryLimit
from sidecar.settings import Bytes, MemorySettings


class MemoryIsSharedFairly(RuleBasedStateMachine):
    """The model is what each lane has in memory. A fetch returns what was requested, of lanes that are not full."""

    @initialize(
        records=st.integers(16, 400),
        poll=st.integers(1, 300),
        record_size=st.integers(1, 40),
        memory=st.integers(4, 40),
        lanes=st.integers(1, 6),
        retry_lanes=st.integers(0, 2),
    )
    def start(self, records: int, poll: int, record_size: int, memory: int, lanes: int, retry_lanes: int) -> None:
        """All records have one size, so that a limit of bytes limits records too."""
        self.record_size = record_size
        self.limits = (records, max(16, memory * records * record_size // 20))
        settings = MemorySettings(
            records=records, bytes=Bytes(self.limits[1]), poll_records=poll, poll_bytes=Bytes(poll * 10)
        )
        self.memory = MemoryLimit(settings)
        self.held = dict.fromkeys(range(lanes + retry_lanes), 0)
        self.waits_only = set(range(lanes, lanes + retry_lanes))
        self.fetch = self.memory.next_fetch(0, 0)
        self.full: set[object] = set()

    @rule(data=st.data())
    def a_fetch(self, data: st.DataObject) -> None:
        self.regulate()
        free = [lane for lane in self.held if lane not in self.full]
        total = sum(self.held.values())
        records, size = self.memory.next_fetch(total, total * self.record_size)
        most = max(1, min(records, size // self.record_size))
        for _ in range(3):
            if free and most:
                given_ = data.draw(st.integers(0, most), "records")
                self.held[data.draw(st.sampled_from(free), "lane")] += given_
                most -= given_

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data(), share=st.floats(0.0, 1.0))
    def some_are_settled(self, data: st.DataObject, share: float) -> None:
        lane = data.draw(st.sampled_from([*self.held]))
        self.held[lane] -= round(self.held[lane] * share)

    def regulate(self) -> None:
        before = self.full
        self.full = self.memory.full(
            LaneUsage(lane, held, held * self.record_size, lane in self.waits_only) for lane, held in self.held.items()
        )
        for lane, held in self.held.items():
            shares = self.shares(held)
            if lane in self.full:
                assert any(share >= 1.0 for share in shares) or (
                    lane in before and any(share > 0.8 for share in shares)
                ), "a lane that has not used its own part is full"
            elif lane in self.waits_only:
                assert all(share < 1.0 for share in shares), "a retry lane takes more than its own part"

    def shares(self, held: int) -> list[float]:
        """How much of its own part a lane uses, in records and in bytes."""
        lanes = len(self.held)
        return [
            held / (self.limits[0] / 2 / lanes),
            held * self.record_size / (self.limits[1] / 2 / lanes),
        ]

    @invariant()
    def looking_twice_changes_nothing(self) -> None:
        """Otherwise lanes would be paused and resumed forever."""
        self.regulate()
        once = self.full
        self.regulate()
        assert self.full == once

    @invariant()
    def all_together_stay_within_the_limit(self) -> None:
        """Except for the fetches that filled lanes, and the one record that is always requested."""
        total = sum(self.held.values())
        beyond = len(self.held) if len(self.held) > 1 else 0
        assert total <= self.limits[0] + beyond * self.fetch[0]
        one = self.record_size
        assert total * one <= self.limits[1] + beyond * max(one, self.fetch[1]) + one


TestMemory = MemoryIsSharedFairly.TestCase


@given(
    records=st.integers(16, 5_000),
    poll=st.integers(1, 5_000),
    lanes=st.integers(2, 20),
)
def test_a_lane_whose_records_are_never_settled_leaves_the_others_their_part(
    records: int, poll: int, lanes: int
) -> None:
    memory = MemoryLimit(MemorySettings(records=records, poll_records=poll))
    slow = 0
    while 0 not in memory.full(LaneUsage(lane, 0 if lane else slow, 0, False) for lane in range(lanes)):
        slow += memory.next_fetch(slow, 0)[0]
    own = records / 2 / lanes
    assert slow <= own + records / 2
    assert slow > own + records / 2 * 0.8 - memory.next_fetch(0, 0)[0], "the common part is not used"
    # The others are not full while they have less than their own part, and there is room for it.
    theirs = max(0, math.ceil(own) - 1)
    assert memory.full(LaneUsage(lane, theirs if lane else slow, 0, False) for lane in range(lanes)) == {0}
    assert slow + theirs * (lanes - 1) < records


@given(records=st.integers(0, 10_000), size=st.integers(0, 1 << 30))
def test_a_fetch_always_asks_for_something(records: int, size: int) -> None:
    most_records, most_bytes = MemoryLimit(MemorySettings(records=100, bytes=Bytes(1 << 20))).next_fetch(records, size)
    assert most_records >= 1
    assert most_bytes >= 1

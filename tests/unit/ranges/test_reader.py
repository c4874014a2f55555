"""Reading ranges of a lane that changes meanwhile, with a scripted broker."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest

from sidecar.brokers.base import LaneEnd
from sidecar.model.clock import Clock
from sidecar.model.errors import Removed
from sidecar.model.records import Chunk, Lane, Run
from sidecar.ranges.reader import LogReader
from sidecar.settings import SubscriptionSettings
from tests.memory_broker import MemoryBroker

LANE = Lane("orders", 0)
SETTINGS = SubscriptionSettings(name="orders", topics=("orders",))
RUN = Run(0, 100)


class Told(Clock):
    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time


class Changing(MemoryBroker):
    """Returns these chunks, each after ten seconds. `becomes` has the ends of the lane, by the number of chunks that
    were returned before."""

    def __init__(self, chunks: Sequence[Sequence[int]], becomes: Mapping[int, LaneEnd]) -> None:
        super().__init__()
        self.clock = Told()
        self.looks = 0
        self._chunks = chunks
        self._becomes = becomes
        self._given = 0

    async def lane_ends(self, topic: str) -> Mapping[Lane, LaneEnd]:
        self.looks += 1
        return {LANE: self._becomes[max(at for at in self._becomes if at <= self._given)]}

    async def read(self, lane: Lane, run: Run, max_bytes: int) -> AsyncIterator[Chunk]:
        for positions in self._chunks:
            self.clock.time += 10.0
            self._given += 1
            yield Chunk(lane, positions, [b"x"] * len(positions))


def read(broker: Changing, run: Run = RUN) -> int:
    """The number of records that were read."""

    async def body() -> int:
        reading = LogReader(SETTINGS, broker, broker.clock)
        end = await reading.bounds(LANE, run)
        return sum([len(chunk.frames) async for chunk in reading.read(LANE, run, end, 1 << 20)])

    return asyncio.run(body())


def test_a_gap_that_retention_passes_after_it_was_read_is_no_loss() -> None:
    chunks = [range(10), range(11, 50), range(51, 90), range(90, 100)]
    assert read(Changing(chunks, {0: LaneEnd(0, 100), 3: LaneEnd(50, 100), 4: LaneEnd(60, 100)})) == 98


def test_a_removal_during_a_read_is_reported_also_within_a_chunk() -> None:
    broker = Changing([[*range(20), *range(70, 90)], range(90, 100)], {0: LaneEnd(0, 100), 1: LaneEnd(70, 100)})
    with pytest.raises(Removed, match="removed 20 to 69"):
        read(broker)


def test_a_chunk_with_gaps_of_which_nothing_was_removed_is_no_loss() -> None:
    chunks = [[0, 1, 5, 6, 9], [12, *range(20, 60)], range(60, 100)]
    assert read(Changing(chunks, {0: LaneEnd(0, 100), 3: LaneEnd(50, 100)})) == 86


def test_a_removal_during_a_read_is_reported_where_it_is_met() -> None:
    broker = Changing([range(10), range(11, 20), range(70, 100)], {0: LaneEnd(0, 100), 3: LaneEnd(70, 100)})
    with pytest.raises(Removed, match="removed 20 to 69") as caught:
        read(broker)
    assert (caught.value.start, caught.value.end) == (70, 100)


@pytest.mark.parametrize("run", [RUN, Run(0, 50), Run(0, 500)])
def test_a_lane_that_becomes_shorter_as_it_is_read_is_not_taken_for_read_to_its_end(run: Run) -> None:
    broker = Changing([range(40)], {0: LaneEnd(0, 100), 1: LaneEnd(0, 40)})
    with pytest.raises(Removed, match=f"ends at 40 now, and was to be read to {min(run.stop, 100) - 1}") as caught:
        read(broker, run)
    assert (caught.value.start, caught.value.end) == (0, 40)


def test_gaps_that_follow_fast_are_looked_at_together() -> None:
    # As in a topic where every transaction has one record: each chunk begins after a gap.
    broker = Changing([[at] for at in range(0, 100, 2)], {0: LaneEnd(0, 100)})
    broker.clock.now = lambda: 7.0  # type: ignore[method-assign]
    assert read(broker) == 50
    assert broker.looks == 3, "for the bounds, at the first gap, and at the end"


def test_a_lane_without_gaps_is_not_looked_at_while_it_is_read() -> None:
    broker = Changing([range(at, at + 10) for at in range(0, 100, 10)], {0: LaneEnd(0, 100)})
    assert read(broker) == 100
    assert broker.looks == 1


class Sparse(MemoryBroker):
    """A lane with one record of 1000 bytes, and one with none."""

    def __init__(self, position: int) -> None:
        super().__init__()
        self._position = position

    async def read(self, lane: Lane, run: Run, max_bytes: int) -> AsyncIterator[Chunk]:
        if lane == LANE and run.start <= self._position < run.stop:
            yield Chunk(lane, [self._position], [bytes(1000)])


def test_the_size_of_records_is_learned_where_there_are_any() -> None:
    # After the gap of a compaction or of a long aborted transaction.
    bare = Lane("orders", 1)
    reading = LogReader(SETTINGS, Sparse(50_000), Told())
    sizes = asyncio.run(reading.sizes({bare: Run(0, 100_000), LANE: Run(0, 100_000)}))
    assert sizes == {bare: 1000, LANE: 1000}

"""Random histories of publishing, polling, committing, seeking, retention and restarts, against a naive model."""

import asyncio
import os
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from sidecar.brokers.base import AtPosition, AtTime, Broker, SeekTarget, SeekTo, Source, SourceSpec
from sidecar.brokers.local import LocalBroker, LocalOptions
from sidecar.model.records import Assigned, Commit, Lane, Message, Run
from sidecar.model.run_set import RunSet
from sidecar.model.wire import decode_frame
from sidecar.settings import Bytes, Seconds
from tests.brokers.local.harness import MINUTE_MS, SetClock
from tests.memory_broker import MemoryBroker

T = TypeVar("T")

LONG = bool(os.environ.get("OFFRAMP_TEST_LONG"))
SETTINGS = settings(
    max_examples=500 if LONG else 50,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)

LANES = [Lane("topic", number) for number in range(3)]
GROUPS = ["one", "two"]

lanes = st.sampled_from(LANES)
groups = st.sampled_from(GROUPS)
#: runs in percent of what was delivered
runs = st.lists(st.integers(1, 100), unique=True, max_size=8).map(
    lambda edges: [Run(*pair) for pair in zip(*[iter(sorted(edges))] * 2, strict=False)]
)


@dataclass
class Progress:
    """How far a group is in a lane."""

    commit: Commit = field(default_factory=lambda: Commit(0))
    #: the next position that may be delivered
    next: int = 0
    #: settled before the source was opened: need not be delivered
    settled: tuple[Run, ...] = ()
    paused: bool = False

    def reopen(self) -> None:
        self.next, self.settled, self.paused = self.commit.position, self.commit.beyond, False


class History(RuleBasedStateMachine):
    """The model keeps every value of a lane, and the `Progress` of every group in it."""

    broker: Broker
    clock: SetClock

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.values: dict[Lane, list[bytes]] = {lane: [] for lane in LANES}
        self.stamps: dict[Lane, list[int]] = {lane: [] for lane in LANES}
        self.starts: dict[Lane, int] = dict.fromkeys(LANES, 0)
        self.progress = {group: {lane: Progress() for lane in LANES} for group in GROUPS}
        self.sources: dict[str, Source] = {}

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    async def open_broker(self) -> None:
        raise NotImplementedError

    async def restart_broker(self) -> None:
        raise NotImplementedError

    @initialize()
    def start(self) -> None:
        async def body() -> None:
            await self.open_broker()
            await self.broker.ensure_topic("topic", len(LANES))

        self.run(body())
        for lane in LANES:
            self.publish(lane, [10] * 20, late=False)
        for group in GROUPS:
            self.open(group)

    def open(self, group: str) -> None:
        source = self.broker.subscribe(SourceSpec(group, ("topic",)))
        self.run(source.open())
        self.sources[group] = source
        for progress in self.progress[group].values():
            progress.reopen()
        # Takes the assignments while they agree with the last commit.
        self.poll(group, 1, 1)

    @rule(lane=lanes, sizes=st.lists(st.integers(0, 30_000) | st.integers(0, 50), max_size=30), late=st.booleans())
    def publish(self, lane: Lane, sizes: list[int], late: bool) -> None:
        self.clock.ms += 1
        stamp = self.clock.ms - (500 if late else 0)
        values = [b"%d:" % (len(self.values[lane]) + at) + bytes(size) for at, size in enumerate(sizes)]
        messages = [Message(None, value, lane=lane.number, timestamp_ms=stamp) for value in values]
        places = self.run(self.broker.publish("topic", messages))
        first = len(self.values[lane])
        assert [place.position for place in places] == list(range(first, first + len(values)))
        self.values[lane] += values
        self.stamps[lane] += [stamp] * len(values)

    @rule(group=groups, max_records=st.integers(1, 100), max_bytes=st.integers(1, 200_000))
    def poll(self, group: str, max_records: int, max_bytes: int) -> None:
        polled = self.run(self.sources[group].poll(max_records, max_bytes, 0.0))
        self.check_events(group, polled.events)
        for chunk in polled.chunks:
            progress = self.progress[group][chunk.lane]
            assert not progress.paused
            for position, frame in zip(chunk.positions, chunk.frames, strict=True):
                skipped = range(progress.next, position)
                assert all(any(a <= p < b for a, b in progress.settled) for p in skipped), "a record was skipped"
                record = decode_frame(frame)
                assert (record.position, record.lane) == (position, chunk.lane.number)
                assert record.value == self.values[chunk.lane][position]
                assert record.timestamp_ms == self.stamps[chunk.lane][position]
                progress.next = position + 1
        sizes = [len(frame) for chunk in polled.chunks for frame in chunk.frames]
        assert len(sizes) <= max_records
        assert sum(sizes) <= max_bytes or len(sizes) == 1

    def check_events(self, group: str, events: Any) -> None:
        for event in events:
            progress = self.progress[group][event.lane]
            if isinstance(event, Assigned):
                assert (event.start, event.settled) == (progress.commit.position, progress.commit.beyond)
            else:
                pytest.fail(f"retention removed what was not settled: {event}")

    @rule(group=groups, lane=lanes, percent=st.integers(0, 100), beyond=runs)
    def commit(self, group: str, lane: Lane, percent: int, beyond: list[Run]) -> None:
        progress, start = self.progress[group][lane], self.starts[lane]
        position = start + percent * (progress.next - start) // 100
        rest = max(0, progress.next - position - 1)
        # Scaled runs may touch; those of a commit never do.
        scaled = RunSet(Run(*(position + 1 + edge * rest // 100 for edge in run)) for run in beyond)
        commit = Commit(position, tuple(iter(scaled)))
        self.run(self.sources[group].commit({lane: commit}))
        progress.commit = commit

    @rule(group=groups, lane=lanes, to=st.sampled_from(["start", "end", "position", "time"]), at=st.floats(0, 1.1))
    def seek(self, group: str, lane: Lane, to: str, at: float) -> None:
        start, end, stamps = self.starts[lane], len(self.values[lane]), self.stamps[lane]
        wanted: SeekTarget
        if to == "position":
            wanted, expected = AtPosition(int(at * end)), max(start, min(int(at * end), end))
        elif to == "time":
            moment = stamps[min(int(at * end), end - 1)] if stamps else self.clock.ms
            later = (p for p in range(start, end) if stamps[p] >= moment)
            wanted, expected = AtTime(moment), next(later, end)
        else:
            wanted, expected = (SeekTo.START, start) if to == "start" else (SeekTo.END, end)
        source, progress = self.sources[group], self.progress[group][lane]
        # Takes events from before the seek first.
        self.poll(group, 1, 1)
        assert self.run(source.seek({lane: wanted})) == {lane: expected}
        progress.commit = Commit(expected)
        progress.next, progress.settled = expected, ()
        self.poll(group, 1, 1)

    @rule(group=groups, lane=lanes)
    def pause(self, group: str, lane: Lane) -> None:
        self.run(self.sources[group].pause([lane]))
        self.progress[group][lane].paused = True

    @rule(group=groups, lane=lanes)
    def resume(self, group: str, lane: Lane) -> None:
        self.run(self.sources[group].resume([lane]))
        self.progress[group][lane].paused = False

    @rule(group=groups)
    def nothing_is_left_behind(self, group: str) -> None:
        """Everything arrives, if nothing is paused and there are enough polls."""
        for lane in LANES:
            self.resume(group, lane)
        for _ in range(2000):
            before = [progress.next for progress in self.progress[group].values()]
            self.poll(group, 50, 200_000)
            if before == [progress.next for progress in self.progress[group].values()]:
                break
        for lane, progress in self.progress[group].items():
            rest = range(progress.next, len(self.values[lane]))
            assert all(any(a <= p < b for a, b in progress.settled) for p in rest)

    @rule()
    def check_lane_ends(self) -> None:
        ends = self.run(self.broker.lane_ends("topic"))
        assert {lane: (end.start, end.end) for lane, end in ends.items()} == {
            lane: (self.starts[lane], len(self.values[lane])) for lane in LANES
        }

    @rule()
    def restart(self) -> None:
        async def body() -> None:
            for source in self.sources.values():
                await source.close()
            await self.restart_broker()

        self.run(body())
        for group in GROUPS:
            self.open(group)

    def teardown(self) -> None:
        async def body() -> None:
            for source in self.sources.values():
                await source.close()
            await self.broker.close()

        if self.sources:
            self.run(body())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


class MemoryHistory(History):
    async def open_broker(self) -> None:
        self.clock = SetClock()
        self.broker = MemoryBroker()

    async def restart_broker(self) -> None:
        """A restart keeps its memory."""


class LocalHistory(History):
    broker: LocalBroker

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = SetClock()

    async def open_broker(self) -> None:
        options = LocalOptions(
            directory=self.folder.name,
            reserve_bytes=Bytes(1 << 20),
            retention_age=Seconds(600.0),
            retention_bytes=Bytes(0),
        )
        self.broker = LocalBroker(options, self.clock)
        await self.broker.open()

    async def restart_broker(self) -> None:
        await self.broker.close()
        await self.open_broker()

    @rule(minutes=st.integers(0, 20))
    def run_retention(self, minutes: int) -> None:
        self.clock.ms += minutes * MINUTE_MS
        self.run(self.broker.run_retention())
        ends = self.run(self.broker.lane_ends("topic"))
        for lane in LANES:
            settled = min(self.progress[group][lane].commit.position for group in GROUPS)
            assert self.starts[lane] <= ends[lane].start <= max(settled, self.starts[lane])
            self.starts[lane] = ends[lane].start

    @precondition(lambda self: any(self.values.values()))
    @rule(lane=lanes, share=st.floats(0, 1), length=st.integers(0, 100), max_bytes=st.integers(1, 100_000))
    def read(self, lane: Lane, share: float, length: int, max_bytes: int) -> None:
        run = Run(int(share * len(self.values[lane])), int(share * len(self.values[lane])) + length)

        async def body() -> list[bytes | None]:
            chunks = [chunk async for chunk in self.broker.read(lane, run, max_bytes)]
            return [decode_frame(frame).value for chunk in chunks for frame in chunk.frames]

        assert self.run(body()) == self.values[lane][max(run.start, self.starts[lane]) : run.stop]

    def teardown(self) -> None:
        super().teardown()
        assert Path(self.folder.name, "offramp.db").exists()
        self.folder.cleanup()


def test_histories_of_the_embedded_broker() -> None:
    run_state_machine_as_test(LocalHistory, settings=SETTINGS)


def test_histories_of_the_broker_in_memory() -> None:
    run_state_machine_as_test(MemoryHistory, settings=SETTINGS)

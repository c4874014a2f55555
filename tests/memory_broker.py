"""A broker in memory, for tests: the whole adapter contract, and nothing survives the process."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar
from zlib import crc32

from sidecar.brokers.base import (
    AtPosition,
    AtTime,
    Broker,
    BrokerOptions,
    LaneEnd,
    LaneEvent,
    Polled,
    SeekTarget,
    SeekTo,
    Source,
    SourceSpec,
    Traits,
)
from sidecar.brokers.fencing import Attached, check_token, next_token
from sidecar.brokers.range_cursor import Cursor, GroupState
from sidecar.model.errors import LaneGone, NotFound, Refused
from sidecar.model.records import Assigned, Chunk, Commit, Lane, Message, Place, Run, Start
from sidecar.model.wire import encode_frame
from sidecar.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOptions(BrokerOptions):
    """Everything that is published is kept in memory, and is lost when the sidecar stops."""

    traits: ClassVar[Traits] = Traits(
        keeps_acks_beyond=True,
        keeps_reach=True,
        rebalances=False,
        lanes_are_exclusive=True,
        seeks=True,
        reads_ranges=True,
        creates_topics=True,
    )

    lanes: int = setting("Lanes of a topic that is created on the fly.", 4, at_least=1, at_most=1024)


@dataclass(slots=True, eq=False)
class MemoryLane:
    lane: Lane
    frames: list[bytes] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)

    def append(self, message: Message) -> Place:
        position = len(self.frames)
        timestamp = message.timestamp_ms if message.timestamp_ms > 0 else time.time_ns() // 1_000_000
        number = self.lane.number
        self.frames.append(encode_frame(message.key, message.value, message.headers, number, position, timestamp))
        self.timestamps.append(timestamp)
        return Place(number, position)

    def cut(self, run: Run, max_bytes: int, *, at_least: int) -> Chunk:
        """The first records of the run: as many as fit, but at least `at_least`."""
        frames: list[bytes] = []
        size = 0
        for frame in self.frames[run.start : run.stop]:
            size += len(frame)
            if size > max_bytes and len(frames) >= at_least:
                break
            frames.append(frame)
        return Chunk(self.lane, range(run.start, run.start + len(frames)), frames)

    def resolve(self, target: SeekTarget) -> int:
        end = len(self.frames)
        match target:
            case SeekTo.START:
                return 0
            case SeekTo.END:
                return end
            case AtPosition(position):
                return max(0, min(position, end))
            case AtTime(timestamp_ms):
                return next((at for at, stamp in enumerate(self.timestamps) if stamp >= timestamp_ms), end)


@dataclass(slots=True, eq=False)
class Reading:
    """How far a source is in a lane."""

    lane: MemoryLane
    next: int
    paused: bool = False

    @property
    def backlog(self) -> int:
        return 0 if self.paused else len(self.lane.frames) - self.next


class MemorySource(Source):
    def __init__(self, broker: "MemoryBroker", spec: SourceSpec) -> None:
        self.spec = spec
        self.topics = frozenset((*spec.topics, *spec.own_topics))
        self.readings: dict[Lane, Reading] = {}
        self._broker = broker
        self._events: list[LaneEvent] = []
        self._turn = 0
        self._wake = asyncio.Event()

    async def open(self) -> None:
        self._broker.enter(self)
        for topic in self.topics:
            lanes = self._broker.ensure(topic, self.spec.own_topics.get(topic))
            known = any((self.spec.group, lane.lane) in self._broker.cursors for lane in lanes)
            latest = self.spec.start is Start.LATEST and topic not in self.spec.own_topics and not known
            for lane in lanes:
                self.assign(lane, len(lane.frames) if latest else 0)

    def assign(self, lane: MemoryLane, start: int = 0) -> None:
        """Consumes a lane from the position of the group in it, or from `start`."""
        first = (self.spec.group, lane.lane) not in self._broker.cursors
        commit = self._broker.cursors.setdefault((self.spec.group, lane.lane), Commit(start))
        self.readings[lane.lane] = Reading(lane, commit.position)
        self.tell(Assigned(lane.lane, commit.position, commit.beyond, first, reach=commit.reach))

    def tell(self, event: LaneEvent) -> None:
        self._events.append(event)
        self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    async def poll(self, max_records: int, max_bytes: int, timeout: float) -> Polled:
        try:
            async with asyncio.timeout(timeout):
                while not self._events and not self._ready():
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            pass
        # No `await` from here on, so that what is taken is returned.
        events, self._events = self._events, []
        return Polled(self._take(max_records, max_bytes), events)

    async def commit(self, commits: Mapping[Lane, Commit]) -> None:
        for lane, commit in commits.items():
            if lane in self.readings:
                self._broker.cursors[self.spec.group, lane] = commit
        gone = commits.keys() - self.readings.keys()
        if gone:
            raise LaneGone(gone)

    async def release(self, lanes: Collection[Lane]) -> None:
        """Lanes of this broker never move away."""

    async def pause(self, lanes: Collection[Lane]) -> None:
        for lane in lanes & self.readings.keys():
            self.readings[lane].paused = True

    async def resume(self, lanes: Collection[Lane]) -> None:
        for lane in lanes & self.readings.keys():
            self.readings[lane].paused = False
        self._wake.set()

    async def seek(self, lanes: Mapping[Lane, SeekTarget]) -> Mapping[Lane, int]:
        unknown = [str(lane) for lane in lanes if lane not in self.readings]
        if unknown:
            raise NotFound(f"Group {self.spec.group!r} has no lane {', '.join(unknown)}.")
        positions = {lane: self.readings[lane].lane.resolve(target) for lane, target in lanes.items()}
        for lane, position in positions.items():
            self.readings[lane].next = position
            self._broker.cursors[self.spec.group, lane] = Commit(position)
            self.tell(Assigned(lane, position))
        return positions

    async def ends(self) -> Mapping[Lane, LaneEnd]:
        return {lane: LaneEnd(0, len(reading.lane.frames)) for lane, reading in self.readings.items()}

    async def close(self) -> None:
        self.readings.clear()
        self._broker.exit(self)

    def _ready(self) -> list[Reading]:
        return [reading for reading in self.readings.values() if reading.backlog > 0]

    def _take(self, max_records: int, max_bytes: int) -> list[Chunk]:
        """Takes from each lane its share, beginning with another lane each time."""
        ready = self._ready()
        self._turn += 1
        turn = self._turn % len(ready) if ready else 0
        ready = ready[turn:] + ready[:turn]
        chunks: list[Chunk] = []
        for index, reading in enumerate(ready):
            share = max(1, max_records // (len(ready) - index))
            if not max_records:
                break
            run = Run(reading.next, reading.next + share)
            chunk = reading.lane.cut(run, max_bytes // (len(ready) - index), at_least=0 if chunks else 1)
            if chunk.frames:
                chunks.append(chunk)
                reading.next += len(chunk.frames)
                max_records -= len(chunk.frames)
                max_bytes -= chunk.ends[-1]
        return chunks


class MemoryCursor(Cursor):
    def __init__(self, broker: "MemoryBroker", spec: SourceSpec) -> None:
        self._broker = broker
        self._spec = spec

    async def open(self) -> None:
        for topic in self._spec.topics:
            self._broker.ensure(topic)

    async def lanes(self) -> Mapping[Lane, LaneEnd]:
        return {lane: end for topic in self._spec.topics for lane, end in (await self._broker.lane_ends(topic)).items()}

    async def fetch_state(self) -> GroupState:
        group, topics = self._spec.group, self._spec.topics
        cursors = self._broker.cursors.items()
        positions = {lane: one.position for (name, lane), one in cursors if name == group and lane.topic in topics}
        return GroupState(positions, self._broker.readers.get(group))

    async def attach(self, reader: str, now_ms: int) -> Attached:
        self._broker.check_unconsumed(self._spec)
        before = self._broker.readers.get(self._spec.group)
        attached = Attached(next_token(before.token if before else 0, now_ms), reader, now_ms)
        self._broker.readers[self._spec.group] = attached
        return attached

    async def pin(self, token: int, positions: Mapping[Lane, int]) -> None:
        self._check(token)
        for lane, position in positions.items():
            self._broker.cursors.setdefault((self._spec.group, lane), Commit(position))

    async def commit(self, token: int, positions: Mapping[Lane, int]) -> None:
        self._check(token)
        for lane, position in positions.items():
            before = self._broker.cursors.get((self._spec.group, lane))
            if before is None or before.position < position:
                self._broker.cursors[self._spec.group, lane] = Commit(position)

    async def move(self, positions: Mapping[Lane, int]) -> None:
        self._broker.check_unconsumed(self._spec)
        for lane, position in positions.items():
            self._broker.cursors[self._spec.group, lane] = Commit(position)

    async def close(self) -> None:
        """There is nothing to close."""

    def _check(self, token: int) -> None:
        self._broker.check_unconsumed(self._spec)
        check_token(token, self._broker.readers.get(self._spec.group), exact=True)


class MemoryBroker(Broker):
    traits = MemoryOptions.traits

    def __init__(self, options: MemoryOptions | None = None) -> None:
        self.facts = {"durability": "none: everything is gone when the sidecar stops"}
        #: by group and lane
        self.cursors: dict[tuple[str, Lane], Commit] = {}
        #: by group
        self.readers: dict[str, Attached] = {}
        self._options = options or MemoryOptions()
        self._topics: dict[str, list[MemoryLane]] = {}
        self._turns: dict[str, int] = {}
        self._sources: list[MemorySource] = []

    async def open(self) -> None:
        """There is nothing to open."""

    def subscribe(self, spec: SourceSpec) -> MemorySource:
        return MemorySource(self, spec)

    def cursor(self, spec: SourceSpec) -> MemoryCursor:
        return MemoryCursor(self, spec)

    async def publish(self, topic: str, messages: Sequence[Message]) -> Sequence[Place]:
        lanes = self.ensure(topic)
        numbers = [self._number(topic, message, len(lanes)) for message in messages]
        places = [lanes[number].append(message) for number, message in zip(numbers, messages, strict=True)]
        for source in self._sources:
            if topic in source.topics:
                source.wake()
        return places

    async def ensure_topic(self, topic: str, lanes: int) -> None:
        self.ensure(topic, lanes)

    async def lane_ends(self, topic: str) -> Mapping[Lane, LaneEnd]:
        if topic not in self._topics:
            raise NotFound(f"There is no topic {topic!r}.")
        return {lane.lane: LaneEnd(0, len(lane.frames)) for lane in self._topics[topic]}

    async def read(self, lane: Lane, run: Run, max_bytes: int) -> AsyncIterator[Chunk]:
        found = self.lane(lane)
        position, stop = max(0, run.start), min(run.stop, len(found.frames))
        while position < stop:
            chunk = found.cut(Run(position, stop), max_bytes, at_least=1)
            position += len(chunk.frames)
            yield chunk

    async def locate(self, topic: str, target: SeekTarget) -> Mapping[Lane, int]:
        return {lane: self.lane(lane).resolve(target) for lane in await self.lane_ends(topic)}

    async def close(self) -> None:
        """There is nothing to close."""

    def check_unconsumed(self, spec: SourceSpec) -> None:
        """Raises `Refused` if a source consumes the group."""
        if any(source.spec.group == spec.group and source.topics & set(spec.topics) for source in self._sources):
            raise Refused(f"Group {spec.group!r} is consumed by leases: it cannot be read by ranges at the same time.")

    def ensure(self, topic: str, lanes: int | None = None) -> list[MemoryLane]:
        """The lanes of a topic, which is created if it is missing."""
        if topic not in self._topics:
            if not topic:
                raise Refused("A topic needs a name.")
            numbers = range(lanes or self._options.lanes)
            self._topics[topic] = [MemoryLane(Lane(topic, number)) for number in numbers]
        return self._topics[topic]

    def lane(self, lane: Lane) -> MemoryLane:
        """Raises `NotFound`."""
        lanes = self._topics.get(lane.topic, [])
        if not 0 <= lane.number < len(lanes):
            raise NotFound(f"There is no lane {lane}.")
        return lanes[lane.number]

    def enter(self, source: MemorySource) -> None:
        """Raises `Refused` if the group consumes one of the topics already."""
        for other in self._sources:
            if other.spec.group == source.spec.group and other.topics & source.topics:
                raise Refused(f"Group {source.spec.group!r} consumes these topics already.")
        self._sources.append(source)

    def exit(self, source: MemorySource) -> None:
        if source in self._sources:
            self._sources.remove(source)

    def _number(self, topic: str, message: Message, lanes: int) -> int:
        if message.lane is not None:
            if not 0 <= message.lane < lanes:
                raise Refused(f"Topic {topic!r} has no lane {message.lane}: it has {lanes}, counted from 0.")
            return message.lane
        if message.key is not None:
            return crc32(message.key) % lanes
        self._turns[topic] = self._turns.get(topic, -1) + 1
        return self._turns[topic] % lanes

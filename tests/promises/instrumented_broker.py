"""A broker that records what is asked of it, and fails when a test says so."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence

from sidecar.brokers.base import Broker, LaneEnd, Polled, SeekTarget, Source, SourceSpec
from sidecar.model.errors import BrokerError
from sidecar.model.records import Chunk, Commit, Lane, Message, Place, Run
from tests.promises.adjustable_time import hold_time
from tests.promises.audit import Audit


class InstrumentedBroker(Broker):
    """Passes everything to the broker behind it, unless a test injected a fault."""

    def __init__(self, inner: Broker, audit: Audit) -> None:
        self.traits = inner.traits
        self.facts = inner.facts
        self.inner = inner
        self.audit = audit
        #: by topic, the error that publishing to it raises
        self.publish_faults: dict[str, BrokerError] = {}
        #: the error that every commit raises
        self.commit_fault: BrokerError | None = None
        #: failed publishes by topic
        self.failed_publishes: dict[str, int] = defaultdict(int)
        self.failed_commits = 0
        #: the newest commit of each lane that the broker has
        self.committed: dict[Lane, Commit] = {}
        self.sources: list[InstrumentedSource] = []

    async def open(self) -> None:
        await self.inner.open()

    def subscribe(self, spec: SourceSpec) -> "InstrumentedSource":
        source = InstrumentedSource(self, self.inner.subscribe(spec))
        self.sources.append(source)
        return source

    async def publish(self, topic: str, messages: Sequence[Message]) -> Sequence[Place]:
        if topic in self.publish_faults:
            self.failed_publishes[topic] += 1
            raise self.publish_faults[topic]
        with hold_time():
            places = await self.inner.publish(topic, messages)
        self.audit.record_published(topic, messages, places)
        return places

    async def ensure_topic(self, topic: str, lanes: int) -> None:
        with hold_time():
            await self.inner.ensure_topic(topic, lanes)

    async def lane_ends(self, topic: str) -> Mapping[Lane, LaneEnd]:
        return await self.inner.lane_ends(topic)

    def read(self, lane: Lane, run: Run, max_bytes: int) -> AsyncIterator[Chunk]:
        return self.inner.read(lane, run, max_bytes)

    async def close(self) -> None:
        await self.inner.close()


class InstrumentedSource(Source):
    def __init__(self, broker: InstrumentedBroker, inner: Source) -> None:
        self._broker = broker
        self.inner = inner
        #: names of the calls, in order
        self.calls: list[str] = []
        #: polled records by lane
        self.polled: dict[Lane, int] = defaultdict(int)
        self.paused: set[Lane] = set()
        #: cleared: what the broker sends does not reach the sidecar
        self.connected = asyncio.Event()
        self.connected.set()

    async def open(self) -> None:
        self.calls.append("open")
        with hold_time():
            await self.inner.open()

    async def poll(self, max_records: int, max_bytes: int, timeout: float) -> Polled:
        self.calls.append("poll")
        polled = await self.inner.poll(max_records, max_bytes, timeout)
        await self.connected.wait()
        for chunk in polled.chunks:
            self.polled[chunk.lane] += len(chunk.frames)
        return polled

    async def commit(self, commits: Mapping[Lane, Commit]) -> None:
        self._broker.audit.check_commit(commits)
        if self._broker.commit_fault is not None:
            self._broker.failed_commits += 1
            raise self._broker.commit_fault
        with hold_time():
            await self.inner.commit(commits)
        self.calls.append("commit")
        self._broker.committed.update(commits)

    async def release(self, lanes: Collection[Lane]) -> None:
        self.calls.append("release")
        await self.inner.release(lanes)

    async def pause(self, lanes: Collection[Lane]) -> None:
        self.calls.append("pause")
        await self.inner.pause(lanes)
        self.paused |= set(lanes)

    async def resume(self, lanes: Collection[Lane]) -> None:
        self.calls.append("resume")
        self.paused -= set(lanes)
        await self.inner.resume(lanes)

    async def seek(self, lanes: Mapping[Lane, SeekTarget]) -> Mapping[Lane, int]:
        with hold_time():
            positions = await self.inner.seek(lanes)
        for lane, position in positions.items():
            self._broker.audit.record_skipped(lane, position)
            self._broker.committed[lane] = Commit(position)
        return positions

    async def ends(self) -> Mapping[Lane, LaneEnd]:
        return await self.inner.ends()

    async def left_behind(self) -> Mapping[Lane, Run]:
        with hold_time():
            found = await self.inner.left_behind()
        self.calls.append("left_behind")
        return found

    async def close(self) -> None:
        self.calls.append("close")
        await self.inner.close()

"""The contract's Broker on Apache Pulsar."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing

from sidecar.brokers.base import (
    AtPosition,
    AtTime,
    Broker,
    LaneEnd,
    SeekTarget,
    SeekTo,
    SourceSpec,
    all_placed,
    is_pattern,
)
from sidecar.brokers.pulsar.admin import Admin
from sidecar.brokers.pulsar.client_threads import ClientThreads
from sidecar.brokers.pulsar.options import PulsarOptions
from sidecar.brokers.pulsar.positions import EntryCounter
from sidecar.brokers.pulsar.producers import Producers
from sidecar.brokers.pulsar.range_cursor import PulsarCursor
from sidecar.brokers.pulsar.ranges import RangeReader
from sidecar.brokers.pulsar.source import PulsarSource
from sidecar.brokers.pulsar.topics import LaneDiscovery, full_name, with_lane_numbers
from sidecar.brokers.range_cursor import RangeEstimate
from sidecar.model.errors import BrokerError, NotFound, Refused, Unavailable
from sidecar.model.records import Chunk, Lane, Message, Place, Run
from sidecar.observability.logs import Log

log = Log("pulsar")


class PulsarBroker(Broker):
    def __init__(self, options: PulsarOptions) -> None:
        self.options = options
        self.traits = options.traits
        self.facts = {"url": options.url, "subscription type": options.subscription_type.value}
        self.client = ClientThreads(options)
        self.admin = Admin(options)
        self.ranges = RangeReader(self.client)
        self._producers = Producers(options, self.client)
        self._sources: list[PulsarSource] = []

    async def open(self) -> None:
        """Connects nothing: each subscription connects, reports its own problems and tries again."""

    def subscribe(self, spec: SourceSpec) -> PulsarSource:
        source = PulsarSource(self, spec)
        self._sources.append(source)
        return source

    def cursor(self, spec: SourceSpec) -> PulsarCursor:
        return PulsarCursor(self, spec)

    async def publish(self, topic: str, messages: Sequence[Message]) -> Sequence[Place]:
        return all_placed(await self.publish_each(topic, messages))

    async def publish_each(self, topic: str, messages: Sequence[Message]) -> Sequence[Place | BrokerError]:
        return await self._producers.publish(topic, messages) if messages else []

    async def ensure_topic(self, topic: str, lanes: int) -> None:
        name = self._full_name(topic)
        is_own = any(name == self._full_name(own) for source in self._sources for own in source.spec.own_topics)
        found = await self._partitions(name)
        try:
            if found in ([], [name]):
                await self._make(name, lanes)
            if not is_own:
                # A dead-letter topic, which no group consumes.
                await self._keep(name)
        except Unavailable as error:
            # An admin API that has never answered does not exist: use the topic that exists or that a write creates.
            if is_own or not found or self.admin.has_answered:
                raise
            log.warning("cannot tell whether Pulsar keeps a topic", topic=topic, error=str(error))

    async def _partitions(self, name: str) -> list[str]:
        """As the library finds them, without the admin API. Empty: there is no such topic, and a write creates none."""
        try:
            return await self.client.partitions(name)
        except NotFound:
            return []

    async def _make(self, name: str, lanes: int) -> None:
        """Creates a topic, unless it exists without partitions, which the library cannot tell from a missing one."""
        with contextlib.suppress(NotFound):
            await self.admin.partition_count(name)
            return
        try:
            await self.admin.create_topic(name, lanes)
        except (Refused, NotFound) as error:
            text = f"{error}. Create {name} with {lanes} partitions yourself, or allow this role to create it"
            raise Refused(text) from error

    async def _keep(self, name: str) -> None:
        try:
            await self.admin.keep_topic(name)
        except (Refused, NotFound) as error:
            # Dead letters in a topic that Pulsar may remove are better than none.
            log.warning("cannot keep Pulsar from removing a topic", topic=name, error=str(error))

    async def lane_ends(self, topic: str) -> Mapping[Lane, LaneEnd]:
        names = await self._lane_names(topic)
        ends = await asyncio.gather(*map(self.admin.lane_end, names.values()))
        return dict(zip(names, ends, strict=True))

    async def topics(self, wanted: Collection[str]) -> Collection[str]:
        if not any(map(is_pattern, wanted)):
            return wanted
        found = LaneDiscovery(SourceSpec("", tuple(wanted)), self.options.namespace, self.client, self.admin)
        return {lane.topic for lane in await found.lanes()}

    async def locate(self, topic: str, target: SeekTarget) -> Mapping[Lane, int]:
        ends = await self.lane_ends(topic)
        return {lane: await self.resolve(await self._lane_name(lane), end, target) for lane, end in ends.items()}

    async def resolve(self, name: str, ends: LaneEnd, target: SeekTarget) -> int:
        """The position of a target in a lane with these ends."""
        match target:
            case SeekTo.START:
                return ends.start
            case SeekTo.END:
                return ends.end
            case AtPosition(position):
                return max(ends.start, min(position, ends.end))
            case AtTime(timestamp_ms):
                return await self.ranges.first_at_time(name, ends, timestamp_ms)

    async def estimate(self, runs: Mapping[Lane, Run]) -> Mapping[Lane, RangeEstimate]:
        found: dict[Lane, RangeEstimate] = {}
        for lane, run in runs.items():
            name = await self._lane_name(lane)
            state = await self.admin.topic_state(name)
            found[lane] = EntryCounter(run, state.ledgers, await self.ranges.messages_per_entry(name, run))
        return found

    async def read(self, lane: Lane, run: Run, max_bytes: int) -> AsyncIterator[Chunk]:
        async with aclosing(self.ranges.read(lane, await self._lane_name(lane), run, max_bytes)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def close(self) -> None:
        for source in [*self._sources]:
            await source.close()
        await self._producers.close()
        self.admin.close()
        await self.client.close()

    def exit(self, source: PulsarSource) -> None:
        if source in self._sources:
            self._sources.remove(source)

    async def _lane_name(self, lane: Lane) -> str:
        """The topic of a lane at Pulsar. Raises `NotFound`."""
        names = await self._lane_names(lane.topic)
        if lane not in names:
            raise NotFound(f"There is no lane {lane}.")
        return names[lane]

    async def _lane_names(self, topic: str) -> dict[Lane, str]:
        """The lanes of a topic, each with its topic at Pulsar. Raises `NotFound`."""
        names = await self.admin.partition_names(self._full_name(topic))
        return {Lane(topic, number): name for number, name in with_lane_numbers(names)}

    def _full_name(self, topic: str) -> str:
        return full_name(topic, self.options.namespace)

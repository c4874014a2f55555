"""Apache Pulsar behind the adapter contract."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing

from sidecar.brokers.base import AtPosition, AtTime, Broker, LaneEnd, SeekTarget, SeekTo, SourceSpec
from sidecar.brokers.cursor import RangeEstimate
from sidecar.brokers.pulsar import names
from sidecar.brokers.pulsar.admin import Admin
from sidecar.brokers.pulsar.cursor import PulsarCursor
from sidecar.brokers.pulsar.discovery import Discovery, numbered
from sidecar.brokers.pulsar.ledgers import Ledgers
from sidecar.brokers.pulsar.library import Library
from sidecar.brokers.pulsar.options import PulsarOptions
from sidecar.brokers.pulsar.producers import Producers
from sidecar.brokers.pulsar.ranges import Ranges
from sidecar.brokers.pulsar.source import PulsarSource
from sidecar.model.errors import NotFound, Refused, Unavailable
from sidecar.model.records import Chunk, Lane, Message, Place, Run
from sidecar.observability.logs import Log

log = Log("pulsar")


class PulsarBroker(Broker):
    def __init__(self, options: PulsarOptions) -> None:
        self.options = options
        self.traits = options.traits
        self.facts = {"url": options.url, "subscription type": options.subscription_type.value}
        self.library = Library(options)
        self.admin = Admin(options)
        self.ranges = Ranges(self.library)
        self._producers = Producers(options, self.library)
        self._sources: list[PulsarSource] = []

    async def open(self) -> None:
        """Nothing is connected before it is needed: each subscription tells of its own trouble, and tries again."""

    def subscribe(self, spec: SourceSpec) -> PulsarSource:
        source = PulsarSource(self, spec)
        self._sources.append(source)
        return source

    def cursor(self, spec: SourceSpec) -> PulsarCursor:
        return PulsarCursor(self, spec)

    async def publish(self, topic: str, messages: Sequence[Message]) -> Sequence[Place]:
        return await self._producers.publish(topic, messages) if messages else []

    async def ensure_topic(self, topic: str, lanes: int) -> None:
        name = self._full(topic)
        is_own = any(name == self._full(own) for source in self._sources for own in source.spec.own_topics)
        found = await self._partitions(name)
        try:
            if found in ([], [name]):
                await self._make(name, lanes)
            if not is_own:
                # Dead letters, which no group consumes.
                await self._keep(name)
        except Unavailable as error:
            # Where the admin API has never answered there is none: what exists, or is made by a write, must do.
            if is_own or not found or self.admin.answers:
                raise
            log.warning("whether a topic is kept is not known", topic=topic, error=str(error))

    async def _partitions(self, name: str) -> list[str]:
        """As the library has it, which needs no admin API. None: there is no such topic, and a write makes none."""
        try:
            return await self.library.partitions(name)
        except NotFound:
            return []

    async def _make(self, name: str, lanes: int) -> None:
        """Unless it is there without partitions, which the library cannot tell from one that is missing."""
        with contextlib.suppress(NotFound):
            await self.admin.partitions(name)
            return
        try:
            await self.admin.make(name, lanes)
        except (Refused, NotFound) as error:
            text = f"{error}. Make {name} with {lanes} partitions yourself, or let this role make it"
            raise Refused(text) from error

    async def _keep(self, name: str) -> None:
        try:
            await self.admin.keep(name)
        except (Refused, NotFound) as error:
            # Letters are better there than nowhere.
            log.warning("a topic cannot be kept from being removed by Pulsar", topic=name, error=str(error))

    async def lane_ends(self, topic: str) -> Mapping[Lane, LaneEnd]:
        lanes = [(Lane(topic, number), name) for number, name in numbered(await self.admin.lanes(self._full(topic)))]
        ends = await asyncio.gather(*(self.admin.end(name) for _, name in lanes))
        return {lane: end for (lane, _), end in zip(lanes, ends, strict=True)}

    async def topics(self, wanted: Collection[str]) -> Collection[str]:
        if not any(map(names.is_pattern, wanted)):
            return wanted
        found = Discovery(SourceSpec("", tuple(wanted)), self.options.namespace, self.library, self.admin)
        return {lane.topic for lane in await found.lanes()}

    async def locate(self, topic: str, target: SeekTarget) -> Mapping[Lane, int]:
        ends = await self.lane_ends(topic)
        return {lane: await self.resolve(await self._name(lane), end, target) for lane, end in ends.items()}

    async def resolve(self, name: str, ends: LaneEnd, target: SeekTarget) -> int:
        """Where a target is in a lane with these ends."""
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
            name = await self._name(lane)
            standing = await self.admin.standing(name)
            found[lane] = Ledgers(run, standing.ledgers, await self.ranges.per_entry(name, run))
        return found

    async def read(self, lane: Lane, run: Run, max_bytes: int) -> AsyncIterator[Chunk]:
        async with aclosing(self.ranges.read(lane, await self._name(lane), run, max_bytes)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def close(self) -> None:
        for source in [*self._sources]:
            await source.close()
        await self._producers.close()
        self.admin.close()
        await self.library.close()

    def exit(self, source: PulsarSource) -> None:
        if source in self._sources:
            self._sources.remove(source)

    async def _name(self, lane: Lane) -> str:
        """The topic that a lane is at Pulsar. Raises `NotFound`."""
        found = dict(numbered(await self.admin.lanes(self._full(lane.topic))))
        if lane.number not in found:
            raise NotFound(f"There is no lane {lane}.")
        return found[lane.number]

    def _full(self, topic: str) -> str:
        return names.full(topic, self.options.namespace)

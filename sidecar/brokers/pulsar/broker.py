"""Apache Pulsar behind the adapter contract."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from sidecar.brokers.base import Broker, LaneEnd, SourceSpec, Traits
from sidecar.brokers.pulsar import names
from sidecar.brokers.pulsar.admin import Admin
from sidecar.brokers.pulsar.discovery import numbered
from sidecar.brokers.pulsar.library import Library
from sidecar.brokers.pulsar.options import PulsarOptions, SubscriptionType
from sidecar.brokers.pulsar.producers import Producers
from sidecar.brokers.pulsar.ranges import Ranges
from sidecar.brokers.pulsar.source import PulsarSource
from sidecar.errors import NotFound, Refused
from sidecar.model import Chunk, Lane, Message, Place, Run


def traits(kind: SubscriptionType) -> Traits:
    """What each subscription type can promise."""
    exclusive = kind in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)
    return Traits(
        keeps_acks_beyond=True,
        # Lanes move, but the library does not tell: there is nothing that could be done in time.
        rebalances=False,
        lanes_are_exclusive=exclusive,
        seeks=exclusive,
        reads_ranges=True,
        creates_topics=True,
        acks_are_final=True,
        positions_count_records=False,
        tells_first_deliveries=kind is SubscriptionType.EXCLUSIVE,
    )


class PulsarBroker(Broker):
    def __init__(self, options: PulsarOptions) -> None:
        self.options = options
        self.traits = traits(options.subscription_type)
        self.facts = {"url": options.url, "subscription type": options.subscription_type.value}
        self.library = Library(options)
        self.admin = Admin(options, self.library)
        self.ranges = Ranges(self.library)
        self._producers = Producers(options, self.library)
        self._sources: list[PulsarSource] = []

    async def open(self) -> None:
        """Nothing is connected before it is needed: each subscription tells of its own trouble, and tries again."""

    def subscribe(self, spec: SourceSpec) -> PulsarSource:
        source = PulsarSource(self, spec)
        self._sources.append(source)
        return source

    async def publish(self, topic: str, messages: Sequence[Message]) -> Sequence[Place]:
        return await self._producers.publish(topic, messages) if messages else []

    async def ensure_topic(self, topic: str, lanes: int) -> None:
        name = self._full(topic)
        if await self.library.partitions(name) != [name]:
            # It has partitions, so that the admin API, which may be out of reach, need not be asked.
            return
        try:
            await self.admin.partitions(name)
        except NotFound:
            await self._make(name, lanes)

    async def _make(self, name: str, lanes: int) -> None:
        try:
            await self.admin.make(name, lanes)
        except (Refused, NotFound) as error:
            text = f"{error}. Make {name} with {lanes} partitions yourself, or let this role make it"
            raise Refused(text) from error
        if not any(name == self._full(own) for source in self._sources for own in source.spec.own_topics):
            # Dead letters, which no group consumes.
            await self.admin.keep(name)

    async def lane_ends(self, topic: str) -> Mapping[Lane, LaneEnd]:
        lanes = [(Lane(topic, number), name) for number, name in numbered(await self.admin.lanes(self._full(topic)))]
        ends = await asyncio.gather(*(self.admin.end(name) for _, name in lanes))
        return {lane: end for (lane, _), end in zip(lanes, ends, strict=True)}

    async def read(self, lane: Lane, run: Run, max_bytes: int) -> AsyncIterator[Chunk]:
        found = dict(numbered(await self.admin.lanes(self._full(lane.topic))))
        if lane.number not in found:
            raise NotFound(f"There is no lane {lane}.")
        async for chunk in self.ranges.read(lane, found[lane.number], run, max_bytes):
            yield chunk

    async def close(self) -> None:
        for source in [*self._sources]:
            await source.close()
        await self._producers.close()
        await self.library.close()

    def exit(self, source: PulsarSource) -> None:
        if source in self._sources:
            self._sources.remove(source)

    def _full(self, topic: str) -> str:
        return names.full(topic, self.options.namespace)

"""One Kafka cluster."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace

import confluent_kafka

from sidecar.brokers.base import Broker, LaneEnd, SeekTarget, SourceSpec
from sidecar.brokers.kafka.admin import Admin, Topic
from sidecar.brokers.kafka.broadcast import addressed
from sidecar.brokers.kafka.consumer.source import KafkaSource
from sidecar.brokers.kafka.consumer.start_position import resolve
from sidecar.brokers.kafka.cursor import KafkaCursor
from sidecar.brokers.kafka.library_logs import Chatter, Reasons
from sidecar.brokers.kafka.options import GroupProtocol, KafkaOptions
from sidecar.brokers.kafka.producer import Publisher
from sidecar.brokers.kafka.properties import instance_of
from sidecar.brokers.kafka.ranges import RangeReader
from sidecar.model.errors import NotFound, Refused, Unavailable
from sidecar.model.records import Chunk, Lane, Message, Place, Run

#: seconds for which a topic that was seen counts as there
_KNOWN_FOR = 60.0


class KafkaBroker(Broker):
    """The event loop decides; each source has a thread that polls, and one more publishes."""

    def __init__(self, options: KafkaOptions) -> None:
        self.options = options
        self.traits = options.traits
        self.facts = {"servers": ",".join(options.servers), "librdkafka": confluent_kafka.libversion()[0]}
        self.reasons = Reasons()
        self.chatter = Chatter()
        #: found by trial
        self.protocol = options.group_protocol
        self._admin: Admin | None = None
        self._publisher: Publisher | None = None
        self._sources: list[KafkaSource] = []
        #: topics that were seen, and when
        self._seen: dict[str, tuple[float, Topic]] = {}
        #: retry topics of broadcasts, which all pods share
        self._shared: set[str] = set()

    @property
    def trouble(self) -> str:  # type: ignore[override]
        """What is wrong with the connection, as any of the sources sees it."""
        return next(filter(None, (source.trouble for source in self._sources)), "")

    @property
    def admin(self) -> Admin:
        if self._admin is None:
            raise Unavailable("The Kafka broker is not open.")
        return self._admin

    async def open(self) -> None:
        admin = Admin(self.options, self.reasons, self.chatter)
        self.facts.update(await admin.connect())
        self._admin = admin
        self._publisher = Publisher(self.options, self.reasons, self.chatter, admin.serve)

    def subscribe(self, spec: SourceSpec) -> KafkaSource:
        if self.options.broadcast:
            self._shared.update(spec.own_topics)
            spec = replace(spec, group=f"{spec.group}.{instance_of(self.options)}")
        source = KafkaSource(self, spec)
        self._sources.append(source)
        return source

    def cursor(self, spec: SourceSpec) -> KafkaCursor:
        return KafkaCursor(self, spec)

    def exit(self, source: KafkaSource) -> None:
        """A source is closed."""
        if source in self._sources:
            self._sources.remove(source)

    async def ping(self) -> None:
        """Raises if the cluster does not answer."""
        await self.admin.connect()

    def settle_protocol(self, protocol: GroupProtocol) -> None:
        """A source has found out which one works."""
        self.protocol = protocol
        self.facts["group_protocol"] = protocol.value

    async def publish(self, topic: str, messages: Sequence[Message]) -> Sequence[Place]:
        if self._publisher is None:
            raise Unavailable("The Kafka broker is not open.")
        if not messages:
            return []
        known = await self._known(topic)
        for message in messages:
            if message.lane is not None and not 0 <= message.lane < known.lanes:
                raise Refused(f"Topic {topic!r} has no lane {message.lane}: it has {known.lanes}, counted from 0.")
        if topic in self._shared:
            messages = addressed(messages, instance_of(self.options))
        try:
            return await self._publisher.publish(topic, messages)
        except NotFound:
            self._seen.pop(topic, None)
            raise

    async def ensure_topic(self, topic: str, lanes: int) -> None:
        if topic not in self._seen:
            await self.admin.ensure_topic(topic, lanes)

    async def lane_ends(self, topic: str) -> Mapping[Lane, LaneEnd]:
        found = await self.admin.topic(topic)
        return await self.admin.ends(Lane(topic, number) for number in range(found.lanes))

    async def log_end(self, lane: Lane) -> int:
        await self._check(lane)
        return (await self.admin.written([lane]))[lane]

    async def topics(self, wanted: Collection[str]) -> Collection[str]:
        return await self.admin.fitting(wanted)

    async def locate(self, topic: str, target: SeekTarget) -> Mapping[Lane, int]:
        found = await self.admin.topic(topic)
        return await resolve(self.admin, {Lane(topic, number): target for number in range(found.lanes)})

    async def read(self, lane: Lane, run: Run, max_bytes: int) -> AsyncIterator[Chunk]:
        await self._check(lane)
        end = (await self.admin.ends([lane]))[lane]
        reader = RangeReader(self.options, self.reasons, self.chatter, lane, run, end)
        async with contextlib.aclosing(reader.chunks(max_bytes)) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                yield chunk

    async def close(self) -> None:
        publisher, self._publisher, self._admin = self._publisher, None, None
        if publisher is not None:
            await asyncio.shield(publisher.close())

    async def _check(self, lane: Lane) -> None:
        """Raises `NotFound`."""
        found = await self.admin.topic(lane.topic)
        if not 0 <= lane.number < found.lanes:
            raise NotFound(f"There is no lane {lane}.")

    async def _known(self, topic: str) -> Topic:
        """Asked once in a while: without it, the library would wait for a topic that is missing."""
        now = time.monotonic()
        seen = self._seen.get(topic)
        if seen is None or now - seen[0] > _KNOWN_FOR:
            if self.options.create_topics:
                await self.admin.ensure_topic(topic, -1)
            seen = self._seen[topic] = (now, await self.admin.topic(topic))
        return seen[1]

"""The contract's `Broker`: one Kafka cluster. Owns the admin client and the producer, and makes sources and cursors."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace

import confluent_kafka

from sidecar.brokers.base import Broker, LaneEnd, SeekTarget, SourceSpec, all_placed, is_pattern
from sidecar.brokers.kafka.admin import Admin, Topic
from sidecar.brokers.kafka.consumer.source import KafkaSource
from sidecar.brokers.kafka.library_logs import LibraryClients
from sidecar.brokers.kafka.options import GroupProtocol, KafkaOptions
from sidecar.brokers.kafka.producer import Publisher
from sidecar.brokers.kafka.range_cursor import KafkaCursor
from sidecar.brokers.kafka.ranges import RangeReader
from sidecar.brokers.kafka.records import add_instance
from sidecar.model.errors import BrokerError, NotFound, Refused, Unavailable
from sidecar.model.records import Chunk, Lane, Message, Place, Run

#: seconds for which a topic counts as existing before it is looked up again
_TOPIC_CACHE_AGE = 60.0


class KafkaBroker(Broker):
    """Runs on the event loop. Each source has a thread that polls, and one more thread publishes."""

    def __init__(self, options: KafkaOptions) -> None:
        self.options = options
        self.traits = options.traits
        self.facts = {"servers": ",".join(options.servers), "librdkafka": confluent_kafka.libversion()[0]}
        self.clients = LibraryClients(options)
        #: AUTO until a source has found out which one works
        self.protocol = options.group_protocol
        self._admin: Admin | None = None
        self._publisher: Publisher | None = None
        self._sources: list[KafkaSource] = []
        #: topics that exist, and when they were looked up
        self._topics: dict[str, tuple[float, Topic]] = {}
        #: retry topics of broadcasts, which all pods share
        self._broadcast_retry_topics: set[str] = set()

    @property
    def trouble(self) -> str:  # type: ignore[override]
        """The problem of the connection that one of the sources reports."""
        return next(filter(None, (source.trouble for source in self._sources)), "")

    @property
    def admin(self) -> Admin:
        if self._admin is None:
            raise Unavailable("The Kafka broker is not open.")
        return self._admin

    async def open(self) -> None:
        admin = Admin(self.clients)
        self.facts.update(await admin.connect())
        self._admin = admin
        self._publisher = Publisher(self.clients, admin.poll)

    def subscribe(self, spec: SourceSpec) -> KafkaSource:
        if self.options.broadcast:
            self._broadcast_retry_topics.update(spec.own_topics)
            spec = replace(spec, group=f"{spec.group}.{self.options.instance_name}")
        source = KafkaSource(self, spec)
        self._sources.append(source)
        return source

    def cursor(self, spec: SourceSpec) -> KafkaCursor:
        return KafkaCursor(self, spec)

    def forget(self, source: KafkaSource) -> None:
        """The source is closed."""
        if source in self._sources:
            self._sources.remove(source)

    async def ping(self) -> None:
        """Raises if the cluster does not answer."""
        await self.admin.connect()

    def settle_protocol(self, protocol: GroupProtocol) -> None:
        """A source has found out which protocol works."""
        self.protocol = protocol
        self.facts["group_protocol"] = protocol.value

    async def publish(self, topic: str, messages: Sequence[Message]) -> Sequence[Place]:
        return all_placed(await self.publish_each(topic, messages))

    async def publish_each(self, topic: str, messages: Sequence[Message]) -> Sequence[Place | BrokerError]:
        if self._publisher is None:
            raise Unavailable("The Kafka broker is not open.")
        if not messages:
            return []
        lanes = (await self._existing(topic)).lane_count
        for message in messages:
            if message.lane is not None and not 0 <= message.lane < lanes:
                raise Refused(f"Topic {topic!r} has no lane {message.lane}: it has {lanes}, counted from 0.")
        if topic in self._broadcast_retry_topics:
            messages = add_instance(messages, self.options.instance_name)
        outcomes = await self._publisher.publish(topic, messages)
        if any(isinstance(outcome, NotFound) for outcome in outcomes):
            self._topics.pop(topic, None)
        return outcomes

    async def ensure_topic(self, topic: str, lanes: int) -> None:
        if topic not in self._topics:
            await self.admin.ensure_topic(topic, lanes)

    async def prepare_topics(self, spec: SourceSpec) -> list[str]:
        """Create what must be created before topics are consumed. Returns missing topics; `NotFound` if all are."""
        names = [topic for topic in spec.topics if not is_pattern(topic)]
        patterns = [topic for topic in spec.topics if is_pattern(topic)]
        for pattern in patterns:
            for topic in spec.own_topics:
                if re.match(pattern, topic):
                    raise Refused(f"The pattern {pattern!r} matches {topic!r}, which is the group's own: narrow it.")
        if self.options.create_topics:
            for topic in names:
                await self.ensure_topic(topic, -1)
        for topic, lanes in spec.own_topics.items():
            await self.ensure_topic(topic, lanes)
        found = await self.admin.topics(names)
        missing = [topic for topic in names if topic not in found]
        if missing and len(missing) == len(names) and not patterns:
            raise NotFound(f"There is no topic {', '.join(map(repr, missing))}. Create it, or set `create_topics`.")
        return missing

    async def lane_ends(self, topic: str) -> Mapping[Lane, LaneEnd]:
        return await self.admin.ends((await self.admin.topic(topic)).lanes)

    async def log_end(self, lane: Lane) -> int:
        await self._check_exists(lane)
        return (await self.admin.written_ends([lane]))[lane]

    async def topics(self, wanted: Collection[str]) -> Collection[str]:
        return await self.admin.matching(wanted)

    async def locate(self, topic: str, target: SeekTarget) -> Mapping[Lane, int]:
        return await self.admin.resolve(dict.fromkeys((await self.admin.topic(topic)).lanes, target))

    async def read(self, lane: Lane, run: Run, max_bytes: int) -> AsyncIterator[Chunk]:
        await self._check_exists(lane)
        end = (await self.admin.ends([lane]))[lane]
        reader = RangeReader(self.clients, lane, run, end)
        async with contextlib.aclosing(reader.chunks(max_bytes)) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                yield chunk

    async def close(self) -> None:
        publisher, self._publisher, self._admin = self._publisher, None, None
        if publisher is not None:
            await asyncio.shield(publisher.close())

    async def _check_exists(self, lane: Lane) -> None:
        """Raises `NotFound`."""
        if lane not in (await self.admin.topic(lane.topic)).lanes:
            raise NotFound(f"There is no lane {lane}.")

    async def _existing(self, topic: str) -> Topic:
        """Looked up once in a while: the library would wait for a missing topic. Raises `NotFound`."""
        now = time.monotonic()
        cached = self._topics.get(topic)
        if cached is None or now - cached[0] > _TOPIC_CACHE_AGE:
            if self.options.create_topics:
                await self.admin.ensure_topic(topic, -1)
            cached = self._topics[topic] = (now, await self.admin.topic(topic))
        return cached[1]

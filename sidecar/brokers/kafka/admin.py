"""Topics and the ends of lanes: what the admin client finds out and creates."""

import asyncio
import contextlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._metadata import ClusterMetadata
from confluent_kafka.cimpl import NewTopic

from sidecar.brokers.base import AtPosition, AtTime, LaneEnd, SeekTarget, SeekTo, is_pattern
from sidecar.brokers.kafka.errors import kafka_error
from sidecar.brokers.kafka.forgotten_brokers import has_forgotten_brokers
from sidecar.brokers.kafka.library_logs import LibraryClients
from sidecar.brokers.kafka.options import admin_properties
from sidecar.model.errors import BrokerError, NotFound, Unavailable
from sidecar.model.records import Lane

#: seconds to wait for one response
_REQUEST_TIMEOUT = 10.0
#: how often `connect` asks before the cluster counts as unreachable, and seconds to wait for each response
_CONNECT_TRIES, _CONNECT_TIMEOUT = 4, 3.0
#: any topic: the response describes the cluster, too, even if there is no such topic or no right to it
_SOME_TOPIC = "__consumer_offsets"
#: threads for calls that block
_THREADS = 2
#: how often a new topic is checked, and seconds between the checks
_NEW_TOPIC_CHECKS, _NEW_TOPIC_INTERVAL = 250, 0.02

# The library has no types for these.
_spec: Any = OffsetSpec
_EARLIEST: OffsetSpec = _spec.earliest()
_LATEST: OffsetSpec = _spec.latest()

#: id of the topics of a broker that gives them none; then metadata of commits is not stored
NO_ID = "A" * 22


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: str
    lane_count: int

    @property
    def lanes(self) -> list[Lane]:
        return [Lane(self.name, number) for number in range(self.lane_count)]


class Admin:
    """Every call waits for the broker, at most some seconds, and raises `Unavailable` or `Refused`."""

    def __init__(self, clients: LibraryClients) -> None:
        self._clients = clients
        self._client = self._make_client()
        #: has forgotten all brokers; calls to it end when they time out, before the next one is replaced
        self._replaced: AdminClient | None = None
        self._threads = ThreadPoolExecutor(_THREADS, "offramp-kafka-admin")
        self.cluster = ""

    def poll(self) -> None:
        """Let the library report why its connections fail. On any thread."""
        self._client.poll(0)

    def _make_client(self) -> AdminClient:
        conf = {**admin_properties(self._clients.options), "stats_cb": lambda text: self._on_statistics(made, text)}
        made: AdminClient = self._clients.create(AdminClient, conf)
        return made

    def _on_statistics(self, client: AdminClient, text: str) -> None:
        """Within a poll."""
        if client is self._client and has_forgotten_brokers(json.loads(text)):
            self._replaced, self._client = client, self._make_client()

    async def connect(self) -> dict[str, str]:
        """Returns facts of the cluster.

        Avoids `describe_cluster`: a broker that is starting, or has lost its controller, may know of no brokers, and
        librdkafka 2.16 ends the process when it gets such a response.
        """
        for tries_left in reversed(range(_CONNECT_TRIES)):
            try:
                found = await self._list_topics(_SOME_TOPIC, timeout=_CONNECT_TIMEOUT)
                break
            except KafkaException as error:
                # The library keeps trying, but may report why it must.
                self.poll()
                if not tries_left or self._clients.recent_errors.latest():
                    raise self._translated(error, "connect") from error
        if not found.brokers:
            raise Unavailable("Kafka: cannot connect: the broker that answered knows of no brokers yet")
        self.cluster = found.cluster_id or ""
        return {"cluster": self.cluster, "brokers": str(len(found.brokers))}

    async def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """The topics of these names that exist."""
        return await self._topics(names, NotFound)

    async def ids(self, names: Collection[str]) -> dict[str, str]:
        """The ids of topics of these names that can be described, and have one."""
        found = await self._topics(names, BrokerError)
        return {name: topic.id for name, topic in found.items() if topic.id != NO_ID}

    async def _topics(self, names: Collection[str], ignored: type[BrokerError]) -> dict[str, Topic]:
        """Leaves out topics that fail with the ignored error."""
        if not names:
            return {}
        futures = self._client.describe_topics(TopicCollection(list(names)), request_timeout=_REQUEST_TIMEOUT)
        found: dict[str, Topic] = {}
        for name, future in futures.items():
            with contextlib.suppress(ignored):
                topic = await self._result(future, f"find topic {name}")
                found[name] = Topic(name, str(topic.topic_id), len(topic.partitions))
        return found

    async def topic(self, name: str) -> Topic:
        """Raises `NotFound`."""
        found = await self.topics([name])
        if name not in found:
            raise NotFound(f"There is no topic {name!r}.")
        return found[name]

    async def matching(self, wanted: Collection[str]) -> set[str]:
        """The wanted names, and the names of topics that match a wanted pattern."""
        patterns = [re.compile(topic) for topic in wanted if is_pattern(topic)]
        names = {topic for topic in wanted if not is_pattern(topic)}
        if patterns:
            known = {lane.topic for lane in await self.lanes()}
            names |= {name for name in known if any(pattern.match(name) for pattern in patterns)}
        return names

    async def lanes(self) -> list[Lane]:
        """The lanes of all topics that this account may see."""
        try:
            known = await self._list_topics(timeout=_REQUEST_TIMEOUT)
        except KafkaException as error:
            raise self._translated(error, "list topics") from error
        return [Lane(name, number) for name, topic in known.topics.items() for number in topic.partitions]

    async def ensure_topic(self, name: str, lanes: int) -> None:
        """Create the topic if it is missing. Returns when it can be used."""
        if await self.topics([name]):
            return
        new = NewTopic(
            name,
            num_partitions=lanes,
            replication_factor=self._clients.options.replication_factor,
            config=dict(self._clients.options.topic_config),
        )
        future = self._client.create_topics([new], request_timeout=_REQUEST_TIMEOUT)[name]
        try:
            await asyncio.wrap_future(future)
        except KafkaException as error:
            if kafka_error(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._translated(error, f"create topic {name}") from error
        for _ in range(_NEW_TOPIC_CHECKS):
            if await self._is_usable(name):
                break
            await asyncio.sleep(_NEW_TOPIC_INTERVAL)

    async def ends(self, lanes: Iterable[Lane]) -> dict[Lane, LaneEnd]:
        """The ends for a reader of committed transactions. Raises `NotFound`."""
        lanes = list(lanes)
        starts, ends = await asyncio.gather(
            self._offsets(dict.fromkeys(lanes, _EARLIEST)), self._offsets(dict.fromkeys(lanes, _LATEST))
        )
        return {lane: LaneEnd(starts[lane], ends[lane]) for lane in lanes}

    async def written_ends(self, lanes: Iterable[Lane]) -> dict[Lane, int]:
        """The ends of lanes, open transactions included. Raises `NotFound`."""
        return await self._offsets(dict.fromkeys(lanes, _LATEST), IsolationLevel.READ_UNCOMMITTED)

    async def resolve(self, targets: Mapping[Lane, SeekTarget]) -> dict[Lane, int]:
        """The positions of targets in their lanes. Raises `NotFound`."""
        ends = await self.ends(targets)
        times = {lane: target.timestamp_ms for lane, target in targets.items() if isinstance(target, AtTime)}
        found = await self._offsets({lane: _spec.for_timestamp(ms) for lane, ms in times.items()})
        positions: dict[Lane, int] = {}
        for lane, target in targets.items():
            end = ends[lane]
            match target:
                case SeekTo.START:
                    positions[lane] = end.start
                case SeekTo.END:
                    positions[lane] = end.end
                case AtPosition(position):
                    positions[lane] = max(end.start, min(position, end.end))
                case AtTime():
                    positions[lane] = found[lane] if found[lane] >= 0 else end.end
        return positions

    async def _offsets(
        self, wanted: Mapping[Lane, OffsetSpec], isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> dict[Lane, int]:
        """-1 where a lane has no record at a time or after it. Raises `NotFound`."""
        if not wanted:
            return {}
        asked = {TopicPartition(*lane): spec for lane, spec in wanted.items()}
        futures = self._client.list_offsets(asked, isolation_level=isolation, request_timeout=_REQUEST_TIMEOUT)
        found: dict[Lane, int] = {}
        for partition, future in futures.items():
            lane = Lane(partition.topic, partition.partition)
            found[lane] = (await self._result(future, f"find the ends of {lane}")).offset
        return found

    async def _is_usable(self, name: str) -> bool:
        """A new topic is listed before all its lanes have leaders."""
        topics = await self.topics([name])
        if name not in topics:
            return False
        try:
            await self._offsets(dict.fromkeys(topics[name].lanes, _LATEST))
        except Exception:
            return False
        return True

    async def _list_topics(self, *names: str, timeout: float) -> ClusterMetadata:
        """Blocks a thread of its own: a cluster that is away must not block the threads of the event loop."""
        listing = partial(self._client.list_topics, *names, timeout=timeout)
        found: ClusterMetadata = await asyncio.get_running_loop().run_in_executor(self._threads, listing)
        return found

    async def _result(self, future: "Future[Any] | asyncio.Future[Any]", doing: str) -> Any:
        try:
            return await asyncio.wrap_future(future)
        except KafkaException as error:
            raise self._translated(error, doing) from error

    def _translated(self, error: KafkaException, doing: str) -> Exception:
        self.poll()
        return self._clients.translate(error, doing)

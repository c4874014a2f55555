"""Topics and the ends of lanes: what can be asked and made without a group."""

import asyncio
import concurrent.futures
import contextlib
import re
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._metadata import ClusterMetadata
from confluent_kafka.cimpl import NewTopic

from sidecar.brokers.base import LaneEnd
from sidecar.brokers.kafka.errors import kafka_error, translate
from sidecar.brokers.kafka.library_logs import Chatter, Reasons
from sidecar.brokers.kafka.options import KafkaOptions
from sidecar.brokers.kafka.properties import common
from sidecar.model.errors import BrokerError, NotFound, Unavailable
from sidecar.model.records import Lane

#: seconds for one answer
_PATIENCE = 10.0
#: how often the cluster is asked who it is before it counts as unreachable, and seconds for each answer
_TRIES, _ANSWER = 4, 3.0
#: the answer tells of the cluster, too, whether there is such a topic or not, and whether we have a right to it or not
_SOME_TOPIC = "__consumer_offsets"
#: that ask at the same time
_THREADS = 2
#: how often a topic that was made is looked for, and how many seconds lie between
_LOOKS, _BETWEEN_LOOKS = 250, 0.02

# The library has no types for these.
_spec: Any = OffsetSpec
EARLIEST: OffsetSpec = _spec.earliest()
LATEST: OffsetSpec = _spec.latest()


def at_time(timestamp_ms: int) -> OffsetSpec:
    """The first record that is not older."""
    spec: OffsetSpec = _spec.for_timestamp(timestamp_ms)
    return spec


#: of topics of a broker that has none; without one, acks beyond a position are not stored
NO_ID = "A" * 22


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: str
    lanes: int


class Admin:
    """Every call waits for the broker's answer, some seconds at the most, and raises `Unavailable` or `Refused`."""

    def __init__(self, options: KafkaOptions, reasons: Reasons, chatter: Chatter) -> None:
        self._options = options
        self._reasons = reasons
        conf: dict[str, Any] = {**common(options), "error_cb": reasons.heard}
        try:
            self._client = AdminClient(conf, logger=chatter.logger)
        except KafkaException as error:
            raise translate(error, "use the settings") from error
        self._threads = ThreadPoolExecutor(_THREADS, "offramp-kafka-admin")
        self.cluster = ""

    def serve(self) -> None:
        """Let the library tell why its connections fail."""
        self._client.poll(0)

    async def connect(self) -> dict[str, str]:
        """Facts of the cluster."""
        found = await self._described()
        self.cluster = found.cluster_id or ""
        return {"cluster": self.cluster, "brokers": str(len(found.brokers))}

    async def _described(self) -> ClusterMetadata:
        """Not by `describe_cluster`: a broker that is just starting, or was cut off from its controller, may know of no
        brokers at all, and librdkafka 2.16 ends the process when it gets such an answer to that."""
        for tries_left in reversed(range(_TRIES)):
            try:
                found = await self._list_topics(_SOME_TOPIC, timeout=_ANSWER)
                break
            except KafkaException as error:
                # The library goes on trying, but may say why it must.
                self.serve()
                if not tries_left or self._reasons.latest():
                    raise self._translated(error, "connect") from error
        if not found.brokers:
            raise Unavailable("Kafka: cannot connect: the broker that answers knows of no brokers yet")
        return found

    async def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """Those of the names that exist."""
        return await self._topics(names, NotFound)

    async def ids(self, names: Collection[str]) -> dict[str, str]:
        """Of those of the names that can be seen, and have one."""
        found = await self._topics(names, BrokerError)
        return {name: topic.id for name, topic in found.items() if topic.id != NO_ID}

    async def _topics(self, names: Collection[str], left_out: type[BrokerError]) -> dict[str, Topic]:
        """But for those that are answered with such an error."""
        if not names:
            return {}
        futures = self._client.describe_topics(TopicCollection(list(names)), request_timeout=_PATIENCE)
        found: dict[str, Topic] = {}
        for name, future in futures.items():
            with contextlib.suppress(left_out):
                topic = await self._answer(future, f"find topic {name}")
                found[name] = Topic(name, str(topic.topic_id), len(topic.partitions))
        return found

    async def topic(self, name: str) -> Topic:
        """Raises `NotFound`."""
        found = await self.topics([name])
        if name not in found:
            raise NotFound(f"There is no topic {name!r}.")
        return found[name]

    async def fitting(self, wanted: Collection[str]) -> set[str]:
        """Topics by name, and those that fit a pattern; a pattern begins with ^."""
        names = {topic for topic in wanted if not topic.startswith("^")}
        patterns = [re.compile(topic) for topic in wanted if topic.startswith("^")]
        if patterns:
            try:
                known = await self._list_topics(timeout=_PATIENCE)
            except KafkaException as error:
                raise self._translated(error, "list topics") from error
            names |= {name for name in known.topics if any(pattern.match(name) for pattern in patterns)}
        return names

    async def ensure_topic(self, name: str, lanes: int) -> None:
        """Returns when it can be used."""
        if await self.topics([name]):
            return
        wanted = NewTopic(
            name,
            num_partitions=lanes,
            replication_factor=self._options.replication_factor,
            config=dict(self._options.topic_config),
        )
        future = self._client.create_topics([wanted], request_timeout=_PATIENCE)[name]
        try:
            await asyncio.wrap_future(future)
        except KafkaException as error:
            if kafka_error(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._translated(error, f"make topic {name}") from error
        for _ in range(_LOOKS):
            if await self._is_usable(name):
                break
            await asyncio.sleep(_BETWEEN_LOOKS)

    async def ends(self, lanes: Iterable[Lane]) -> dict[Lane, LaneEnd]:
        """The ends as a reader of committed records sees them. Raises `NotFound`."""
        lanes = list(lanes)
        starts, ends = await asyncio.gather(
            self.offsets(dict.fromkeys(lanes, EARLIEST)), self.offsets(dict.fromkeys(lanes, LATEST))
        )
        return {lane: LaneEnd(starts[lane], ends[lane]) for lane in lanes}

    async def written(self, lanes: Iterable[Lane]) -> dict[Lane, int]:
        """How far lanes are written, transactions that are still open included. Raises `NotFound`."""
        return await self.offsets(dict.fromkeys(lanes, LATEST), IsolationLevel.READ_UNCOMMITTED)

    async def offsets(
        self, wanted: Mapping[Lane, OffsetSpec], isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> dict[Lane, int]:
        """-1 where there is nothing at such a time. Raises `NotFound`."""
        if not wanted:
            return {}
        asked = {TopicPartition(lane.topic, lane.number): spec for lane, spec in wanted.items()}
        futures = self._client.list_offsets(asked, isolation_level=isolation, request_timeout=_PATIENCE)
        found: dict[Lane, int] = {}
        for partition, future in futures.items():
            lane = Lane(partition.topic, partition.partition)
            found[lane] = (await self._answer(future, f"find the ends of {lane}")).offset
        return found

    async def _is_usable(self, name: str) -> bool:
        """A new topic is seen before its lanes have leaders everywhere."""
        topics = await self.topics([name])
        if name not in topics:
            return False
        try:
            await self.offsets({Lane(name, number): LATEST for number in range(topics[name].lanes)})
        except Exception:
            return False
        return True

    async def _list_topics(self, *names: str, timeout: float) -> ClusterMetadata:
        """It blocks. In the threads of the event loop, a cluster that is away would hold up whoever else needs one."""
        listing = partial(self._client.list_topics, *names, timeout=timeout)
        found: ClusterMetadata = await asyncio.get_running_loop().run_in_executor(self._threads, listing)
        return found

    async def _answer(self, future: "concurrent.futures.Future[Any] | asyncio.Future[Any]", doing: str) -> Any:
        try:
            return await asyncio.wrap_future(future)
        except KafkaException as error:
            raise self._translated(error, doing) from error

    def _translated(self, error: KafkaException, doing: str) -> Exception:
        self.serve()
        return translate(self._reasons.behind(kafka_error(error)), doing)

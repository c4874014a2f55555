"""What the benchmarks of a run share: one server of each kind, topics that are filled once, and sidecars on them.

Everything is created on first use and kept until the end of the run. Topics are filled before they are consumed, and
every consumer has its own group, so no producer disturbs a measurement.
"""

import tempfile
import threading
import time
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import _pulsar
import pulsar
from confluent_kafka import Producer
from nats.js import JetStreamContext

import offramp
from benchmarks.sidecar import Sidecar
from tests.servers.kafka import QUIET, KafkaServer
from tests.servers.nats import NatsServer
from tests.servers.pulsar import FAST, PulsarServer
from tests.servers.redis import RedisServer, names_of

#: seconds
_FLUSH_TIMEOUT = 300.0
_KEYS = [f"key-{number}" for number in range(1_000)]
#: a heap as in production; servers of tests have less
_KAFKA_JVM = ("-Xms1g", "-Xmx1g", "-XX:+UseSerialGC")


class BenchmarkEnvironment:
    """`quick` makes everything tiny, to check that it runs; the figures then mean nothing."""

    def __init__(self, *, quick: bool) -> None:
        self.quick = quick
        self._topics: set[str] = set()
        #: in the names of topics, since a server may be shared with other environments
        self._mark = f"{time.time_ns():x}"
        self._servers: list[KafkaServer | NatsServer | PulsarServer | RedisServer] = []

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="offramp-bench-", ignore_cleanup_errors=True)
        self.folder = Path(self._folder.name)
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.discard()
        self._folder.cleanup()

    def records(self, wanted: int) -> int:
        return max(50, wanted // 200) if self.quick else wanted

    def seconds(self, wanted: float) -> float:
        return min(wanted, 0.3) if self.quick else wanted

    def times(self, wanted: int) -> int:
        return 1 if self.quick else wanted

    # Servers

    @cached_property
    def kafka(self) -> KafkaServer:
        """Raises `Missing`."""
        server = KafkaServer.create(self.folder / "kafka", jvm=_KAFKA_JVM)
        self._servers.append(server)
        server.start()
        return server

    @cached_property
    def pulsar(self) -> PulsarServer:
        """Raises `Missing`."""
        server = PulsarServer.create(self.folder / "pulsar", jvm=FAST)
        self._servers.append(server)
        server.start()
        return server

    @cached_property
    def nats(self) -> NatsServer:
        """Raises `Missing`."""
        server = NatsServer.create(self.folder / "nats")
        self._servers.append(server)
        server.start()
        return server

    @cached_property
    def redis(self) -> RedisServer:
        """As most run it: its file is written every second. Raises `Missing`."""
        server = RedisServer.create(self.folder / "redis", settings={"appendfsync": "everysec"})
        self._servers.append(server)
        server.start()
        return server

    # Topics

    def kafka_topic(self, *, lanes: int, records: int, size: int) -> str:
        """A topic with this many records of this many bytes, evenly in all lanes, with keys."""
        return self._filled("kafka", partial(_fill_kafka, self.kafka), lanes, records, size)

    def pulsar_topic(self, *, lanes: int, records: int, size: int) -> str:
        return self._filled("pulsar", partial(_fill_pulsar, self.pulsar), lanes, records, size)

    def nats_topic(self, *, lanes: int, records: int, size: int) -> str:
        return self._filled("nats", partial(_fill_nats, self.nats), lanes, records, size)

    def redis_topic(self, *, lanes: int, records: int, size: int) -> str:
        return self._filled("redis", partial(_fill_redis, self.redis), lanes, records, size)

    def local_topic(self, *, lanes: int, records: int, size: int) -> str:
        """The same on the embedded broker, in its own folder."""
        return self._filled("local", self._fill_local, lanes, records, size)

    def _filled(
        self, broker: str, fill: Callable[[str, int, int, int], None], lanes: int, records: int, size: int
    ) -> str:
        topic = f"{broker}-{lanes}-{records}-{size}-{self._mark}"
        if topic not in self._topics:
            fill(topic, lanes, records, size)
            self._topics.add(topic)
        return topic

    def _fill_local(self, topic: str, lanes: int, records: int, size: int) -> None:
        messages = [offramp.Message(b"x" * size, key=key.encode()) for key in _KEYS]
        with (
            self.on_local(topic, lanes=lanes) as sidecar,
            offramp.Publisher(broker="local", address=sidecar.address) as publisher,
        ):
            for first in range(0, records, len(messages)):
                publisher.publish_many(topic, messages[: records - first])

    # Sidecars

    def on_local(self, topic: str, *, lanes: int = 4, **subscription: Any) -> Sidecar:
        """On the embedded broker; an unfilled topic is created by the first publish."""
        options = {"type": "local", "directory": str(self.folder / topic), "lanes": lanes}
        return Sidecar({"local": options}, {"topics": [topic], "group": _group(), **subscription})

    def on_kafka(self, topic: str, **subscription: Any) -> Sidecar:
        options = {"type": "kafka", "servers": [self.kafka.bootstrap]}
        return Sidecar({"kafka": options}, {"broker": "kafka", "topics": [topic], "group": _group(), **subscription})

    def on_pulsar(self, topic: str, kind: str, **subscription: Any) -> Sidecar:
        """`kind` is the subscription type."""
        options = {
            "type": "pulsar",
            "url": self.pulsar.url,
            "admin_url": self.pulsar.admin_url,
            "subscription_type": kind,
            "receiver_queue": 1000,
        }
        return Sidecar({"pulsar": options}, {"broker": "pulsar", "topics": [topic], "group": _group(), **subscription})

    def on_nats(self, topic: str, **subscription: Any) -> Sidecar:
        options = {"type": "nats", "url": self.nats.url, "create_streams": True}
        return Sidecar({"nats": options}, {"broker": "nats", "topics": [topic], "group": _group(), **subscription})

    def on_redis(self, topic: str, **subscription: Any) -> Sidecar:
        options = {"type": "redis", "url": self.redis.url}
        return Sidecar({"redis": options}, {"broker": "redis", "topics": [topic], "group": _group(), **subscription})


def _group() -> str:
    return f"bench-{time.time_ns()}"


def _fill_kafka(server: KafkaServer, topic: str, lanes: int, records: int, size: int) -> None:
    server.make_topic(topic, lanes)
    settings = {**server.settings(), "linger.ms": 20, "batch.size": 1 << 20, "queue.buffering.max.kbytes": 256 << 10}
    producer = Producer(settings, logger=QUIET)
    value = b"x" * size
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, _KEYS[number % 1_000], number % lanes)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(_FLUSH_TIMEOUT):
        raise RuntimeError(f"{topic} could not be filled")


def _fill_pulsar(server: PulsarServer, topic: str, lanes: int, records: int, size: int) -> None:
    server.make_topic(topic, lanes)
    client = pulsar.Client(server.url, logger=pulsar.FileLogger(_pulsar.LoggerLevel.Error, "/dev/null"))
    # Pulsar may remove what every subscription has acked; this one never acks.
    client.subscribe(topic, "keeper", initial_position=pulsar.InitialPosition.Earliest, receiver_queue_size=1).close()
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_publish_delay_ms=5,
        block_if_queue_full=True,
        message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
    )
    in_flight = threading.Semaphore(5_000)
    value = b"x" * size
    for number in range(records):
        in_flight.acquire()
        producer.send_async(value, lambda result, id_: in_flight.release(), partition_key=_KEYS[number % 1_000])
    producer.flush()
    client.close()


def _fill_nats(server: NatsServer, topic: str, lanes: int, records: int, size: int) -> None:
    server.make_topic(topic, lanes)
    subjects = [topic, *(f"{topic}.{number}" for number in range(1, lanes))]

    async def body(stream: JetStreamContext) -> None:
        value = b"x" * size
        for number in range(records):
            await stream.publish_async(subjects[number % lanes], value, wait_stall=60.0)
        await stream.publish_async_completed()

    server.ask(body)


def _fill_redis(server: RedisServer, topic: str, lanes: int, records: int, size: int) -> None:
    names = names_of(topic, lanes)
    with server.client() as client:
        for first in range(0, records, 1_000):
            pipe = client.pipeline(transaction=False)
            for number in range(first, min(first + 1_000, records)):
                pipe.xadd(names[number % lanes], {"key": _KEYS[number % 1_000], "value": b"x" * size})
            pipe.execute()

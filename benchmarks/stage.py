"""What the benchmarks of a run share: one Kafka, one Pulsar, topics that are filled once, and sidecars on them.

Everything is made when it is first asked for and kept until the end of the run. Topics are filled before anybody
consumes them, and every consumer has a group of its own, so no producer is in the way of what is measured.
"""

import tempfile
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from benchmarks import filling
from benchmarks.sidecar import Sidecar
from tests.servers.kafka import KafkaServer
from tests.servers.pulsar import FAST, PulsarServer

#: as anybody's broker, not as that of a test
_KAFKA_JVM = ("-Xms1g", "-Xmx1g", "-XX:+UseSerialGC")


class Stage:
    """`quick`: everything is tiny, to try that it runs; the figures mean nothing then."""

    def __init__(self, *, quick: bool) -> None:
        self.quick = quick
        self._topics: set[str] = set()
        self._servers: list[KafkaServer | PulsarServer] = []

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

    # Topics

    def kafka_topic(self, *, lanes: int, records: int, size: int) -> str:
        """One that has so many records of so many bytes, evenly in all lanes, with keys."""
        return self._filled(
            f"kafka-{lanes}-{records}-{size}",
            lambda topic: filling.kafka(self.kafka, topic, lanes=lanes, records=records, size=size),
        )

    def pulsar_topic(self, *, lanes: int, records: int, size: int) -> str:
        return self._filled(
            f"pulsar-{lanes}-{records}-{size}",
            lambda topic: filling.pulsar_topic(self.pulsar, topic, lanes=lanes, records=records, size=size),
        )

    def local_topic(self, *, lanes: int, records: int, size: int) -> str:
        """On the embedded broker, in a folder of its own."""
        return self._filled(
            f"local-{lanes}-{records}-{size}", lambda topic: self._fill_local(topic, lanes, records, size)
        )

    def _fill_local(self, topic: str, lanes: int, records: int, size: int) -> None:
        with self.on_local(topic, lanes=lanes) as sidecar:
            filling.local(sidecar.address, topic, records=records, size=size)

    def _filled(self, topic: str, fill: Callable[[str], None]) -> str:
        if topic not in self._topics:
            fill(topic)
            self._topics.add(topic)
        return topic

    # Sidecars

    def on_local(self, topic: str, *, lanes: int = 4, **subscription: Any) -> Sidecar:
        """On the embedded broker; a topic that is not filled is made when something is published."""
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


def _group() -> str:
    return f"bench-{time.time_ns()}"

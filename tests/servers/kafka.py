"""A real Apache Kafka of one node: `kafka = KafkaServer.create(folder); kafka.start()`.

It listens in the clear, with SASL, with TLS and with both. Who comes without SASL, and the user `ADMIN`, may do
everything; `READER` may do what a test grants it. Groups are quick: members join within a second, and a member that
is silent for six seconds is out.
"""

import base64
import functools
import json
import logging
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.servers import certificates
from tests.servers.maven import Jars
from tests.servers.process import SERVER_TIMEOUT, ServerProcess, free_ports
from tests.servers.server import Server
from tests.servers.tools import tool

VERSION = "4.3.1"
JARS = Jars(
    "kafka-server",
    VERSION,
    [f"org.apache.kafka:kafka_2.13:{VERSION}", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"],
    megabytes=45,
)


T = TypeVar("T")

_COORDINATOR_MOVES = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
)


class User(NamedTuple):
    name: str
    password: str


ADMIN = User("admin", "admin-secret")
READER = User("reader", "reader-secret")

#: small, and quick to start rather than quick in the long run
SMALL = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")

#: what one small node needs, and what makes groups quick
_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,PROXIED:PLAINTEXT"
    ),
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "ssl.keystore.type": "PEM",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;User:{ADMIN.name}",
    "auto.create.topics.enable": "false",
    # A server that comes back after kill -9 is let in when its earlier life is thought dead.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "log.cleaner.threads": "1",
    "log.cleaner.backoff.ms": "500",
    # Tests write records with old timestamps; where retention is wanted, a topic says so.
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "500",
    "log.initial.task.delay.ms": "500",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # Also how long librdkafka waits for the answer to a heartbeat: no shorter, for the sake of a busy machine.
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.coordinator.append.linger.ms": "0",
}


class Proxied(NamedTuple):
    """One more listener, in the clear, whose clients are told to come by somebody else: a proxy that a test has."""

    #: host:port where Kafka listens, and where its clients find it
    at: str
    by: str


@dataclass(frozen=True)
class Addresses:
    """host:port of each listener."""

    plain: str
    sasl: str
    ssl: str
    sasl_ssl: str
    controller: str

    @classmethod
    def free(cls) -> "Addresses":
        return cls(*(f"127.0.0.1:{port}" for port in free_ports(5)))


class KafkaServer(Server):
    name = "Kafka"

    def __init__(
        self,
        folder: Path,
        addresses: Addresses,
        *,
        jvm: Sequence[str] = SMALL,
        owner: int | None = None,
        process: ServerProcess | None = None,
    ) -> None:
        super().__init__(folder, jvm=jvm, owner=owner, process=process)
        self.addresses = addresses

    @classmethod
    def create(
        cls,
        folder: Path,
        *,
        properties: Mapping[str, str] | None = None,
        jvm: tuple[str, ...] = SMALL,
        owner: int | None = None,
        proxied: Proxied | None = None,
    ) -> "KafkaServer":
        """Not started yet. `properties` come on top of those that make it small and quick; the server ends with the
        process `owner`, which is this one unless told otherwise. Raises `Missing`."""
        server = cls(folder, Addresses.free(), jvm=jvm, owner=owner)
        folder.mkdir(parents=True, exist_ok=True)
        server._write_configuration(properties or {}, proxied)
        server._format()
        return server

    # Addresses

    @property
    def bootstrap(self) -> str:
        """For clients that need no credentials."""
        return self.addresses.plain

    @property
    def ca(self) -> Path:
        """What clients of the TLS listeners trust."""
        return self.folder / "certificates" / "ca.pem"

    def settings(self, *, user: User | None = None, mechanism: str = "PLAIN", tls: bool = False) -> dict[str, str]:
        """For a client of librdkafka, by the listener that has these."""
        protocol, address = {
            (False, False): ("plaintext", self.addresses.plain),
            (True, False): ("sasl_plaintext", self.addresses.sasl),
            (False, True): ("ssl", self.addresses.ssl),
            (True, True): ("sasl_ssl", self.addresses.sasl_ssl),
        }[user is not None, tls]
        settings = {"bootstrap.servers": address, "security.protocol": protocol}
        if user is not None:
            settings |= {"sasl.mechanism": mechanism, "sasl.username": user.name, "sasl.password": user.password}
        if tls:
            settings["ssl.ca.location"] = str(self.ca)
        return settings

    @functools.cached_property
    def admin(self) -> AdminClient:
        """Somebody who may do everything."""
        return AdminClient(dict(self.settings()), logger=QUIET)

    def make_topic(self, topic: str, lanes: int = 1, **config: str) -> None:
        """A new one, known to the broker when this returns. Dots of the names of `config` are written as `_`."""
        named = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([NewTopic(topic, lanes, config=named)])[topic].result(SERVER_TIMEOUT)

    def publish(
        self, topic: str, *values: bytes | None, lane: int = 0, keys: Sequence[bytes | None] | None = None
    ) -> None:
        """By a plain producer, as anybody's: acknowledged when this returns."""
        producer = Producer(dict(self.settings()), logger=QUIET)
        failed: list[KafkaError] = []
        for value, key in zip(values, keys or [None] * len(values), strict=True):
            producer.produce(topic, value, key, lane, lambda error, _: failed.append(error) if error else None)
        assert producer.flush(SERVER_TIMEOUT) == 0
        assert not failed, failed

    def committed(self, group: str, topic: str, lanes: Sequence[int]) -> dict[int, tuple[int, str | None]]:
        """What a group has told the broker, by partition: offset (-1001 for none) and metadata.

        Asked by a consumer that never joins. Not by the admin client: librdkafka 2.16 crashes the process there when
        the group's coordinator is just starting.
        """
        consumer = Consumer({**self.settings(), "group.id": group}, logger=QUIET)
        wanted = [TopicPartition(topic, lane) for lane in lanes]
        try:
            found = patiently(lambda: consumer.committed(wanted, timeout=3.0))
        finally:
            consumer.close()
        return {one.partition: (one.offset, one.metadata) for one in found}

    def describe(self) -> str:
        at = self.addresses
        sasl = f"SASL (PLAIN, SCRAM-SHA-256; {ADMIN.name} / {ADMIN.password}) at {at.sasl}"
        return f"Kafka {VERSION} at {at.plain}; {sasl}, TLS at {at.ssl}, both at {at.sasl_ssl}"

    # Life

    def _command(self) -> list[str]:
        classes = f"{self.folder}{os.pathsep}{JARS.fetch()}/*"
        return [tool("java"), *self._jvm, "-cp", classes, "kafka.Kafka", str(self.folder / "server.properties")]

    def _answers(self) -> bool:
        try:
            if not self.admin.list_topics(timeout=0.5).brokers:
                return False
            # The first question for a group makes the topic of the offsets, which takes a second.
            self.committed("nobody", "nothing", [0])
        except KafkaException:
            return False
        return True

    # So that other processes of a test run can use it

    def to_json(self) -> str:
        return json.dumps({"folder": str(self.folder), "addresses": vars(self.addresses), "pid": self.pid})

    @classmethod
    def from_json(cls, text: str) -> "KafkaServer":
        told: dict[str, Any] = json.loads(text)
        process = ServerProcess(told["pid"])
        return cls(Path(told["folder"]), Addresses(**told["addresses"]), process=process)

    # Making it

    def _write_configuration(self, properties: Mapping[str, str], proxied: Proxied | None) -> None:
        made = certificates.make(self.folder / "certificates")
        both = self.folder / "certificates" / "keystore.pem"
        both.write_text(made.key.read_text() + made.certificate.read_text())
        at = self.addresses
        listeners = f"PLAINTEXT://{at.plain},SASL://{at.sasl},SSL://{at.ssl},SASL_SSL://{at.sasl_ssl}"
        advertised = listeners
        if proxied is not None:
            listeners, advertised = f"{listeners},PROXIED://{proxied.at}", f"{advertised},PROXIED://{proxied.by}"
        module = "org.apache.kafka.common.security"
        users = " ".join(f'user_{name}="{password}"' for name, password in (ADMIN, READER))
        scram = {
            f"listener.name.{listener}.{mechanism}.sasl.jaas.config": f"{login} required;"
            for listener in ("sasl", "sasl_ssl")
            for mechanism, login in {
                "plain": f"{module}.plain.PlainLoginModule",
                "scram-sha-256": f"{module}.scram.ScramLoginModule",
            }.items()
        }
        plain = {name: text.replace("required", f"required {users}") for name, text in scram.items() if "plain" in name}
        lines = {
            **_PROPERTIES,
            "listeners": f"{listeners},CONTROLLER://{at.controller}",
            "advertised.listeners": advertised,
            "controller.quorum.voters": f"1@{at.controller}",
            "log.dirs": str(self.folder / "data"),
            "ssl.keystore.location": str(both),
            **scram,
            **plain,
            **properties,
        }
        (self.folder / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        self._write_log_settings()

    def _format(self) -> None:
        scram = [f"SCRAM-SHA-256=[name={user.name},password={user.password}]" for user in (ADMIN, READER)]
        command = [
            *(tool("java"), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-cp", f"{JARS.fetch()}/*", "kafka.tools.StorageTool", "format"),
            *("-t", _uuid(), "-c", str(self.folder / "server.properties")),
            *(word for one in scram for word in ("--add-scram", one)),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SERVER_TIMEOUT, check=False)
        assert done.returncode == 0, f"Kafka's storage could not be made: {done.stdout}{done.stderr}"


#: for clients of the tests: that a server is away is part of the play
QUIET = logging.getLogger("tests.servers.quiet")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


def _uuid() -> str:
    """As Kafka writes it, but never with a hyphen in front: that would be taken for an option."""
    return base64.urlsafe_b64encode(b"o" + os.urandom(15)).decode().rstrip("=")


def patiently(ask: Callable[[], T]) -> T:
    """Ask until the coordinator of a group answers. A broker that has just started, or was frozen, says for a
    moment that it is moving."""
    ends = time.monotonic() + SERVER_TIMEOUT
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _COORDINATOR_MOVES or time.monotonic() > ends:
                raise
            time.sleep(0.1)

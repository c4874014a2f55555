"""A Kafka. How far the group was is read from Kafka's own log of commits: every one that there ever was."""

import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.chaos.brokers.base import Broker, RoundTopic, name_of
from tests.chaos.brokers.side_topics import dead_letter_of, parked_record_of
from tests.chaos.faults import FaultKind
from tests.chaos.history import RETRY, TOPIC, BrokerSnapshot, Commit, Stored
from tests.chaos.plan import SESSION, Plan
from tests.chaos.proxy_process import ProxyProcess
from tests.e2e.kafka.snapshot import headers_of, progress, read, runs_beyond
from tests.e2e.load.journal import Spot
from tests.servers.kafka import QUIET, KafkaServer, Proxied
from tests.servers.process import free_ports

#: lanes of the retry topic, unless told otherwise
_RETRY_LANES = 8
_COMMITS = "__consumer_offsets"
#: seconds; Kafka writes times in whole milliseconds
_BLUR = 0.005
_READ_TIMEOUT = 20.0


class KafkaBroker(Broker):
    # Its threads spin once the time goes back, and take the machine from everybody else.
    cannot: Mapping[FaultKind, str] = {FaultKind.JUMP_CLOCK: "libfaketime does not reach the waits of librdkafka"}
    server: KafkaServer
    proxy: ProxyProcess

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        at, by = (f"127.0.0.1:{port}" for port in free_ports(2))
        session = f"{SESSION * 1000:.0f}"
        self.server = KafkaServer.create(
            folder / "kafka",
            proxied=Proxied(at, by),
            # No commit is ever removed from the log, so that all can be looked at.
            properties={"group.consumer.session.timeout.ms": session, "log.cleaner.enable": "false"},
        )
        self.server.start()
        self.proxy = ProxyProcess(at, by)

    def new_topic(self, plan: Plan, folder: Path) -> RoundTopic:
        name = name_of(plan)
        self.server.make_topic(name, plan.lanes)
        return KafkaTopic(self, name, plan)


class KafkaTopic(RoundTopic):
    def __init__(self, broker: KafkaBroker, name: str, plan: Plan) -> None:
        super().__init__(name)
        self._kafka = broker.server
        self._proxy = broker.proxy
        self._plan = plan
        self._began = dict(_ends(self._kafka))
        #: what to add to the time of day to get to the clock of the journals
        self._shift = time.monotonic() - time.time()

    @property
    def broker_settings(self) -> Mapping[str, Any]:
        properties = {"client.id": self.name}
        if self._plan.variant == "classic":
            properties |= {"session.timeout.ms": f"{SESSION * 1000:.0f}", "heartbeat.interval.ms": "500"}
        told = {"servers": [self._proxy.address], "group_protocol": self._plan.variant, "properties": properties}
        return {"type": "kafka", **told}

    def publisher_address(self, socket: str) -> str:
        return self._kafka.bootstrap

    def commits(self) -> list[Commit]:
        return []

    def is_done(self) -> bool:
        try:
            return (
                progress(self._kafka, self.group, self.name, self._plan.lanes).is_done
                and progress(self._kafka, self._retry, self._retry, _RETRY_LANES).is_done
            )
        except KafkaException:
            return False

    def snapshot(self) -> BrokerSnapshot:
        snapshot = BrokerSnapshot(commits=[*self._logged_commits()])
        for message in read(self._kafka, self.name):
            spot = Spot(message.partition() or 0, message.offset() or 0)
            snapshot.records[spot] = Stored(_text(message.key()), (message.value() or b"").decode())
        for message in read(self._kafka, f"{self.group}.offramp.dead"):
            value = (message.value() or b"").decode()
            snapshot.dead_letters.append(dead_letter_of(_text(message.key()), value, headers_of(message)))
        for message in read(self._kafka, self._retry):
            spot = Spot(message.partition() or 0, message.offset() or 0)
            snapshot.parked.append(parked_record_of(spot, headers_of(message)))
        return snapshot

    @property
    def _retry(self) -> str:
        """The retry topic, and the group that consumes it."""
        return f"{self.group}.offramp.retry"

    def _logged_commits(self) -> Iterator[Commit]:
        names = {(self.group, self.name): TOPIC, (self._retry, self._retry): RETRY}
        for message in read(self._kafka, _COMMITS, self._began):
            commit = _offset_commit(message.key() or b"", message.value())
            if commit is not None and (commit.group, commit.topic) in names:
                runs = ((0, commit.offset), *runs_beyond(commit.offset, commit.metadata))
                at = commit.timestamp_ms / 1000 + self._shift + _BLUR
                yield Commit(at, names[commit.group, commit.topic], commit.lane, runs)


class _OffsetCommit(NamedTuple):
    group: str
    topic: str
    lane: int
    offset: int
    metadata: str
    timestamp_ms: int


def _offset_commit(key: bytes, value: bytes | None) -> _OffsetCommit | None:
    """A line of Kafka's log of commits: `OffsetCommitKey` and `OffsetCommitValue` of its own format."""
    (version,) = struct.unpack_from(">h", key)
    # Others are of groups and their members; without a value it was removed.
    if version not in (0, 1) or value is None:
        return None
    group, at = _string(key, 2)
    topic, at = _string(key, at)
    (lane,) = struct.unpack_from(">i", key, at)
    form, offset = struct.unpack_from(">hq", value)
    assert 3 <= form <= 4, f"form {form} of a commit is not known"
    metadata, at = (_string if form == 3 else _compact)(value, 2 + 8 + 4)
    (timestamp_ms,) = struct.unpack_from(">q", value, at)
    # The client library of the sidecar ends a text with a zero, as C does.
    return _OffsetCommit(group, topic, lane, offset, metadata.rstrip("\0"), timestamp_ms)


def _string(raw: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", raw, at)
    return raw[at + 2 : at + 2 + size].decode(), at + 2 + size


def _compact(raw: bytes, at: int) -> tuple[str, int]:
    """As newer formats have them: the length plus one, seven bits a byte, the lowest first."""
    size = shift = 0
    while True:
        byte = raw[at]
        size |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            break
    return raw[at : at + size - 1].decode(), at + size - 1


def _ends(kafka: KafkaServer) -> Iterator[tuple[int, int]]:
    """Of the log of commits, so that a round need not read those of the rounds before it."""
    consumer = Consumer({**kafka.settings(), "group.id": "offramp-chaos"}, logger=QUIET)
    try:
        for lane in consumer.list_topics(_COMMITS, _READ_TIMEOUT).topics[_COMMITS].partitions:
            yield lane, consumer.get_watermark_offsets(TopicPartition(_COMMITS, lane), _READ_TIMEOUT)[1]
    finally:
        consumer.close()


def _text(key: bytes | None) -> str | None:
    return key.decode() if key else None

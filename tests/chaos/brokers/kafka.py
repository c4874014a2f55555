"""A Kafka. Its own log tells every commit that there ever was, and which sidecar had which lane."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.chaos.brokers.base import Broker, RoundTopic, name_of
from tests.chaos.brokers.kafka_log import Line, OffsetCommit, read_log
from tests.chaos.brokers.side_topics import dead_letter_of, parked_record_of
from tests.chaos.checker.history import RETRY, TOPIC, BrokerSnapshot, Commit, Owner, Stored
from tests.chaos.faults import FaultKind
from tests.chaos.plan import SESSION, Plan
from tests.chaos.proxy_process import ProxyProcess
from tests.e2e.kafka.snapshot import headers_of, progress, read, runs_beyond
from tests.e2e.load.journal import Spot
from tests.servers.kafka import QUIET, KafkaServer, Proxied
from tests.servers.process import free_ports

#: lanes of the retry topic, unless told otherwise
_RETRY_LANES = 8
_LOG = "__consumer_offsets"
#: seconds; Kafka writes times in whole milliseconds
_BLUR = 0.005
_READ_TIMEOUT = 20.0


class KafkaBroker(Broker):
    # Its threads spin once the time goes back, and use all of the machine.
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
            # Nothing is ever removed from the log of groups, so that all can be looked at.
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

    def broker_settings(self, who: str) -> Mapping[str, Any]:
        properties = {"client.id": who}
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
        snapshot = BrokerSnapshot()
        self._read_log(snapshot)
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

    def _read_log(self, snapshot: BrokerSnapshot) -> None:
        names = {(self.group, self.name): TOPIC, (self._retry, self._retry): RETRY}
        messages = read(self._kafka, _LOG, self._began)
        for line in read_log(Line(one.key() or b"", one.value(), one.timestamp()[1]) for one in messages):
            at = line.timestamp_ms / 1000 + self._shift + _BLUR
            if isinstance(line, OffsetCommit):
                if name := names.get((line.group, line.topic)):
                    runs = ((0, line.offset), *runs_beyond(line.offset, line.metadata))
                    snapshot.commits.append(Commit(at, name, line.lane, runs))
            elif line.group == self.group:
                snapshot.owners += [
                    Owner(at, lane, tuple(sorted(who for who, lanes in line.lanes.items() if lane in lanes)))
                    for lane in range(self._plan.lanes)
                ]


def _ends(kafka: KafkaServer) -> Iterator[tuple[int, int]]:
    """Of the log of groups, so that a round need not read those of the rounds before it."""
    consumer = Consumer({**kafka.settings(), "group.id": "offramp-chaos"}, logger=QUIET)
    try:
        for lane in consumer.list_topics(_LOG, _READ_TIMEOUT).topics[_LOG].partitions:
            yield lane, consumer.get_watermark_offsets(TopicPartition(_LOG, lane), _READ_TIMEOUT)[1]
    finally:
        consumer.close()


def _text(key: bytes | None) -> str | None:
    return key.decode() if key else None

"""A real Kafka for the shared suites, and helpers for tests of Kafka alone."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer as PlainConsumer
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from sidecar.brokers.base import Revoked, Source, SourceSpec
from sidecar.brokers.kafka import KafkaBroker, KafkaOptions
from sidecar.brokers.kafka.options import GroupProtocol
from sidecar.model.errors import Unavailable
from sidecar.model.records import Lane
from tests.brokers.harness import WAIT_TIMEOUT, BrokerPerSidecar, Consumer, name
from tests.servers.kafka import QUIET, READER, KafkaServer
from tests.servers.kafka_groups import give_to_others
from tests.servers.process import await_

#: the protocols by which a group assigns lanes
BOTH = pytest.mark.parametrize("protocol", [GroupProtocol.CONSUMER, GroupProtocol.CLASSIC])


class KnownBroker(KafkaBroker):
    """A broker whose members can be recognised from outside, by its client id."""

    def __init__(self, options: KafkaOptions) -> None:
        super().__init__(options)
        self.client_id = options.properties["client.id"]
        self.groups: dict[Source, str] = {}

    def subscribe(self, spec: SourceSpec) -> Source:
        source = super().subscribe(spec)
        self.groups[source] = spec.group
        return source


class KafkaHarness(BrokerPerSidecar[KnownBroker]):
    def __init__(self, server: KafkaServer, protocol: GroupProtocol = GroupProtocol.CONSUMER) -> None:
        super().__init__()
        self._server = server
        self._protocol = protocol

    async def lose(self, source: Source) -> None:
        (broker,) = (broker for broker in self._brokers if source in broker.groups)
        await asyncio.to_thread(give_to_others, self._server, broker.groups[source], broker.client_id)

    def _create(self) -> KnownBroker:
        # Small, because the library delivers what it has fetched of one lane before it fetches from another.
        return KnownBroker(options(self._server, group_protocol=self._protocol, fetch_buffer=1 << 20))


def options(server: KafkaServer, **more: Any) -> KafkaOptions:
    """Options for the listener without authentication, by default."""
    properties = {
        "client.id": name("client"),
        # Assigns the lanes of each topic evenly, whatever other topics there are.
        "group.remote.assignor": "range",
        # For the classic protocol; with the other one the broker sets these.
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "200",
        **more.pop("properties", {}),
    }
    settings = {"servers": (server.bootstrap,), "create_topics": True, "properties": properties, **more}
    if settings.get("group_protocol") is GroupProtocol.CONSUMER:
        del properties["session.timeout.ms"], properties["heartbeat.interval.ms"]
    elif settings.get("group_protocol") is GroupProtocol.CLASSIC:
        del properties["group.remote.assignor"]
    else:
        # The protocol is not known yet, and each refuses settings of the other.
        del properties["session.timeout.ms"], properties["heartbeat.interval.ms"], properties["group.remote.assignor"]
    return KafkaOptions(**settings)


@asynccontextmanager
async def running(server: KafkaServer, **more: Any) -> AsyncIterator[KafkaBroker]:
    """An open broker. Retries to open it, as the core does: a Kafka that was frozen takes a moment to find its
    controller again."""
    broker = KafkaBroker(options(server, **more))
    async with asyncio.timeout(WAIT_TIMEOUT):
        while True:
            with contextlib.suppress(Unavailable):
                await broker.open()
                break
    try:
        yield broker
    finally:
        await broker.close()


async def shared_out(first: Consumer, second: Consumer, lanes: int) -> set[Lane]:
    """Polls both until the second has half of the lanes. Returns those."""
    deadline = time.monotonic() + WAIT_TIMEOUT
    while len(second.assigned()) < lanes // 2:
        assert time.monotonic() < deadline, f"not shared out: {first.polls} {second.polls}"
        await asyncio.gather(first.poll(timeout=0.05), second.poll(timeout=0.05))
        for event in first.events:
            if isinstance(event, Revoked):
                await first.source.release(event.lanes)
    return set(second.assigned())


def open_transaction(kafka: KafkaServer, topic: str, *values: bytes) -> Producer:
    """Publishes values in a transaction that is not committed yet."""
    producer = Producer({**kafka.settings(), "transactional.id": name("transaction")}, logger=QUIET)
    producer.init_transactions(20)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(20) == 0
    return producer


def transaction(kafka: KafkaServer, topic: str, *values: bytes, commit: bool = True) -> None:
    """Publishes values in one transaction, which leaves a marker behind them."""
    producer = open_transaction(kafka, topic, *values)
    producer.commit_transaction(20) if commit else producer.abort_transaction(20)


def move_group(kafka: KafkaServer, group: str, *positions: TopicPartition) -> None:
    """As `kafka-consumer-groups.sh --reset-offsets` does."""
    tool = PlainConsumer({**kafka.settings(), "group.id": group}, logger=QUIET)
    tool.commit(offsets=[*positions], asynchronous=False)
    tool.close()


def recreate_topic(kafka: KafkaServer, topic: str) -> None:
    """Deletes a topic, and creates another with its name."""
    kafka.admin.delete_topics([topic])[topic].result(20)
    await_(lambda: topic not in kafka.admin.list_topics(timeout=10).topics, "the topic is gone")
    kafka.make_topic(topic)


def right(
    kind: ResourceType,
    name: str,
    operation: AclOperation = AclOperation.READ,
    *,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    """What `READER` may do; with the permission `DENY`, what it may not."""
    return AclBinding(kind, name, pattern, f"User:{READER.name}", "*", operation, permission)


def grant(kafka: KafkaServer, binding: AclBinding) -> None:
    for answer in kafka.admin.create_acls([binding]).values():
        answer.result(20)


def revoke(kafka: KafkaServer, binding: AclBinding) -> None:
    one = binding
    where = (one.restype, one.name, one.resource_pattern_type, one.principal, one.host)
    found = AclBindingFilter(*where, one.operation, one.permission_type)
    for answer in kafka.admin.delete_acls([found]).values():
        answer.result(20)

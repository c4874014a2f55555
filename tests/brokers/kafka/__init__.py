"""A real Kafka for the shared suites, and helpers for tests of Kafka alone."""

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka import Producer

from sidecar.brokers.base import Broker, Revoked, Source, SourceSpec
from sidecar.brokers.kafka import KafkaBroker, KafkaOptions
from sidecar.brokers.kafka.options import GroupProtocol
from sidecar.model.errors import Unavailable
from sidecar.model.records import Lane
from tests.brokers.harness import WAIT_TIMEOUT, Consumer
from tests.servers.kafka import QUIET, KafkaServer
from tests.servers.kafka_groups import give_to_others

#: the protocols by which a group assigns lanes
BOTH = pytest.mark.parametrize("protocol", [GroupProtocol.CONSUMER, GroupProtocol.CLASSIC])

_numbers = itertools.count(1)
#: part of names, because processes of tests share a server
_PROCESS = os.urandom(3).hex()


def name(kind: str) -> str:
    """A unique name for a topic or a group."""
    return f"{kind}-{_PROCESS}-{next(_numbers)}"


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


class KafkaHarness:
    """Each sidecar has a broker object of its own."""

    def __init__(self, server: KafkaServer, protocol: GroupProtocol = GroupProtocol.CONSUMER) -> None:
        self._server = server
        self._protocol = protocol
        self._lives: list[KnownBroker] = []

    async def start(self) -> Broker:
        return await self._open()

    async def restart(self) -> Broker:
        await self._lives.pop().close()
        return await self._open()

    async def crash(self) -> Broker:
        """The broker of the crashed sidecar is closed only at the end of the test."""
        return await self._open()

    async def sibling(self) -> Broker:
        return await self._open()

    async def lose(self, source: Source) -> None:
        (broker,) = (life for life in self._lives if source in life.groups)
        await asyncio.to_thread(give_to_others, self._server, broker.groups[source], broker.client_id)

    async def stop(self) -> None:
        for broker in self._lives:
            await broker.close()

    async def _open(self) -> Broker:
        # Small, because the library delivers what it has fetched of one lane before it fetches from another.
        broker = KnownBroker(options(self._server, group_protocol=self._protocol, fetch_buffer=1 << 20))
        await broker.open()
        self._lives.append(broker)
        return broker


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


@asynccontextmanager
async def consuming(broker: KafkaBroker, *topics: str, group: str, **spec: Any) -> AsyncIterator[Consumer]:
    """A consumer of an open source."""
    consumer = Consumer(broker.subscribe(SourceSpec(group, topics, **spec)))
    await consumer.source.open()
    try:
        yield consumer
    finally:
        await consumer.close()


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


def transaction(kafka: KafkaServer, topic: str, *values: bytes, commit: bool = True) -> None:
    """Publishes values in one transaction, which leaves a marker behind them."""
    producer = Producer({**kafka.settings(), "transactional.id": name("transaction")}, logger=QUIET)
    producer.init_transactions(20)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(20)
    producer.commit_transaction(20) if commit else producer.abort_transaction(20)

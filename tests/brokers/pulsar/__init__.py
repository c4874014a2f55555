"""A real Pulsar for the shared suites, and helpers for tests of Pulsar alone."""

import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sidecar.brokers.base import Broker, Source, SourceSpec
from sidecar.brokers.pulsar import PulsarBroker, PulsarOptions
from sidecar.brokers.pulsar.options import SubscriptionType
from sidecar.settings import Seconds
from tests.brokers.harness import Consumer
from tests.servers.process import await_
from tests.servers.pulsar import PulsarServer

_numbers = itertools.count(1)
#: part of names, because processes of tests share a server
_PROCESS = os.urandom(3).hex()


def name(kind: str) -> str:
    """A unique name for a topic or a group."""
    return f"{kind}-{_PROCESS}-{next(_numbers)}"


def await_no_backlog(server: PulsarServer, topic: str, group: str) -> None:
    """Acks have no receipt, so the broker may get them a moment later."""
    await_(lambda: server.backlog(topic, group) == 0, "everything is acked")


class PulsarHarness:
    """Each sidecar has a broker object of its own."""

    def __init__(self, server: PulsarServer, kind: SubscriptionType) -> None:
        self._options = options(server, subscription_type=kind)
        self._lives: list[PulsarBroker] = []

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
        raise NotImplementedError("Pulsar moves lanes without an event")

    async def stop(self) -> None:
        for broker in self._lives:
            await broker.close()

    async def _open(self) -> Broker:
        broker = PulsarBroker(self._options)
        await broker.open()
        self._lives.append(broker)
        return broker


def options(server: PulsarServer, **more: Any) -> PulsarOptions:
    """Options for the port without authentication, by default."""
    settings = {"url": server.url, "admin_url": server.admin_url, "discover_every": Seconds(0.5), **more}
    return PulsarOptions(**settings)


@asynccontextmanager
async def running(server: PulsarServer, **more: Any) -> AsyncIterator[PulsarBroker]:
    """An open broker."""
    broker = PulsarBroker(options(server, **more))
    await broker.open()
    try:
        yield broker
    finally:
        await broker.close()


@asynccontextmanager
async def consuming(broker: PulsarBroker, *topics: str, group: str, **spec: Any) -> AsyncIterator[Consumer]:
    """A consumer of an open source."""
    consumer = Consumer(broker.subscribe(SourceSpec(group, topics, **spec)))
    await consumer.source.open()
    try:
        yield consumer
    finally:
        await consumer.close()

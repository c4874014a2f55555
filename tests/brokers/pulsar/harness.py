"""A real Pulsar for the shared suites, and helpers for tests of Pulsar alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sidecar.brokers.pulsar import PulsarBroker, PulsarOptions
from sidecar.brokers.pulsar.options import SubscriptionType
from sidecar.settings import Seconds
from tests.brokers.harness import BrokerPerSidecar, Harness
from tests.e2e.pulsar.snapshot import client_of
from tests.servers.process import await_
from tests.servers.pulsar import PulsarServer


def await_no_backlog(server: PulsarServer, topic: str, group: str) -> None:
    """Acks have no receipt, so the broker may get them a moment later."""
    await_(lambda: server.backlog(topic, group) == 0, "everything is acked")


def publish_batches(server: PulsarServer, topic: str, *values: bytes, size: int = 0) -> None:
    """Publishes values to the first lane as a plain producer does: in entries of `size`, or all in one."""
    settings: dict[str, Any] = {
        "batching_enabled": True,
        # It must be more than one.
        "batching_max_messages": max(2, size or len(values)),
        "batching_max_allowed_size_in_bytes": 1 << 20,
        "batching_max_publish_delay_ms": 60_000,
        "max_pending_messages": len(values),
    }
    with client_of(server) as client:
        producer = client.create_producer(f"{topic}-partition-0", **settings)
        for value in values:
            producer.send_async(value, None)
        producer.flush()


async def reset_cursor(server: PulsarServer, topic: str, group: str) -> None:
    """As `pulsar-admin topics reset-cursor` does: the group has acked nothing."""
    path = f"persistent/public/default/{topic}-partition-0/subscription/{group}/resetcursor/0"
    await asyncio.to_thread(server.admin, "POST", path)


class PulsarHarness(BrokerPerSidecar[PulsarBroker]):
    def __init__(self, server: PulsarServer, kind: SubscriptionType) -> None:
        super().__init__()
        self._options = options(server, subscription_type=kind)

    def _create(self) -> PulsarBroker:
        return PulsarBroker(self._options)


class OnPulsar:
    """The harness of a shared suite, with one type of subscription."""

    kind: SubscriptionType

    @pytest.fixture
    def harness(self, pulsar: PulsarServer) -> Harness:
        return PulsarHarness(pulsar, self.kind)


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

"""A real NATS for the shared suites, and helpers for tests of NATS alone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sidecar.brokers.nats import NatsOptions
from sidecar.brokers.nats.driver import NatsBroker
from sidecar.brokers.nats.receiver import NatsReceiver
from sidecar.model.clock import Clock
from sidecar.model.records import Lane, Start
from sidecar.settings import Seconds
from tests.brokers.harness import BrokerPerSidecar
from tests.servers.nats import NatsServer

#: what never comes, for tests that move the clock of the sidecar forward, and not that of the server
NEVER = Seconds(1e9)


class NatsHarness(BrokerPerSidecar[NatsBroker]):
    def __init__(self, server: NatsServer, clock: Clock | None = None, **more: Any) -> None:
        super().__init__()
        self._server = server
        self._clock = clock
        self._more = more

    def _create(self) -> NatsBroker:
        return NatsBroker(options(self._server, **self._more), self._clock)


def options(server: NatsServer, **more: Any) -> NatsOptions:
    return NatsOptions(**{"url": server.url, "create_streams": True, **more})


@asynccontextmanager
async def running(server: NatsServer, **more: Any) -> AsyncIterator[NatsBroker]:
    """An open broker of a sidecar."""
    broker = NatsBroker(options(server, **more))
    await broker.open()
    try:
        yield broker
    finally:
        await broker.close()


@asynccontextmanager
async def receiving(
    broker: NatsBroker, topic: str, group: str, start: Start = Start.EARLIEST
) -> AsyncIterator[NatsReceiver]:
    """What a group receives from a topic of one lane."""
    driver = broker.driver
    receiver = await driver.receiver(Lane(topic, 0), group, start)
    assert isinstance(receiver, NatsReceiver)
    try:
        yield receiver
    finally:
        await receiver.close()

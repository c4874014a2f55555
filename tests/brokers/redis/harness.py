"""A real Redis for the shared suites, and helpers for tests of Redis alone."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sidecar.brokers.redis import RedisOptions
from sidecar.brokers.redis.driver import RedisBroker
from sidecar.model.clock import Clock
from sidecar.settings import Seconds
from tests.brokers.harness import BrokerPerSidecar
from tests.servers.redis import RedisServer

_numbers = itertools.count(1)


class RedisHarness(BrokerPerSidecar[RedisBroker]):
    """A sidecar that starts again has its consumer name again; another one has a name of its own."""

    def __init__(self, server: RedisServer, clock: Clock | None = None, **more: Any) -> None:
        super().__init__()
        self._server = server
        self._clock = clock
        self._more = more
        self._consumer = f"sidecar-{next(_numbers)}"

    def _create(self, consumer: str = "") -> RedisBroker:
        return RedisBroker(options(self._server, consumer=consumer or self._consumer, **self._more), self._clock)

    async def sibling(self) -> RedisBroker:
        broker = self._create(f"sidecar-{next(_numbers)}")
        await broker.open()
        self._brokers.insert(0, broker)
        return broker


def options(server: RedisServer, **more: Any) -> RedisOptions:
    return RedisOptions(**{"url": server.url, "consumer": f"sidecar-{next(_numbers)}", **more})


@asynccontextmanager
async def running(server: RedisServer, **more: Any) -> AsyncIterator[RedisBroker]:
    """An open broker of a sidecar with a name of its own."""
    broker = RedisBroker(options(server, **more))
    await broker.open()
    try:
        yield broker
    finally:
        await broker.close()


#: what never comes, for tests that move the clock of the sidecar forward, and not that of the server
NEVER = Seconds(1e9)

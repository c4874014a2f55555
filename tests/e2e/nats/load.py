"""A plain publisher of NATS under load."""

import asyncio
import queue
import random
import threading
from collections.abc import Callable, Mapping
from zlib import crc32

import nats
from nats import errors
from nats.js.errors import APIError

from tests.e2e.load.journal import Spot
from tests.e2e.load.kinds import Kind
from tests.e2e.load.steady import SteadyLoad
from tests.e2e.nats.snapshot import get
from tests.servers.nats import NatsServer


class Producing:
    """Tells where each value is, once NATS has said so. What it cannot get rid of it keeps trying."""

    def __init__(self, url: str, topic: str, lanes: int, confirmed: Callable[[Spot, bytes], None]) -> None:
        self._url = url
        self._topic = topic
        self._lanes = lanes
        self._confirmed = confirmed
        self._waiting: queue.Queue[tuple[bytes | None, bytes] | None] = queue.Queue()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()

    def produce(self, key: bytes | None, value: bytes) -> None:
        self._waiting.put((key, value))

    def flush(self) -> None:
        """Wait for what was produced until now."""
        self._waiting.join()

    def close(self) -> None:
        self._waiting.put(None)
        self._thread.join()

    async def _run(self) -> None:
        client = await nats.connect(
            self._url, max_reconnect_attempts=-1, reconnect_time_wait=0.1, ping_interval=1, error_cb=_ignore
        )
        stream = client.jetstream(timeout=1.0)
        while (one := await asyncio.to_thread(self._waiting.get)) is not None:
            key, value = one
            lane = crc32(key or value) % self._lanes
            subject = f"{self._topic}.{lane}" if lane else self._topic
            headers = {"offramp-key": key.decode()} if key is not None else None
            while True:
                try:
                    stored = await stream.publish(subject, value, headers=headers)
                    break
                except (errors.Error, APIError, OSError):
                    await asyncio.sleep(0.1)
            found = await self._stored(stream, stored.seq)
            self._confirmed(Spot(lane, found), value)
            self._waiting.task_done()
        await client.close()

    async def _stored(self, stream: "nats.js.JetStreamContext", sequence: int) -> int:
        """Where a message is: by its time as well, which only the server knows."""
        while True:
            try:
                if (message := await get(stream, self._topic, sequence)) is not None:
                    return message.place
            except (errors.Error, OSError):
                await asyncio.sleep(0.1)


async def _ignore(error: Exception) -> None:
    """The server is killed on purpose."""


class Load(SteadyLoad):
    def __init__(
        self, server: NatsServer, topic: str, lanes: int, chance: random.Random, shares: Mapping[Kind, float]
    ) -> None:
        super().__init__(chance, shares)
        self._producing = Producing(server.url, topic, lanes, self.confirmed.__setitem__)

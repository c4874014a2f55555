"""A plain producer of Redis under load."""

import queue
import random
import threading
import time
from collections.abc import Callable, Mapping
from zlib import crc32

from redis.exceptions import RedisError

from tests.e2e.load.journal import Spot, place_of_ref
from tests.e2e.load.kinds import Kind
from tests.e2e.load.steady import SteadyLoad
from tests.servers.redis import RedisServer, client_at, names_of


class Producing:
    """Tells where each value is, once Redis has said so. What it cannot get rid of it keeps trying."""

    def __init__(self, address: str, topic: str, confirmed: Callable[[Spot, bytes], None]) -> None:
        self._confirmed = confirmed
        self._client = client_at(address)
        self._names: list[str] = []
        while not self._names or self._client.exists(f"{topic}:{len(self._names)}"):
            self._names = [*names_of(topic, len(self._names) + 1)]
        self._waiting: queue.Queue[tuple[bytes | None, bytes] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def produce(self, key: bytes | None, value: bytes) -> None:
        self._waiting.put((key, value))

    def flush(self) -> None:
        """Wait for what was produced until now."""
        self._waiting.join()

    def close(self) -> None:
        self._waiting.put(None)
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        while (one := self._waiting.get()) is not None:
            key, value = one
            lane = crc32(key or value) % len(self._names)
            fields = {"value": value} if key is None else {"key": key, "value": value}
            while True:
                try:
                    id_ = self._client.xadd(self._names[lane], fields)
                    break
                except (RedisError, OSError):
                    time.sleep(0.1)
            self._confirmed(Spot(lane, place_of_ref(id_.decode())), value)
            self._waiting.task_done()


class Load(SteadyLoad):
    def __init__(self, server: RedisServer, topic: str, chance: random.Random, shares: Mapping[Kind, float]) -> None:
        super().__init__(chance, shares)
        self._producing = Producing(f"127.0.0.1:{server.port}", topic, self.confirmed.__setitem__)

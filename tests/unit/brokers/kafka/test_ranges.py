"""Reading a run while the broker does not answer."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sidecar.brokers.base import LaneEnd
from sidecar.brokers.kafka import ranges
from sidecar.brokers.kafka.library_logs import LibraryClients
from sidecar.brokers.kafka.options import KafkaOptions
from sidecar.brokers.kafka.ranges import RangeReader
from sidecar.model.errors import Unavailable
from sidecar.model.records import Lane, Run
from tests.event_loop import on_event_loop


class Hanging:
    """Stands in for a consumer of a lane whose leader is away."""

    def __init__(self) -> None:
        self.polling, self.answers, self.closed = threading.Event(), threading.Event(), threading.Event()

    def assign(self, partitions: Any) -> None: ...

    def poll(self, timeout: float) -> None:
        self.polling.set()
        self.answers.wait(5.0)

    def close(self) -> None:
        assert self.answers.is_set(), "closed while it was polled"
        self.closed.set()


@on_event_loop
async def test_a_range_that_waits_for_its_leader_blocks_no_thread_of_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others need them, such as commits."""
    library = Hanging()
    monkeypatch.setattr(ranges, "Consumer", lambda *_, **__: library)

    async def read() -> None:
        clients = LibraryClients(KafkaOptions(servers=("nowhere:1",)))
        reader = RangeReader(clients, Lane("orders", 0), Run(0, 10), LaneEnd(0, 10))
        async for _ in reader.chunks(1 << 20):
            pass

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    reading = asyncio.create_task(read())
    try:
        async with asyncio.timeout(3.0):
            assert await asyncio.to_thread(library.polling.wait, 2.0)
        reading.cancel()
    finally:
        library.answers.set()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert library.closed.is_set()


class Slow:
    """Stands in for a consumer that skips many records before its first."""

    def __init__(self, silent: int) -> None:
        self._silent = silent

    def assign(self, partitions: Any) -> None: ...

    def poll(self, timeout: float) -> Any:
        self._silent -= 1
        return None if self._silent >= 0 else FakeMessage(98)

    def consume(self, most: int, timeout: float) -> list[Any]:
        # Also records before the run.
        return [FakeMessage(offset) for offset in range(99, 106)]

    def close(self) -> None: ...


class FakeMessage:
    def __init__(self, offset: int) -> None:
        self.offset = lambda: offset
        self.error = self.key = self.headers = lambda: None
        self.partition = lambda: 0
        self.topic = lambda: "orders"
        self.timestamp = lambda: (1, 1)
        self.value = lambda: b"value"


def positions(monkeypatch: pytest.MonkeyPatch, library: Slow) -> list[int]:
    monkeypatch.setattr(ranges, "Consumer", lambda *_, **__: library)

    async def body() -> list[int]:
        clients = LibraryClients(KafkaOptions(servers=("nowhere:1",)))
        reader = RangeReader(clients, Lane("orders", 0), Run(100, 105), LaneEnd(0, 200))
        return [position async for chunk in reader.chunks(1 << 20) for position in chunk.positions]

    return asyncio.run(body())


def test_a_range_waits_for_a_silent_library_if_there_was_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert positions(monkeypatch, Slow(3)) == [*range(100, 105)]


def test_a_range_does_not_wait_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="cannot read orders/0: no answer"):
        positions(monkeypatch, Slow(100))

"""An offset client while nothing is asked of it."""

import asyncio

import pytest

from sidecar.brokers.kafka import offset_client
from sidecar.brokers.kafka.library_logs import LibraryClients
from sidecar.brokers.kafka.offset_client import OffsetClient
from sidecar.brokers.kafka.options import KafkaOptions
from tests.event_loop import on_event_loop
from tests.servers.process import free_ports


class Library:
    """Stands in for a consumer that has events."""

    def __init__(self, events: int = 0) -> None:
        self.events = events
        self.polled = asyncio.Event()

    def poll(self, timeout: float) -> object | None:
        assert timeout == 0
        self.polled.set()
        self.events -= 1
        return object() if self.events >= 0 else None

    def close(self) -> None:
        pass


def client_of(library: Library, monkeypatch: pytest.MonkeyPatch) -> OffsetClient:
    monkeypatch.setattr(offset_client, "Consumer", lambda *_, **__: library)
    return OffsetClient(LibraryClients(KafkaOptions(servers=("nowhere:1",))), "billing")


@pytest.fixture(autouse=True)
def polled_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_client, "_POLL_INTERVAL", 0.01)


@on_event_loop
async def test_errors_of_the_library_are_taken_while_kafka_is_away_and_nothing_is_asked() -> None:
    """They would pile up in the library for as long as the outage lasts."""
    (port,) = free_ports(1)
    clients, reported = LibraryClients(KafkaOptions(servers=(f"127.0.0.1:{port}",))), asyncio.Event()
    clients.recent_errors.add = lambda error: reported.set()  # type: ignore[method-assign]
    client = OffsetClient(clients, "billing")
    async with asyncio.timeout(10.0):
        await reported.wait()
    await client.close()


@on_event_loop
async def test_a_poll_takes_all_waiting_events_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(250)
    client = client_of(library, monkeypatch)
    client.poll()
    assert library.events == 150
    client.poll()
    client.poll()
    assert library.events < 0
    await client.close()


@on_event_loop
async def test_the_library_is_not_polled_while_a_call_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    client = client_of(library, monkeypatch)
    async with client._lock:
        client.poll()
        assert not library.polled.is_set()
    async with asyncio.timeout(5.0):
        await library.polled.wait()
    await client.close()


@on_event_loop
async def test_a_closed_client_is_not_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    await client_of(library, monkeypatch).close()
    library.polled.clear()
    await asyncio.sleep(0.1)
    assert not library.polled.is_set()

"""A clerk while nothing is asked of it."""

import asyncio

import pytest

from sidecar.brokers.kafka import offset_client as clerk
from sidecar.brokers.kafka.library_logs import Chatter, Reasons
from sidecar.brokers.kafka.offset_client import Clerk
from sidecar.brokers.kafka.options import KafkaOptions
from tests.servers.process import free_ports


class Library:
    """Has something to tell."""

    def __init__(self, tidings: int = 0) -> None:
        self.tidings = tidings
        self.polled = asyncio.Event()

    def poll(self, timeout: float) -> object | None:
        assert timeout == 0
        self.polled.set()
        self.tidings -= 1
        return object() if self.tidings >= 0 else None

    def close(self) -> None:
        pass


def a_clerk(reasons: Reasons) -> Clerk:
    (port,) = free_ports(1)
    return Clerk(KafkaOptions(servers=(f"127.0.0.1:{port}",)), "billing", reasons, Chatter())


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clerk, "_BETWEEN_TURNS", 0.01)


def test_what_the_library_tells_while_kafka_is_gone_is_heard_though_nobody_asks_anything() -> None:
    """It would pile up there for as long as the outage lasts."""

    async def body() -> None:
        reasons, told = Reasons(), asyncio.Event()
        reasons.heard = lambda error: told.set()  # type: ignore[method-assign]
        one = a_clerk(reasons)
        async with asyncio.timeout(10.0):
            await told.wait()
        await one.close()

    asyncio.run(body())


def test_all_that_waits_is_heard_but_not_without_an_end() -> None:
    async def body() -> None:
        one, library = a_clerk(Reasons()), Library(250)
        real, one._consumer = one._consumer, library  # type: ignore[assignment]
        one.serve()
        assert library.tidings == 150
        one.serve()
        one.serve()
        assert library.tidings < 0
        await one.close()
        real.close()

    asyncio.run(body())


def test_while_a_call_is_under_way_nobody_else_comes_in() -> None:
    async def body() -> None:
        one, library = a_clerk(Reasons()), Library()
        real, one._consumer = one._consumer, library  # type: ignore[assignment]
        async with one._turn:
            one.serve()
            assert not library.polled.is_set()
        async with asyncio.timeout(5.0):
            await library.polled.wait()
        await one.close()
        real.close()

    asyncio.run(body())


def test_a_clerk_that_is_closed_is_not_served_any_more() -> None:
    async def body() -> None:
        one, library = a_clerk(Reasons()), Library()
        real, one._consumer = one._consumer, library  # type: ignore[assignment]
        await one.close()
        library.polled.clear()
        await asyncio.sleep(0.1)
        assert not library.polled.is_set()
        real.close()

    asyncio.run(body())

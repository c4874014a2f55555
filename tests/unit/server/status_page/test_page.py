"""How often the status page is rendered, and how often it reads dead letters from the broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sidecar.brokers.base import Broker
from sidecar.core.failures.dead_letter_topic import DeadLetterEntry
from sidecar.model.errors import Unavailable
from sidecar.observability.status import Status
from sidecar.server.status_page import StatusPage, dead_letter_feed, page
from sidecar.server.status_page.dead_letter_feed import DeadLetterFeed
from sidecar.server.subscriptions import SubscriptionRegistry, lease_prefix
from sidecar.settings import SubscriptionSettings
from sidecar.subscription import dead_letters
from sidecar.subscription.subscription import Subscription
from tests.kit import subscription_settings
from tests.memory_broker import MemoryBroker
from tests.promises.adjustable_time import until
from tests.unit.server.grpc.service_kit import in_loop


class Asked:
    """Counts how often the newest dead letters are asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        self.written = 0
        #: what the broker is like
        self.answer = asyncio.Event()
        self.answer.set()
        self._newest = dead_letters.newest
        monkeypatch.setattr(dead_letters, "newest", self._count)

    async def _count(
        self, broker: Broker, settings: SubscriptionSettings, *, limit: int
    ) -> tuple[list[DeadLetterEntry], int]:
        self.times += 1
        await self.answer.wait()
        return await self._newest(broker, settings, limit=limit)

    def feed(self, broker: Broker) -> DeadLetterFeed:
        return DeadLetterFeed(subscription_settings(), lambda: broker, lambda: self.written)


async def refreshed(feed: DeadLetterFeed) -> bool:
    read = feed.refresh()
    if read is None:
        return False
    await read
    return True


@in_loop
async def test_dead_letters_are_asked_for_seldom_however_often_the_page_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked(monkeypatch)
    feed = asked.feed(MemoryBroker())
    assert await refreshed(feed)
    for _ in range(100):
        assert not await refreshed(feed)
    # News are worth another look, but not at once.
    asked.written += 1
    assert not await refreshed(feed)
    monkeypatch.setattr(dead_letter_feed, "_MIN_INTERVAL", 0.0)
    assert await refreshed(feed)
    assert not await refreshed(feed)
    assert asked.times == 2


@in_loop
async def test_one_look_serves_all_who_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    asked.answer.clear()
    feed = asked.feed(MemoryBroker())
    first, second = feed.refresh(), feed.refresh()
    assert first is second is not None
    asked.answer.set()
    await first
    assert asked.times == 1


@in_loop
async def test_a_broker_that_does_not_answer_is_told_of_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_feed, "_READ_TIMEOUT", 0.01)

    asked = Asked(monkeypatch)
    asked.answer.clear()
    feed = asked.feed(MemoryBroker())
    assert await refreshed(feed)
    assert feed.latest.trouble == "no answer within 0.01 s"
    assert feed.latest.at > 0


@in_loop
async def test_a_broker_that_is_not_open_is_told_of() -> None:
    def closed() -> Broker:
        raise Unavailable("broker kafka: not connected yet")

    feed = DeadLetterFeed(subscription_settings(), closed, lambda: 0)
    assert await refreshed(feed)
    assert feed.latest.trouble == "broker kafka: not connected yet"


@asynccontextmanager
async def status_page() -> AsyncIterator[StatusPage]:
    broker = MemoryBroker()
    await broker.open()
    await broker.ensure_topic("orders", 1)
    subscription = Subscription(subscription_settings(), broker, prefix=bytes(10))
    await subscription.start()
    shown = StatusPage(
        SubscriptionRegistry(bytes(8), {lease_prefix(bytes(8), 0): subscription}),
        lambda those: Status(version="1", boot=b"", uptime=1.0, subscriptions=tuple(one.status() for one in those)),
        lambda name: broker,
    )
    try:
        yield shown
    finally:
        await shown.close()
        await subscription.close()


@in_loop
async def test_one_picture_serves_everyone_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with status_page() as shown:
        first = await shown.respond()
        assert "orders" in first.body
        assert all(response is first for response in [await shown.respond() for _ in range(50)])
        monkeypatch.setattr(page, "_MIN_INTERVAL", 0.0)
        monkeypatch.setattr(page, "_MAX_SHARE", float("inf"))
        shown._next = 0.0
        assert await shown.respond() is not first
        assert await shown.respond() is not await shown.respond()


@in_loop
async def test_a_picture_that_takes_long_to_draw_is_drawn_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 10.1])
    monkeypatch.setattr(page.time, "thread_time", lambda: next(clock))

    async with status_page() as shown:
        await shown.respond()
        # A tenth of a second, of which it may take a fiftieth of the time.
        assert shown._next - asyncio.get_running_loop().time() == pytest.approx(5.0, abs=0.4)


@in_loop
async def test_the_history_is_kept_while_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "SAMPLE_INTERVAL", 0.001)

    async with status_page() as shown:
        keeping = asyncio.create_task(shown.run())
        await until(lambda: len(shown._shown[0]._history.in_flight()) >= 3, "samples are taken")
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        assert "<figure" in (await shown.respond()).body

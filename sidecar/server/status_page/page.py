"""The page as the HTTP server sees it: gathers what is shown, and responds with it."""

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial

from sidecar.brokers.base import Broker
from sidecar.observability.status import Status, SubscriptionStatus
from sidecar.server.http import Response
from sidecar.server.status_page import document
from sidecar.server.status_page.charts import SAMPLE_INTERVAL, History, take_sample
from sidecar.server.status_page.dead_letter_feed import DeadLetterFeed
from sidecar.server.status_page.event_list import SHOWN_EVENTS, EventLog
from sidecar.server.status_page.facts import Facts, SubscriptionFacts
from sidecar.server.subscriptions import AnySubscription, SubscriptionRegistry
from sidecar.subscription.subscription import Subscription

#: seconds for which one rendering serves everybody, and the largest share of the event loop's time for rendering:
#: however many people look, and however large the sidecar is, deliveries go on
_MIN_INTERVAL, _MAX_SHARE = 0.5, 0.02
#: seconds that the first person who looks waits for the dead letters
_DEAD_LETTERS_TIMEOUT = 1.0
#: reasons that are told apart
_SHOWN_REASONS = 8


class StatusPage:
    """`run` records the history, which costs nothing per record. A rendering takes a millisecond or two, and some more
    with hundreds of lanes and workers, of which it has to find the worst."""

    def __init__(
        self,
        registry: SubscriptionRegistry,
        status: Callable[[Iterable[AnySubscription]], Status],
        usable: Callable[[str], Broker],
    ) -> None:
        """`usable` returns the broker of a name, or raises `BrokerError`."""
        self._status = status
        self._events = EventLog()
        self._events.listen()
        self._shown = [_ShownSubscription(one, registry.leased.get(one.settings.name), usable) for one in registry]
        #: on the loop's clock: when the page may be rendered again
        self._next = float("-inf")
        self._rendered = Response("")

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            for shown in self._shown:
                shown.sample(loop.time())
            await asyncio.sleep(SAMPLE_INTERVAL)

    async def close(self) -> None:
        self._events.close()
        for shown in self._shown:
            if shown.feed is not None:
                await shown.feed.close()

    async def respond(self) -> Response:
        """The page as it is now, or was a moment ago."""
        feeds = [shown.feed for shown in self._shown if shown.feed is not None]
        reads = [read for feed in feeds if (read := feed.refresh()) is not None]
        if reads and not all(feed.latest.at for feed in feeds):
            await asyncio.wait(reads, timeout=_DEAD_LETTERS_TIMEOUT)
        now = asyncio.get_running_loop().time()
        if now >= self._next:
            began = time.thread_time()
            self._rendered = Response(
                document.render(self._facts()), content_type="text/html; charset=utf-8", headers=document.HEADERS
            )
            self._next = now + max(_MIN_INTERVAL, (time.thread_time() - began) / _MAX_SHARE)
        return self._rendered

    def _facts(self) -> Facts:
        status = self._status(shown.subscription for shown in self._shown)
        return Facts(
            status=status,
            subscriptions=[shown.facts(one) for shown, one in zip(self._shown, status.subscriptions, strict=True)],
            events=self._events.latest(SHOWN_EVENTS),
            now=time.time(),
        )


class _ShownSubscription:
    """One subscription, with what the page remembers about it."""

    def __init__(
        self, subscription: AnySubscription, leased: Subscription | None, usable: Callable[[str], Broker]
    ) -> None:
        """`leased` is the same subscription if its mode is leases."""
        self.subscription = subscription
        self._leased = leased
        self._history = History()
        #: None for mode ranges, which dead-letters nothing
        self.feed: DeadLetterFeed | None = None
        if leased is not None:
            settings, counters = leased.settings, leased.counters
            self.feed = DeadLetterFeed(settings, partial(usable, settings.broker), lambda: counters.dead_lettered)

    def sample(self, now: float) -> None:
        lanes = self._leased.tracker.lanes.values() if self._leased is not None else ()
        in_flight = sum(lane.in_flight for lane in lanes)
        self._history.add(take_sample(now, self.subscription.counters, self.subscription.meters, in_flight))

    def facts(self, status: SubscriptionStatus) -> SubscriptionFacts:
        leased = self._leased
        if leased is None or self.feed is None:
            troubles = tuple(("broker", text) for text in status.trouble)
            return SubscriptionFacts(status=status, troubles=troubles, history=self._history)
        return SubscriptionFacts(
            status=status,
            troubles=tuple(leased.troubles),
            history=self._history,
            budget=leased.settings.budget,
            dead_for=leased.tracker.dead_for.most(_SHOWN_REASONS),
            parked_for=leased.tracker.parked_for.most(_SHOWN_REASONS),
            dead_letter_topic=leased.settings.dead_letter_topic,
            dead_letters=self.feed.latest,
        )

"""The page as the HTTP server sees it: gathers what is shown, and answers with it."""

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from sidecar.brokers.base import Broker
from sidecar.observability.status import Status, SubscriptionStatus
from sidecar.server.http import Response
from sidecar.server.status_page import document
from sidecar.server.status_page.events import Events
from sidecar.server.status_page.facts import Facts, SubscriptionFacts
from sidecar.server.status_page.feed import SHOWN
from sidecar.server.status_page.history import EVERY, History, take
from sidecar.server.status_page.letters import Letters, Look
from sidecar.subscription.subscription import Subscription

if TYPE_CHECKING:
    from sidecar.server.subscriptions import AnySubscription

#: seconds that one picture serves all who ask, and the share of the loop's time that drawing may take at the most:
#: however many look, and however large the sidecar is, delivery goes on
_FRESH, _SHARE = 0.5, 0.02
#: seconds that the first who looks waits for the dead letters
_PATIENCE = 1.0
#: reasons that are told apart
_REASONS = 8


class StatusPage:
    """Made with the sidecar; `run` keeps its history. Costs nothing for each record, and for each picture a
    millisecond or two, or some more where there are hundreds of lanes and workers to find the worst of."""

    def __init__(
        self,
        subscriptions: "Iterable[AnySubscription]",
        status: "Callable[[Iterable[AnySubscription]], Status]",
        usable: Callable[[str], Broker],
    ) -> None:
        """`usable` gives a broker by its name, or raises `BrokerError`."""
        self._subscriptions = list(subscriptions)
        self._status = status
        self._events = Events()
        self._events.listen()
        self._histories = [History() for _ in self._subscriptions]
        self._letters = [
            Letters(one.settings, partial(usable, one.settings.broker), partial(_written, one))
            for one in self._subscriptions
        ]
        #: those whose records can be dead-lettered
        self._lettered = [
            letters
            for letters, one in zip(self._letters, self._subscriptions, strict=True)
            if isinstance(one, Subscription)
        ]
        #: on the loop's clock: when the next one may be drawn
        self._next = float("-inf")
        self._picture = Response("")

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            for subscription, history in zip(self._subscriptions, self._histories, strict=True):
                history.add(take(loop.time(), subscription.counters, subscription.meters, _in_flight(subscription)))
            await asyncio.sleep(EVERY)

    async def close(self) -> None:
        self._events.close()
        for letters in self._letters:
            await letters.close()

    async def respond(self) -> Response:
        """The page as it is now, or was a moment ago."""
        looks = [look for letters in self._lettered if (look := letters.look()) is not None]
        if looks and not all(letters.latest.at for letters in self._lettered):
            await asyncio.wait(looks, timeout=_PATIENCE)
        now = asyncio.get_running_loop().time()
        if now >= self._next:
            began = time.thread_time()
            self._picture = Response(
                document.render(self._facts()), content_type="text/html; charset=utf-8", headers=document.HEADERS
            )
            self._next = now + max(_FRESH, (time.thread_time() - began) / _SHARE)
        return self._picture

    def _facts(self) -> Facts:
        status = self._status(self._subscriptions)
        subscriptions = tuple(
            _gathered(subscription, one, history, letters.latest)
            for one, subscription, history, letters in zip(
                status.subscriptions, self._subscriptions, self._histories, self._letters, strict=True
            )
        )
        return Facts(status=status, subscriptions=subscriptions, events=self._events.latest(SHOWN), now=time.time())


def _gathered(
    subscription: "AnySubscription", status: SubscriptionStatus, history: History, letters: Look
) -> SubscriptionFacts:
    settings = subscription.settings
    if not isinstance(subscription, Subscription):
        troubles = tuple(("broker", text) for text in status.trouble)
        return SubscriptionFacts(status=status, troubles=troubles, history=history)
    tracker = subscription.tracker
    return SubscriptionFacts(
        status=status,
        troubles=tuple(subscription.troubles),
        history=history,
        budget=settings.budget,
        dead_for=tracker.dead_for.most(_REASONS),
        parked_for=tracker.parked_for.most(_REASONS),
        dead_letter_topic=settings.dead_letter_topic,
        letters=letters,
    )


def _in_flight(subscription: "AnySubscription") -> int:
    lanes = subscription.tracker.lanes.values() if isinstance(subscription, Subscription) else ()
    return sum(state.in_flight for state in lanes)


def _written(subscription: "AnySubscription") -> int:
    return subscription.counters.dead_lettered

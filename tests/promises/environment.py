"""What a promise is tested on: a real subscription on a real broker, with workers that the test controls."""

import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from sidecar.brokers.base import Broker
from sidecar.core.failures.dead_letter_topic import DeadLetterEntry
from sidecar.core.state.lane import LanePhase
from sidecar.model.records import Lane, Message
from sidecar.settings import BatchSettings, RetrySettings, Seconds, SubscriptionSettings
from sidecar.subscription import dead_letters
from sidecar.subscription.subscription import Subscription
from tests.brokers.harness import Harness
from tests.promises import adjustable_time
from tests.promises.adjustable_time import AdjustableClock, advance, until
from tests.promises.audit import Audit
from tests.promises.exemptions import exemption_reason
from tests.promises.instrumented_broker import InstrumentedBroker, InstrumentedSource
from tests.promises.worker import ROUND_TRIP, Batch, Handler, Worker

_numbers = itertools.count(1)
#: keeps names apart from those of other processes, where tests share a server
_PROCESS = os.urandom(3).hex()

#: lanes of the topic for round trips: enough that each of two sidecars very probably has one
_ROUND_TRIP_LANES = 4


class Environment:
    """A broker, one group of subscriptions, and everything that can be observed of them from outside."""

    def __init__(self, harness: Harness, broker: Broker) -> None:
        self.audit = Audit()
        self.broker = InstrumentedBroker(broker, self.audit)
        self.subscriptions: list[Subscription] = []
        self._harness = harness
        self._group = _name("group")
        self._round_trip_topic = _name("round-trip")

    # Records

    async def topic(self, lanes: int = 1) -> str:
        """A new topic."""
        name = _name("topic")
        await self.broker.ensure_topic(name, lanes)
        return name

    async def publish(
        self, topic: str, *values: bytes, lane: int = 0, keys: Sequence[bytes | None] | None = None
    ) -> list[int]:
        """Publish values to one lane; returns their positions."""
        keys = keys or [None] * len(values)
        messages = [Message(key, value, lane=lane) for key, value in zip(keys, values, strict=True)]
        return [place.position for place in await self.broker.publish(topic, messages)]

    # Subscriptions

    def settings(self, *topics: str, **settings: Any) -> SubscriptionSettings:
        """Commits at once, waits without jitter, and puts one record in a batch, unless told otherwise."""
        eager = {"commit_every": Seconds(0.0), "retry": retry(), "batch": batches_of(1)}
        return SubscriptionSettings(name=self._group, topics=(*topics, self._round_trip_topic), **{**eager, **settings})

    async def subscribe(self, *topics: str, broker: InstrumentedBroker | None = None, **settings: Any) -> Subscription:
        """A subscription whose lanes are assigned."""
        return await self.start(self.settings(*topics, **settings), broker)

    async def consuming(self, lanes: int = 1, **settings: Any) -> tuple[str, Subscription]:
        """A new topic and a subscription to it, whose handler has been seen to work."""
        topic = await self.topic(lanes)
        subscription = await self.subscribe(topic, **settings)
        await self.round_trip(subscription)
        return topic, subscription

    async def start(
        self, settings: SubscriptionSettings, broker: InstrumentedBroker | None = None, *, with_lanes: bool = True
    ) -> Subscription:
        subscription = Subscription(settings, broker or self.broker, prefix=os.urandom(10), clock=AdjustableClock())
        self.subscriptions.append(subscription)
        await self.broker.ensure_topic(self._round_trip_topic, _ROUND_TRIP_LANES)
        await subscription.start()
        if with_lanes:
            lanes = {lane for topic in settings.topics for lane in await self.broker.lane_ends(topic)}
            await until(lambda: lanes <= set(subscription.lanes()), "lanes are assigned")
        return subscription

    async def backlog(
        self, *values: bytes, keys: Sequence[bytes | None] | None = None, **settings: Any
    ) -> tuple[str, list[int], Subscription]:
        """A new topic of one lane, the positions of the values in it, and a subscription that comes later."""
        topic = await self.topic()
        positions = await self.publish(topic, *values, keys=keys)
        return topic, positions, await self.subscribe(topic, **settings)

    def source(self, subscription: Subscription) -> InstrumentedSource:
        """The calls of a subscription to its broker."""
        broker = subscription.broker
        assert isinstance(broker, InstrumentedBroker)
        return broker.sources[[s for s in self.subscriptions if s.broker is broker].index(subscription)]

    async def close_subscription(self, subscription: Subscription) -> None:
        """Close one subscription while others go on."""
        broker, source = subscription.broker, self.source(subscription)
        await subscription.close()
        self.subscriptions.remove(subscription)
        assert isinstance(broker, InstrumentedBroker)
        broker.sources.remove(source)

    async def sibling(self) -> InstrumentedBroker:
        """The same broker for another sidecar."""
        return InstrumentedBroker(await self._harness.sibling(), self.audit)

    @asynccontextmanager
    async def losing_lanes(self, subscription: Subscription) -> AsyncIterator[None]:
        """The sidecar loses all its lanes to others without being asked, and is told only after the block."""
        source = self.source(subscription)
        source.connected.clear()
        await self._harness.lose(source.inner)
        yield
        source.connected.set()

    def worker(self, subscription: Subscription, handler: Handler | None = None, **options: Any) -> Worker:
        return Worker(subscription, self.audit, handler=handler, **options)

    async def worker_dies(self, subscription: Subscription, times: int = 1, credit: int = 1) -> None:
        """A worker takes as many batches as it has credit for, and dies with them."""
        for _ in range(times):
            worker = self.worker(subscription, credit=credit)
            await worker.take(credit)
            worker.die()

    async def crash(self, subscription: Subscription) -> Subscription:
        """kill -9 and start again: nothing is settled, drained or committed before."""
        await self._stop(subscription.close)
        self.broker = InstrumentedBroker(await self._harness.crash(), self.audit)
        return await self.start(subscription.settings)

    async def restart(self, subscription: Subscription, deadline: float = 0.0, **settings: Any) -> Subscription:
        """Drain, stop, and start again, with these settings instead of the former ones."""
        await self._stop(lambda: subscription.drain(deadline))
        self.broker = InstrumentedBroker(await self._harness.restart(), self.audit)
        return await self.start(replace(subscription.settings, **settings))

    # What is observed

    def committed(self, topic: str, lane: int = 0, *, by: Subscription | None = None) -> int:
        """The last position that this sidecar (the first one by default) committed for the lane since it started."""
        broker = by.broker if by else self.broker
        assert isinstance(broker, InstrumentedBroker)
        commit = broker.committed.get(Lane(topic, lane))
        return commit.position if commit else 0

    async def wait_committed(self, topic: str, position: int, lane: int = 0, *, by: Subscription | None = None) -> None:
        """Wait until everything before the position is committed, and nothing beyond it."""
        what = f"{topic}/{lane} is committed to {position}"
        await until(lambda: self.committed(topic, lane, by=by) >= position, what)
        assert self.committed(topic, lane, by=by) == position

    async def wait_fetched(self, subscription: Subscription, topic: str, records: int, lane: int = 0) -> None:
        """Wait until so many records are fetched. Do so before fast-forwarding: what comes later would seem late."""
        polled = self.source(subscription).polled
        await until(lambda: polled[Lane(topic, lane)] >= records, f"{records} records are fetched")

    @property
    def flags_first_deliveries(self) -> bool:
        """Whether `possibly_processed` is set also on first deliveries, because the broker does not tell them apart."""
        return not self.broker.traits.tells_first_deliveries

    async def round_trip(self, subscription: Subscription) -> None:
        """Pass a batch from publish to commit, so that the handler is seen to work.

        Whatever the subscription was about to do before, it has done when this returns.
        """
        # In case no other worker has credit. It takes all there is, and gives back what is not its own.
        worker = self.worker(subscription, credit=1000, name="round-trip")
        while not await self._made_round_trip(subscription):
            # The lane was taken away meanwhile.
            pass
        worker.leave()

    async def _made_round_trip(self, subscription: Subscription) -> bool:
        await until(lambda: self.active_lanes(subscription), "the sidecar has lanes")
        lane = next((lane for lane in self.active_lanes(subscription) if lane.topic == self._round_trip_topic), None)
        if lane is None:
            # Another sidecar has all of them. Two more polls at least bring what was on its way.
            await self._poll_again(subscription)
            return True
        values = [ROUND_TRIP] * subscription.settings.batch.records
        positions = await self.publish(lane.topic, *values, lane=lane.number)

        def is_committed() -> bool:
            return self.committed(lane.topic, lane.number, by=subscription) > positions[-1]

        await until(lambda: is_committed() or lane not in self.active_lanes(subscription), f"{lane} makes a round trip")
        return is_committed()

    def active_lanes(self, subscription: Subscription, topic: str = "") -> list[Lane]:
        """Lanes that are delivered, of one topic or of all."""
        lanes = [state.lane for state in subscription.tracker.lanes.values() if state.phase is LanePhase.ACTIVE]
        return [lane for lane in lanes if topic in ("", lane.topic)]

    async def _poll_again(self, subscription: Subscription) -> None:
        calls = self.source(subscription).calls
        polls = calls.count("poll")
        await advance(2.0)
        await until(lambda: calls.count("poll") > polls + 2)

    async def dead_letters(self, subscription: Subscription) -> list[DeadLetterEntry]:
        return (await dead_letters.list_dead_letters(self.broker, subscription.settings)).letters

    async def close(self) -> None:
        for subscription in self.subscriptions:
            assert not subscription.troubles.get("bug"), subscription.troubles.get("bug")
            await subscription.close()
        await self._harness.stop()
        assert not self.audit.violations, "\n".join(self.audit.violations)

    async def _stop(self, stop: Callable[[], Awaitable[None]]) -> None:
        assert len(self.subscriptions) == 1, "only one subscription may be restarted"
        await stop()
        self.subscriptions.clear()


def _name(kind: str) -> str:
    return f"{kind}-{_PROCESS}-{next(_numbers)}"


Body = Callable[[Any, Environment], Awaitable[None]]


def promise(body: Body) -> Callable[[Any, Harness], None]:
    """Make a test of an async body that takes an `Environment`. The class of the test has a fixture `harness`."""

    def test(self: Any, harness: Harness) -> None:
        async def run() -> None:
            env = Environment(harness, await harness.start())
            needed = getattr(body, "needs", None)
            if needed and (reason := exemption_reason(env.broker.traits, needed)):
                await env.close()
                pytest.skip(reason)
            try:
                await body(self, env)
            finally:
                await env.close()

        # A real broker may be busy: allow more for the last commit.
        with mock.patch("sidecar.subscription.subscription.LAST_COMMIT_TIMEOUT", 30.0):
            adjustable_time.run(run)

    test.__name__ = body.__name__
    test.__doc__ = body.__doc__
    return test


def needs(trait: str) -> Callable[[Body], Body]:
    """Skip the test on brokers without a trait, for the reason that `exemptions` gives."""

    def decorate(body: Body) -> Body:
        body.needs = trait  # type: ignore[attr-defined]
        return body

    return decorate


def batches_of(records: int) -> BatchSettings:
    """Exactly so many records in each batch, however they arrive."""
    return BatchSettings(records=records, linger=Seconds(60.0 if records > 1 else 0.0))


def retry(**settings: Any) -> RetrySettings:
    """Waits have no jitter, unless told otherwise."""
    return RetrySettings(**{"jitter": 0.0, **settings})


def numbered(count: int, prefix: str = "") -> list[bytes]:
    """Values that are their own index."""
    return [f"{prefix}{number}".encode() for number in range(count)]


def values(batches: Sequence[Batch]) -> list[bytes]:
    return [value for batch in batches for value in batch.values]

"""What the promises are played on: a real subscription on a real broker, with workers that the test controls."""

import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol
from unittest import mock

import pytest

from sidecar.brokers.base import Broker, Source
from sidecar.core.failures.dead_letter_topic import DeadLetterEntry
from sidecar.core.state.lane import LanePhase
from sidecar.model.records import Lane, Message
from sidecar.settings import BatchSettings, OutageSettings, RetrySettings, Seconds, SubscriptionSettings
from sidecar.subscription import dead_letters
from sidecar.subscription.subscription import Subscription
from tests.promises import timing
from tests.promises.audit import Audit
from tests.promises.timing import LeapingClock, leap, until
from tests.promises.traits import why_not
from tests.promises.watched import WatchedBroker, WatchedSource
from tests.promises.worker import AROUND, Batch, Handler, Worker

_numbers = itertools.count(1)
#: makes names that no other process has, where tests share a server
_PROCESS = os.urandom(3).hex()

#: lanes of the topic of records that only go around, so that each of two sidecars has some, unless chance is against it
_AROUND_LANES = 4


class Harness(Protocol):
    """One kind of broker, ready to be tried with a whole subscription."""

    async def start(self) -> Broker:
        """A broker that is open."""

    async def restart(self) -> Broker:
        """The broker after the sidecar was stopped and started again: what is durable is there, and nothing else."""

    async def crash(self) -> Broker:
        """The broker as a sidecar finds it that starts after a kill -9: nothing was closed."""

    async def sibling(self) -> Broker:
        """The same broker for another sidecar. Asked only of those with the trait `rebalances`."""

    async def lose(self, source: Source) -> None:
        """Give all lanes of a source to others without asking it, as if it had been dead; it hears of it afterwards.

        Asked only of those with the trait `rebalances`."""

    async def stop(self) -> None:
        """Close the broker, and clean up."""


class Stage:
    """A broker, one group of subscriptions, and everything that is known of them from outside."""

    def __init__(self, harness: Harness, broker: Broker) -> None:
        self.audit = Audit()
        self.broker = WatchedBroker(broker, self.audit)
        self.subscriptions: list[Subscription] = []
        self._harness = harness
        self._group = _name("group")
        self._around = _name("around")

    # Records

    async def topic(self, lanes: int = 1) -> str:
        """A new topic."""
        name = _name("topic")
        await self.broker.ensure_topic(name, lanes)
        return name

    async def publish(
        self, topic: str, *values: bytes, lane: int = 0, keys: Sequence[bytes | None] | None = None
    ) -> list[int]:
        """Values to one lane; answers their positions."""
        keys = keys or [None] * len(values)
        messages = [Message(key, value, lane=lane) for key, value in zip(keys, values, strict=True)]
        return [place.position for place in await self.broker.publish(topic, messages)]

    # Subscriptions

    def settings(self, *topics: str, **settings: Any) -> SubscriptionSettings:
        """Eager to commit, no chance in the waits, and one record in a batch, unless told otherwise."""
        eager = {"commit_every": Seconds(0.0), "retry": retry(), "batch": batches_of(1)}
        return SubscriptionSettings(name=self._group, topics=(*topics, self._around), **{**eager, **settings})

    async def subscribe(self, *topics: str, broker: WatchedBroker | None = None, **settings: Any) -> Subscription:
        """A subscription that has its lanes."""
        return await self.start(self.settings(*topics, **settings), broker)

    async def start(
        self, settings: SubscriptionSettings, broker: WatchedBroker | None = None, *, with_lanes: bool = True
    ) -> Subscription:
        subscription = Subscription(settings, broker or self.broker, prefix=os.urandom(10), clock=LeapingClock())
        self.subscriptions.append(subscription)
        await self.broker.ensure_topic(self._around, _AROUND_LANES)
        await subscription.start()
        if with_lanes:
            lanes = {lane for topic in settings.topics for lane in await self.broker.lane_ends(topic)}
            await until(lambda: lanes <= set(subscription.lanes()), "lanes are assigned")
        return subscription

    def source(self, subscription: Subscription) -> WatchedSource:
        """What the subscription asks of its broker."""
        broker = subscription.broker
        assert isinstance(broker, WatchedBroker)
        return broker.sources[[s for s in self.subscriptions if s.broker is broker].index(subscription)]

    async def end(self, subscription: Subscription) -> None:
        """It is no longer needed, while others go on."""
        broker, source = subscription.broker, self.source(subscription)
        await subscription.close()
        self.subscriptions.remove(subscription)
        assert isinstance(broker, WatchedBroker)
        broker.sources.remove(source)

    async def sibling(self) -> WatchedBroker:
        """The same broker for another sidecar."""
        return WatchedBroker(await self._harness.sibling(), self.audit)

    @asynccontextmanager
    async def losing(self, subscription: Subscription) -> AsyncIterator[None]:
        """The sidecar loses all its lanes to others, unasked. It has not heard of it within, and hears of it after."""
        source = self.source(subscription)
        source.hears.clear()
        await self._harness.lose(source.inner)
        yield
        source.hears.set()

    def worker(
        self,
        subscription: Subscription,
        handler: Handler | None = None,
        *,
        credit: int = 1,
        lease: float | None = None,
        max_message_bytes: int = 4 << 20,
        name: str = "worker",
    ) -> Worker:
        return Worker(
            subscription,
            self.audit,
            credit=credit,
            lease=lease,
            max_message_bytes=max_message_bytes,
            name=name,
            handler=handler,
        )

    async def crash(self, subscription: Subscription) -> Subscription:
        """kill -9 and start again: nobody settles, drains or commits anything before."""
        await self._stop(subscription.close)
        self.broker = WatchedBroker(await self._harness.crash(), self.audit)
        return await self.start(subscription.settings)

    async def restart(self, subscription: Subscription, deadline: float = 0.0) -> Subscription:
        """Drain, stop, and start again."""
        await self._stop(lambda: subscription.drain(deadline))
        self.broker = WatchedBroker(await self._harness.restart(), self.audit)
        return await self.start(subscription.settings)

    # What became of it

    def committed(self, topic: str, lane: int = 0, *, by: Subscription | None = None) -> int:
        """How far the broker was told that the lane has come, by this life of the sidecar (the first, if not said)."""
        broker = by.broker if by else self.broker
        assert isinstance(broker, WatchedBroker)
        commit = broker.committed.get(Lane(topic, lane))
        return commit.position if commit else 0

    async def commits(self, topic: str, position: int, lane: int = 0, *, by: Subscription | None = None) -> None:
        """Wait until the broker was told that everything before the position is settled."""
        what = f"{topic}/{lane} is committed to {position}"
        await until(lambda: self.committed(topic, lane, by=by) >= position, what)
        assert self.committed(topic, lane, by=by) == position

    async def has_all(self, subscription: Subscription, topic: str, records: int, lane: int = 0) -> None:
        """Wait until the sidecar has so many, before time flies: what comes later would seem to come minutes later."""
        polled = self.source(subscription).polled
        await until(lambda: polled[Lane(topic, lane)] >= records, f"{records} records are here")

    @property
    def flags_all(self) -> bool:
        """Whether `possibly_processed` is set also for records that nobody had before: the broker does not tell."""
        return not self.broker.traits.tells_first_deliveries

    async def turn_around(self, subscription: Subscription) -> None:
        """A batch goes all the way from the publish to the commit, and the handler is seen to work.

        What the subscription would have done of itself before, it has done when this returns.
        """
        # In case that nobody else has room. It takes what there is, and gives back what is not its own.
        worker = self.worker(subscription, credit=1000, name="around")
        while not await self._went_around(subscription):
            # The lane was taken away meanwhile.
            pass
        worker.leave()

    async def _went_around(self, subscription: Subscription) -> bool:
        await until(lambda: self._active(subscription), "the sidecar has lanes")
        lane = next((lane for lane in self._active(subscription) if lane.topic == self._around), None)
        if lane is None:
            # All of them went to another sidecar. Then what was on its way has arrived, at least.
            await self._poll_again(subscription)
            return True
        values = [AROUND] * subscription.settings.batch.records
        positions = await self.publish(lane.topic, *values, lane=lane.number)

        def is_committed() -> bool:
            return self.committed(lane.topic, lane.number, by=subscription) > positions[-1]

        await until(lambda: is_committed() or lane not in self._active(subscription), f"{lane} goes around")
        return is_committed()

    def _active(self, subscription: Subscription) -> list[Lane]:
        return [state.lane for state in subscription.tracker.lanes.values() if state.phase is LanePhase.ACTIVE]

    async def _poll_again(self, subscription: Subscription) -> None:
        calls = self.source(subscription).calls
        polls = calls.count("poll")
        await leap(2.0)
        await until(lambda: calls.count("poll") > polls + 2)

    async def dead_letters(self, subscription: Subscription) -> list[DeadLetterEntry]:
        return await dead_letters.list_dead_letters(self.broker, subscription.settings)

    async def close(self) -> None:
        for subscription in self.subscriptions:
            assert not subscription.troubles.get("bug"), subscription.troubles.get("bug")
            await subscription.close()
        await self._harness.stop()
        assert not self.audit.violations, "\n".join(self.audit.violations)

    async def _stop(self, stop: Callable[[], Awaitable[None]]) -> None:
        assert len(self.subscriptions) == 1, "whose restart is it?"
        await stop()
        self.subscriptions.clear()


def _name(kind: str) -> str:
    return f"{kind}-{_PROCESS}-{next(_numbers)}"


Body = Callable[[Any, Stage], Awaitable[None]]


def promise(body: Body) -> Callable[[Any, Harness], None]:
    """Make a test of an async body that plays on a stage. The class of the test has a fixture `harness`."""

    def test(self: Any, harness: Harness) -> None:
        async def play() -> None:
            stage = Stage(harness, await harness.start())
            needed = getattr(body, "needs", None)
            if needed and (reason := why_not(stage.broker.traits, needed)):
                await stage.close()
                pytest.skip(reason)
            try:
                await body(self, stage)
            finally:
                await stage.close()

        # A real broker may be busy.
        with mock.patch("sidecar.subscription.subscription.LAST_COMMIT_TIMEOUT", 30.0):
            timing.run(play)

    test.__name__ = body.__name__
    test.__doc__ = body.__doc__
    return test


def needs(trait: str) -> Callable[[Body], Body]:
    """For brokers with a trait; the others are let off, for the reason in the table."""

    def decorate(body: Body) -> Body:
        body.needs = trait  # type: ignore[attr-defined]
        return body

    return decorate


def batches_of(records: int) -> BatchSettings:
    """Exactly so many records in each batch, however they arrive."""
    return BatchSettings(records=records, linger=Seconds(60.0 if records > 1 else 0.0))


def retry(**settings: Any) -> RetrySettings:
    """Without chance in the waits, unless told otherwise."""
    return RetrySettings(**{"jitter": 0.0, **settings})


def outage(**settings: Any) -> OutageSettings:
    return OutageSettings(**settings)


def numbered(count: int, prefix: str = "") -> list[bytes]:
    """Values that tell their place."""
    return [f"{prefix}{number}".encode() for number in range(count)]


def values(batches: Sequence[Batch]) -> list[bytes]:
    return [value for batch in batches for value in batch.values]

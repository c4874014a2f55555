"""A steady load in virtual time: what bad records and outages cost the others, in rate and in latency.

One subscription on a broker without faults, and workers that take their time. Nothing in it depends on the machine, so
the figures are exact, and two loads can be compared.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sidecar.model.records import ClientInfo, Credit, Delivery, Lane, Message, Notice, Outcome, Part, Settlement
from sidecar.model.wire import decode_frame
from sidecar.settings import SubscriptionSettings
from sidecar.subscription.session import Consumer
from sidecar.subscription.subscription import Subscription
from tests.memory_broker import MemoryBroker
from tests.simulation.virtual_time import VirtualClock, VirtualLoop

#: values of records that always fail begin with this
BAD = b"bad"
#: seconds between two publishes
_TICK = 0.01
_LANES = 4

#: seconds that a batch takes while so many are in work
Service = Callable[[int], float]
#: the indexes of a batch that fail, by its values, the time, and how many batches are in work
Fails = Callable[[Sequence[bytes], float, int], Sequence[int]]


def bad_ones(values: Sequence[bytes], _now: float, _here: int) -> Sequence[int]:
    return [index for index, value in enumerate(values) if value.startswith(BAD)]


@dataclass
class Outcomes:
    """What became of the good records."""

    #: seconds from publish to ack, in the order of acks
    latencies: list[float] = field(default_factory=list)
    #: when each was acked
    times: list[float] = field(default_factory=list)
    #: times at which the trouble of an outage began
    alarms: list[float] = field(default_factory=list)
    #: values of all dead letters
    dead: list[bytes] = field(default_factory=list)
    #: values that were published and not acked
    left: set[bytes] = field(default_factory=set)
    #: the limits on batches in flight, after each ack
    limits: list[int] = field(default_factory=list)

    def p99(self) -> float:
        return sorted(self.latencies)[len(self.latencies) * 99 // 100]

    def rate(self, since: float, until: float) -> float:
        """Good records per second."""
        return sum(since <= at < until for at in self.times) / (until - since)


class _Watched(Subscription):
    """Notes when the alarm of an outage rises."""

    alarms: list[float]

    def outage_changed(self) -> None:
        before = self.troubles.get("outage")
        super().outage_changed()
        if self.troubles.get("outage") and not before:
            self.alarms.append(self.clock.now())


class Load:
    """Records arrive at a rate, and so many workers serve them one batch at a time."""

    def __init__(
        self,
        settings: SubscriptionSettings,
        *,
        workers: int,
        service: Service = lambda _here: 0.01,
        fails: Fails = bad_ones,
        names_them: bool = True,
    ) -> None:
        self._settings = settings
        self._workers = workers
        self._service = service
        self._fails = fails
        #: workers nack what failed, not the whole batch
        self._names_them = names_them
        self._loop = VirtualLoop()
        self._published: dict[bytes, float] = {}
        self._here = 0
        self.outcomes = Outcomes()

    def run(self, arrivals: Callable[[float], Sequence[bytes]], seconds: float) -> Outcomes:
        """`arrivals`: what is published at a time; asked once for each hundredth of a second."""
        logging.disable(logging.CRITICAL)
        try:
            self._loop.run_until_complete(self._live(arrivals, seconds))
        finally:
            logging.disable(logging.NOTSET)
            self._loop.close()
        return self.outcomes

    async def _live(self, arrivals: Callable[[float], Sequence[bytes]], seconds: float) -> None:
        (topic,) = self._settings.topics
        broker = MemoryBroker()
        broker.ensure(topic, _LANES)
        clock, rng = VirtualClock(self._loop), random.Random(1)
        subscription = _Watched(self._settings, broker, prefix=bytes(10), clock=clock, rng=rng)
        subscription.alarms = self.outcomes.alarms
        await subscription.start()
        for _ in range(self._workers):
            _Worker(self, subscription)
        lane = 0
        for tick in range(round(seconds / _TICK)):
            messages = []
            for value in arrivals(tick * _TICK):
                lane += 1
                messages.append(Message(None, value, lane=lane % _LANES))
                self._published[value] = self._loop.time()
            if messages:
                await broker.publish(topic, messages)
            await asyncio.sleep(_TICK)
        await subscription.close()
        self.outcomes.left = {value for value in self._published if not value.startswith(BAD)}
        dead = Lane(self._settings.dead_letter_topic, 0)
        if broker.ensure(dead.topic):
            frames = broker.lane(dead).frames
            self.outcomes.dead = [decode_frame(frame).value or b"" for frame in frames]

    def work(self, subscription: Subscription, delivery: Delivery) -> None:
        subscription.written([delivery.lease])
        self._here += 1
        values = [decode_frame(frame).value or b"" for frame in delivery.frames]
        failing = self._fails(values, self._loop.time(), self._here)
        self._loop.call_later(self._service(self._here), self._done, subscription, delivery.lease, values, failing)

    def _done(self, subscription: Subscription, lease: bytes, values: list[bytes], failing: Sequence[int]) -> None:
        self._here -= 1
        if failing and (len(failing) == len(values) or not self._names_them):
            subscription.settle([Settlement(lease, Outcome.NACK, "it fails")])
            return
        parts = tuple(Part(index, 1, Outcome.NACK, "it fails") for index in failing)
        subscription.settle([Settlement(lease, Outcome.ACK, parts=parts)])
        now = self._loop.time()
        for index, value in enumerate(values):
            if index not in failing and not value.startswith(BAD):
                self.outcomes.latencies.append(now - self._published.pop(value))
                self.outcomes.times.append(now)
        self.outcomes.limits.append(subscription.budget.limit)


class _Worker(Consumer):
    def __init__(self, load: Load, subscription: Subscription) -> None:
        self._load = load
        self._subscription = subscription
        self._loop = asyncio.get_running_loop()
        client = ClientInfo(language="load", name="worker")
        session = subscription.connect(self, client=client, credit=Credit(0), max_message_bytes=1 << 22, lease=None)
        session.grant(Credit(1))

    def deliver(self, delivery: Delivery) -> None:
        self._loop.call_soon(self._load.work, self._subscription, delivery)

    def notify(self, notice: Notice) -> None:
        pass

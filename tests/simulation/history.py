"""One random history, from its seed."""

import asyncio
import logging
import traceback
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sidecar.brokers.base import AtPosition, SeekTo
from sidecar.model.errors import BrokerError
from sidecar.model.records import Lane, Message, Order
from sidecar.server.subscriptions import SubscriptionRegistry
from sidecar.settings import Exhausted
from sidecar.subscription.dead_letters import redrive
from tests.simulation.broker import Redriver, SimBroker
from tests.simulation.faults import Faults
from tests.simulation.fetchers import Fetcher
from tests.simulation.handler import Handler
from tests.simulation.loop import Stuck, VirtualLoop
from tests.simulation.plan import Plan, draw
from tests.simulation.source import Reading
from tests.simulation.truth import Truth
from tests.simulation.watched import WatchedSubscription
from tests.simulation.workers import Worker
from tests.simulation.world import World

#: a history has at least so many events before its end begins
EVENTS = 300
#: and at most about so many records
MOST_RECORDS = 100
#: it ends after so many steps, however little happens
_MOST_STEPS = 500
#: seconds in which all must be done once nothing goes wrong any more
_BOUND = 400.0
#: seconds without any success after which only an outage is left
_UNDECIDABLE = 10.0


@dataclass(frozen=True)
class Told:
    """How a history ended."""

    seed: int
    violation: str
    #: the exception that the code under test raised before it broke any promise
    raised: str
    seen: frozenset[str]
    events: int
    #: what happened when, in short; the same for the same seed wherever it runs
    fingerprint: int
    #: everything that happened, of a history that failed
    trace: tuple[tuple[Any, ...], ...]
    plan: str


class History:
    def __init__(self, seed: int, order: Order | None = None) -> None:
        self.loop = VirtualLoop()
        self.world = world = World(seed, self.loop)
        self.rng = world.rng
        self.plan: Plan = draw(self.rng, order)
        self.faults = Faults(world)
        lanes: dict[Lane, Any] = {}
        self.truth = Truth(world, self.plan.settings, lanes)
        self.truth.keeps_acks_beyond = self.plan.keeps_acks_beyond
        self.broker = SimBroker(
            world, self.truth, self.faults, keeps_acks_beyond=self.plan.keeps_acks_beyond, gaps=self.plan.gaps
        )
        self.truth.reading = self._reading
        storage = self.broker.storage
        storage.lanes = lanes
        self.truth.by_frame = storage.by_frame
        for topic, count in self.plan.lanes.items():
            storage.make_topic(topic, count)
        self.handler = Handler(world, storage.by_frame)
        self.subscription: WatchedSubscription | None = None
        self.workers: list[Worker | Fetcher] = [
            Fetcher(world, self.handler, self.truth, f"fetcher-{n}", self.current)
            if self.rng.random() < self.plan.fetchers
            else Worker(world, self.handler, f"worker-{n}", self.current)
            for n in range(self.plan.workers)
        ]
        self._produced = 0
        self._restarting = False

    def _reading(self, lane: Lane) -> Reading | None:
        source = self.broker.source
        return source.readings.get(lane) if source is not None else None

    def current(self) -> WatchedSubscription | None:
        return self.subscription

    def run(self) -> Told:
        asyncio.set_event_loop(None)
        problem = ""
        raised: BaseException | None = None
        try:
            self.loop.run_until_complete(self._live())
        except Stuck as stuck:
            problem = str(stuck)
        except Exception as error:
            raised = error
        if self.world.violation is not None:
            problem, raised = str(self.world.violation), self.world.raised_before
        else:
            raised = next(iter(self.loop.errors), raised)
        raised_text = "" if raised is None else "".join(traceback.format_exception(raised))
        self._shut()
        return Told(
            self.world.seed,
            problem or raised_text,
            raised_text,
            frozenset(self.world.seen),
            len(self.world.trace),
            zlib.crc32("".join(f"{event[0]:.9f}{event[1]}" for event in self.world.trace).encode()),
            tuple(self.world.trace) if problem else (),
            repr(self.plan),
        )

    def _shut(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.loop.set_exception_handler(lambda _loop, _context: None)
        try:
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.run_until_complete(asyncio.sleep(0))
        except Stuck:
            pass
        self.loop.close()

    # Life

    async def _live(self) -> None:
        self.produce(self.rng.randrange(5, 40))
        await self._start()
        for worker in self.workers:
            worker.later(self.rng.uniform(0.0, 0.2), worker.connect)
        actions = self._actions()
        steps = 0
        while len(self.world.trace) < EVENTS and steps < _MOST_STEPS:
            steps += 1
            await asyncio.sleep(self.rng.expovariate(1.0) * 0.4)
            self._check()
            action = self.rng.choices(*actions)[0]
            done = action()
            if done is not None:
                await done
        await self._finish()

    def _check(self) -> None:
        if self.world.violation is not None:
            raise self.world.violation
        if self.loop.errors:
            raise self.loop.errors[0]
        if self.subscription is not None:
            self.truth.flow.check(down=self.subscription.outage.down)
            bug = self.subscription.troubles.get("bug")
            if bug:
                raise AssertionError(bug)

    async def _start(self) -> None:
        self.truth.new_life()
        self.world.happened("life", self.truth.life)
        prefix = self.truth.life.to_bytes(8, "big") + b"\0\1"
        self.subscription = WatchedSubscription(
            self.plan.settings,
            self.broker,
            prefix=prefix,
            clock=self.world.clock,
            rng=self.rng,
        )
        self.subscription.directory = SubscriptionRegistry(prefix[:8], {prefix: self.subscription})
        await self.subscription.start()

    async def _crash(self) -> None:
        """Everything in memory is gone; the workers live on."""
        subscription = self.subscription
        if subscription is None:
            return
        self.world.happened("crash")
        self.world.exercised("the sidecar crashes")
        self.subscription = None
        assert self.broker.source is not None
        self.broker.source.crash()
        await subscription.close()
        await self._reborn()

    async def _drain(self) -> None:
        subscription = self.subscription
        if subscription is None:
            return
        self.world.happened("drain")
        self.world.exercised("10 drain is orderly")
        await subscription.drain(self.rng.choice((0.0, 0.5, 5.0)))
        self.subscription = None
        await self._reborn()

    async def _reborn(self) -> None:
        for worker in self.workers:
            worker.sidecar_died()
        await asyncio.sleep(self.rng.uniform(0.0, 1.0))
        await self._start()

    # Actions

    def _actions(self) -> tuple[list[Callable[[], Any]], list[float]]:
        rng = self.rng
        weights: list[tuple[Callable[[], Any], float]] = [
            (self._produce_some, 10.0),
            (lambda: None, 5.0),
            (self._crash, rng.choice((0.0, 0.0, 1.0))),
            (self._drain, rng.choice((0.0, 0.0, 1.0))),
            (self._revoke, rng.choice((0.0, 2.0))),
            (self._lose, rng.choice((0.0, 2.0))),
            (self._give, 3.0),
            (self._seek, rng.choice((0.0, 0.0, 1.0))),
            (self._outage, rng.choice((0.0, 0.0, 1.0))),
            (self._operator, rng.choice((0.0, 0.0, 1.0))),
            (self._burst, rng.choice((0.0, 1.0))),
            (self._retention, rng.choice((0.0, 0.0, 0.5))),
            (self._redrive, rng.choice((0.0, 0.0, 1.0))),
        ]
        return [action for action, _ in weights], [weight for _, weight in weights]

    def produce(self, count: int, *, kinds: bool = True) -> None:
        rng, plan = self.rng, self.plan
        if kinds and self._produced > MOST_RECORDS:
            return
        lanes = [log.lane for topic in plan.lanes for log in self.broker.storage.topics[topic]]
        busy = rng.choice(lanes)
        for _ in range(count):
            lane = busy if rng.random() < 0.3 else rng.choice(lanes)
            key = None if rng.random() < 0.15 else f"k{rng.randrange(plan.keys)}".encode()
            self._produced += 1
            size = plan.huge if plan.huge and rng.random() < 0.05 else rng.randrange(plan.largest)
            value = None if rng.random() < 0.05 else str(self._produced).encode() + b"." * size
            kind = "good"
            if kinds:
                dice = rng.random()
                kind = "poison" if dice < plan.poison else "killer" if dice < plan.poison + plan.killers else "good"
            copy = self.broker.storage.produce(lane, Message(key, value), self.world.now, self.broker.gap(), kind)
            self.truth.largest_record = max(self.truth.largest_record, copy.size)
        self.world.happened("produced", count)
        if self.broker.source is not None:
            self.broker.source.look()

    def _produce_some(self) -> None:
        self.produce(self.rng.choice((1, 2, 5, 10)))

    def _some_lanes(self) -> list[Lane]:
        source = self.broker.source
        lanes = sorted(source.readings) if source is not None else []
        return [lane for lane in lanes if self.rng.random() < 0.5]

    def _revoke(self) -> None:
        lanes = self._some_lanes()
        if lanes and self.broker.source is not None:
            self.world.exercised("lanes are revoked")
            self.broker.source.revoke(lanes, self.rng.choice((0.0, 0.5, 3.0)))

    def _lose(self) -> None:
        lanes = self._some_lanes()
        if lanes and self.broker.source is not None:
            self.world.exercised("lanes are lost")
            self.broker.source.lose(lanes)

    def _give(self) -> None:
        """Lanes that another sidecar of the group had come back, after it did some work."""
        source = self.broker.source
        if source is None or source.dead or not source.opened:
            return
        for log in source.logs():
            if log.owner == "other" and self.rng.random() < 0.7:
                if self.rng.random() < 0.6:
                    self._other_works(log)
                source.assign(log)

    def _other_works(self, log: Any) -> None:
        if not log.pinned:
            return
        window = self.plan.settings.window
        ahead = [p for p in log.positions[log.from_(log.committed) :] if not log.has_settled(p)]
        done = self.rng.randrange(0, min(len(ahead), window.records) + 1)
        for position in ahead[:done]:
            log.copies[position].acked = True
        if done:
            self.world.exercised("another sidecar works on a lane")
            stop = ahead[done] if done < len(ahead) else log.end
            log.beyond = tuple(run for run in log.beyond if run.start > stop)
            log.committed = stop
        at = log.from_(log.committed)
        for position in log.positions[at : at + window.records][: self.rng.randrange(0, 4)]:
            if position < log.committed + window.span and not log.has_settled(position):
                log.copies[position].last_delivered_by = -1
        self.world.happened("other", log.lane, log.committed)

    async def _seek(self) -> None:
        subscription, source = self.subscription, self.broker.source
        if subscription is None or source is None:
            return
        lanes = [lane for lane in subscription.lanes() if self.rng.random() < 0.5]
        targets = {}
        for lane in lanes:
            log = self.broker.storage.lanes[lane]
            targets[lane] = self.rng.choice((SeekTo.START, SeekTo.END, AtPosition(self.rng.randrange(0, log.end + 1))))
        if not targets:
            return
        self.world.happened("seek", targets)
        try:
            await subscription.seek(targets)
        except BrokerError as error:
            self.world.happened("seek failed", str(error))

    def _outage(self) -> None:
        if not self.handler.outage:
            self.handler.outage = True
            self.world.happened("outage")
            self.loop.call_later(self.rng.uniform(0.5, 15.0), self._recovers)

    def _recovers(self) -> None:
        self.handler.outage = False
        self.world.happened("recovers")

    def _operator(self) -> None:
        subscription = self.subscription
        if subscription is None:
            return
        subscription.status()
        if subscription.paused_because:
            subscription.resume()
        else:
            subscription.pause("an operator says so")
            self.world.exercised("pause")
            self.loop.call_later(self.rng.uniform(0.1, 5.0), self._resume)

    def _resume(self) -> None:
        if self.subscription is not None:
            self.subscription.resume()

    def _burst(self) -> None:
        name = self.rng.choice(("poll fails", "commit fails", "dead letter fails", "park fails"))
        self.faults.strike_until(name, self.world.now + self.rng.uniform(0.5, 10.0))

    def _retention(self) -> None:
        """The oldest records that nobody has read are removed."""
        lane = self.rng.choice([log.lane for topic in self.plan.lanes for log in self.broker.storage.topics[topic]])
        reading, epoch = self._reading(lane), self.truth.epochs.get(lane)
        if reading is not None and epoch is not None and reading.told:
            removed = reading.log.remove(self.rng.randrange(1, 4), max(reading.next, epoch.tracked))
            if removed:
                self.world.exercised("records are removed by retention")
                self.world.happened("removed", *removed)

    async def _redrive(self) -> None:
        """An operator sends all dead letters back."""
        if self.broker.storage.topics.get(self.plan.settings.dead_letter_topic):
            try:
                await redrive(Redriver(self.broker), self.plan.settings, ids=(), wall_ms=self.world.clock.wall_ms())
            except BrokerError as error:
                self.world.happened("redrive failed", str(error))

    # The end

    async def _finish(self) -> None:
        """Nothing goes wrong any more: within a bounded time every record is dealt with and committed."""
        self.world.happened("calm")
        self.faults.on = False
        self.handler.behave()
        if self.plan.settings.retry.exhausted is Exhausted.HOLD:
            self._heal()
        self._resume()
        for worker in self.workers:
            worker.leave_soon()
        began = fed = self.world.now
        until = began + _BOUND
        while self.world.now < until:
            await asyncio.sleep(0.5)
            self._check()
            if self.truth.all_done() and not self._wrong_at_the_end():
                return
            self._give()
            self._resume()
            if self.world.now > max(began, self.truth.last_success or 0.0) + _UNDECIDABLE:
                # Poison that holds up all that could succeed cannot be told from an outage: somebody mends the handler.
                self._heal()
            if self.world.now > fed + 2.0:
                # Something must succeed now and then, or the rest looks like an outage.
                fed = self.world.now
                self.produce(1, kinds=False)
        if self.truth.all_done():
            self.world.broken(*self._wrong_at_the_end())
        self.world.broken(
            "5 one slow record holds up nobody else", f"not done in {_BOUND} s: {self.truth.why_not_done()}"
        )

    def _heal(self) -> None:
        for copy in self.broker.storage.by_frame.values():
            copy.kind = "good"

    def _wrong_at_the_end(self) -> tuple[str, str] | tuple[()]:
        """What the subscription does not know yet or has forgotten, though all is done. The broker may have lanes to
        tell it of: that takes a poll."""
        subscription = self.subscription
        assert subscription is not None
        for lane in subscription.status().lanes:
            if lane.lag != 0:
                return "the status", f"all is done, but the lag is not 0: {lane}"
        if subscription.tracker.records or subscription.tracker.bytes:
            held = f"{subscription.tracker.records} records, {subscription.tracker.bytes} bytes remain"
            return "7 memory is bounded", held
        return ()


def run(seed: int, order: Order | None = None) -> Told:
    logging.disable(logging.CRITICAL)
    try:
        return History(seed, order).run()
    finally:
        logging.disable(logging.NOTSET)

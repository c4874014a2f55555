"""One random history, from its seed."""

import asyncio
import logging
import traceback
import zlib
from dataclasses import dataclass
from typing import Any

from sidecar.core.state.record_slices import RedeliveryState
from sidecar.model.records import Lane, Order
from sidecar.server.subscriptions import BOOT_BYTES, SubscriptionRegistry, lease_prefix
from sidecar.settings import Exhausted
from tests.simulation.actions import Actions
from tests.simulation.broker.faults import Faults
from tests.simulation.broker.simulated_broker import SimulatedBroker
from tests.simulation.broker.source import LaneReader
from tests.simulation.checked_subscription import CheckedSubscription
from tests.simulation.checker.checker import Checker
from tests.simulation.checker.promises import Promise
from tests.simulation.neighbour import Neighbour
from tests.simulation.plan import Plan, draw
from tests.simulation.virtual_time import Stuck, VirtualLoop
from tests.simulation.workers.fetching import Fetcher
from tests.simulation.workers.handler import Handler
from tests.simulation.workers.real_stream import StreamWorker
from tests.simulation.workers.streaming import Worker
from tests.simulation.world import World

#: events after which the end of a history begins
EVENTS = 300
#: steps after which it begins at the latest
_MOST_STEPS = 500
#: seconds within which all must be done once nothing goes wrong any more
_BOUND = 400.0
#: seconds without any success after which the end would be an outage
_UNDECIDABLE = 10.0


@dataclass(frozen=True)
class Result:
    """How a history ended."""

    seed: int
    violation: str
    #: the exception that the code under test raised before it broke any promise
    raised: str
    seen: frozenset[str]
    events: int
    #: checksum of the trace: the same for the same seed wherever it runs
    fingerprint: int
    #: all events, if it failed
    trace: tuple[tuple[Any, ...], ...]
    plan: str


class History:
    """A subscription with its broker and its workers, driven through random actions in virtual time."""

    def __init__(self, seed: int, order: Order | None = None) -> None:
        self.loop = VirtualLoop()
        self.world = world = World(seed, self.loop)
        self.rng = world.rng
        self.plan: Plan = draw(self.rng, order)
        self.faults = Faults(world)
        lanes: dict[Lane, Any] = {}
        self.checker = Checker(world, self.plan.settings, lanes)
        self.checker.keeps_acks_beyond = self.plan.keeps_acks_beyond
        self.broker = SimulatedBroker(
            world,
            self.checker,
            self.faults,
            keeps_acks_beyond=self.plan.keeps_acks_beyond,
            keeps_reach=self.plan.keeps_reach,
            gaps=self.plan.gaps,
            largest_parked=self.plan.largest_parked,
        )
        self.checker.reader = self._reader
        storage = self.broker.storage
        storage.lanes = lanes
        self.checker.by_frame = storage.by_frame
        for topic, count in self.plan.lanes.items():
            storage.make_topic(topic, count)
        self.handler = Handler(world, storage.by_frame)
        self.neighbour = Neighbour(world)
        self.subscription: CheckedSubscription | None = None
        #: of the current life
        self.settings = self.plan.settings
        self.workers: list[Worker | Fetcher] = [
            Fetcher(world, self.handler, self.checker, f"fetcher-{n}", self.current, self.neighbour)
            if self.rng.random() < self.plan.fetchers
            else StreamWorker(
                world, self.handler, f"stream-{n}", self.current, checker=self.checker, neighbour=self.neighbour
            )
            if self.rng.random() < self.plan.streams
            else Worker(world, self.handler, f"worker-{n}", self.current)
            for n in range(self.plan.workers)
        ]
        self.actions = Actions(self)

    def _reader(self, lane: Lane) -> LaneReader | None:
        source = self.broker.source
        return source.readers.get(lane) if source is not None else None

    def current(self) -> CheckedSubscription | None:
        return self.subscription

    def run(self) -> Result:
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
        return Result(
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

    # The course of a history

    async def _live(self) -> None:
        self.actions.produce(self.rng.randrange(5, 40))
        await self._start()
        for worker in self.workers:
            worker.later(self.rng.uniform(0.0, 0.2), worker.connect)
        actions = self.actions.weighted()
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
        for worker in self.workers:
            if batches := worker.kept_batches():
                text = f"the sidecar keeps {batches} batches for {worker.name}, which holds none"
                self.world.broken(Promise.MEMORY, text)
        if self.subscription is not None:
            self.checker.progress.check(down=self.subscription.outage.down)
            bug = self.subscription.troubles.get("bug")
            if bug:
                raise AssertionError(bug)

    async def _start(self) -> None:
        if self.plan.later and self.checker.life:
            self.settings = self.rng.choice(self.plan.later)
            self.world.exercised("other settings in a later life")
        self.checker.new_life(self.settings)
        self.world.happened("life", self.checker.life)
        prefix = lease_prefix(self.checker.life.to_bytes(BOOT_BYTES), 1)
        self.subscription = CheckedSubscription(
            self.settings, self.broker, prefix=prefix, clock=self.world.clock, rng=self.rng
        )
        its_prefix = lease_prefix(prefix[:BOOT_BYTES], 2)
        leased = {prefix: self.subscription, its_prefix: await self.neighbour.start(its_prefix)}
        self.subscription.directory = SubscriptionRegistry(prefix[:BOOT_BYTES], leased)
        await self.subscription.start()

    async def crash(self) -> None:
        """Everything in memory is lost; the workers live on."""
        subscription = self.subscription
        if subscription is None:
            return
        self.world.happened("crash")
        self.world.exercised("the sidecar crashes")
        self.subscription = None
        subscription.crashed = True
        assert self.broker.source is not None
        self.broker.source.crash()
        await asyncio.gather(subscription.close(), self.neighbour.stop())
        await self._start_again()

    async def drain(self) -> None:
        subscription = self.subscription
        if subscription is None:
            return
        self.world.happened("drain")
        self.world.exercised(Promise.DRAIN)
        await subscription.drain(self.rng.choice((0.0, 0.5, 5.0)))
        await self.neighbour.stop()
        self.subscription = None
        await self._start_again()

    async def _start_again(self) -> None:
        for worker in self.workers:
            worker.sidecar_died()
        await asyncio.sleep(self.rng.uniform(0.0, 1.0))
        await self._start()

    # The end

    async def _finish(self) -> None:
        """Nothing goes wrong any more: within a bounded time every record must be over and committed."""
        self.world.happened("calm")
        self.faults.on = False
        self.handler.behave()
        if self.settings.retry.exhausted is Exhausted.HOLD:
            self._heal()
        self.actions.resume()
        for worker in self.workers:
            worker.leave_soon()
        began = fed = self.world.now
        until = began + _BOUND
        while self.world.now < until:
            await asyncio.sleep(0.5)
            self._check()
            if self.checker.all_done() and not self._wrong_at_the_end():
                await self.neighbour.check_done()
                return
            self.actions.give()
            self.actions.resume()
            if self.world.now > max(began, self.checker.last_success or 0.0) + _UNDECIDABLE:
                # Poison that holds up all the rest looks like an outage, so it has to end.
                self._heal()
            if self.world.now > fed + 2.0:
                # Something must succeed now and then, or it would look like an outage.
                fed = self.world.now
                self.actions.produce(1, kinds=False)
        if self.checker.all_done():
            self.world.broken(*self._wrong_at_the_end())
        self.world.broken(Promise.SLOW_RECORD, f"not done in {_BOUND} s: {self.checker.why_not_done()}")

    def _heal(self) -> None:
        for copy in self.broker.storage.by_frame.values():
            copy.kind = "good"

    def _wrong_at_the_end(self) -> tuple[str, str] | tuple[()]:
        """What the status gets wrong although all is done. (The subscription learns of new lanes with a poll.)"""
        subscription = self.subscription
        assert subscription is not None
        for lane in subscription.status().lanes:
            if lane.lag != 0:
                return "the status", f"all is done, but the lag is not 0: {lane}"
        if subscription.tracker.records or subscription.tracker.bytes:
            held = f"{subscription.tracker.records} records, {subscription.tracker.bytes} bytes remain"
            return Promise.MEMORY, held
        for lease in subscription.tracker.leases._finished.values():
            waits = any(group.state is RedeliveryState.WAITING for group in lease.redeliveries)
            if (lease.slices or lease.redeliveries) and not waits:
                return Promise.MEMORY, f"lease {lease.number} keeps its records, though it cannot be settled any more"
        return ()


def run(seed: int, order: Order | None = None) -> Result:
    logging.disable(logging.CRITICAL)
    try:
        return History(seed, order).run()
    finally:
        logging.disable(logging.NOTSET)

"""What happens in the demo, act by act.

An act is a script: a generator that yields as long as what it waits for has not happened. All acts are on stage at the
same time and are asked again at every new picture; the demo is over when every order is settled.
"""

import time
from collections.abc import Callable, Iterator

from sidecar.cli.demo.cast import Actor, Cast
from sidecar.cli.demo.comeback import Comeback, busiest
from sidecar.cli.demo.picture import LanePicture, Picture
from sidecar.cli.demo.plan import Folder, Plan
from sidecar.cli.demo.publisher import SHARES

Act = Iterator[None]

#: shares of all orders: when a worker is killed, and how few behind is none to speak of
_KILL_AT, _CAUGHT_UP = 0.62, 0.01


class Acts:
    """`tell` says to the audience, in one line, what has just happened."""

    def __init__(self, plan: Plan, folder: Folder, cast: Cast, tell: Callable[[str], None]) -> None:
        self._plan = plan
        self._folder = folder
        self._cast = cast
        self._tell = tell
        self._now = Picture()
        #: those that live, by name
        self.workers: dict[str, Actor] = {}
        #: names of those whose place is empty
        self.killed: set[str] = set()
        #: the publishers of the orders that come while the workers work
        self._live: list[Actor] = []
        self._last = self._all_is_done()
        self._acts = [
            self._orders_come_in(),
            self._backlog_goes(),
            self._slow_lane_is_slow(),
            self._worker_is_killed(),
            self._pre_orders_are_parked(),
            self._torn_orders_are_found(),
            self._last,
        ]

    def go_on(self, picture: Picture) -> bool:
        """Shows them the moment. Answers whether there is more to come: what has not happened by the end never will."""
        self._now = picture
        self._acts = [act for act in self._acts if _plays(act)]
        return self._last in self._acts

    # The acts

    def _orders_come_in(self) -> Act:
        plan = self._plan
        began = time.monotonic()
        senders = [self._cast.publisher("backlog", share) for share in range(SHARES)]
        yield from _until(lambda: _ended(senders))
        rate = plan.backlog_records / (time.monotonic() - began)
        self._tell(
            f"{plan.backlog_records:,} orders are on disk in {plan.lanes} lanes, published at {rate:,.0f} a second."
        )
        for number in range(1, plan.workers + 1):
            self._worker_comes(f"worker-{number}")
        self._live = [self._cast.publisher("live", share) for share in range(SHARES)]
        yield from _until(lambda: len(self._now.workers) == plan.workers)
        self._tell(f"{plan.workers} worker processes dial the socket for batches. More orders keep coming.")

    def _backlog_goes(self) -> Act:
        began = time.monotonic()
        while not self._now.workers:
            # The last moment without a worker: what is measured from there is rather too slow than too fast.
            began = time.monotonic()
            yield
        yield from _until(self._others_caught_up)
        rate = self._now.done / (time.monotonic() - began)
        self._tell(f"The backlog is gone: {rate:,.0f} orders a second went through one sidecar.")

    def _slow_lane_is_slow(self) -> Act:
        lane, ms = self._plan.slow_lane, self._plan.slow_seconds * 1000
        yield from _until(lambda: self._others_caught_up() and 2 * self._slow.behind > self._plan.window)
        self._tell(f"Lane {lane} is slow on purpose, {ms:.0f} ms an order. It is behind, nobody else is.")
        yield from _until(lambda: self._all_published() and self._others_caught_up())
        if self._slow.behind:
            self._tell(f"All orders are published. Only lane {lane} has work left: {self._slow.behind:,} orders.")

    def _worker_is_killed(self) -> Act:
        yield from _until(lambda: self._now.done > _KILL_AT * self._plan.records)
        while (name := busiest(self._folder, self.workers)) is None:
            yield
        victim = self.workers.pop(name)
        comeback = Comeback(self._folder, name, self._cast.kill(victim))
        self.killed.add(name)
        self._tell(f"kill -9 {name}, with {comeback.orders:,} orders in its hands.")
        returns = time.monotonic() + self._plan.absence
        yield from _until(comeback.is_complete)
        self._tell(
            f"Back at once: other workers had the first after {comeback.first * 1000:.0f} ms, "
            f"all after {comeback.last * 1000:.0f} ms."
        )
        yield from _until(lambda: time.monotonic() > returns)
        self._worker_comes(f"{name}b")
        yield from _until(lambda: any(worker.name == f"{name}b" for worker in self._now.workers))
        self.killed.remove(name)
        self._tell(f"{name}b takes its place. No lane had to move for it.")

    def _pre_orders_are_parked(self) -> Act:
        plan = self._plan
        yield from _until(lambda: self._now.parked >= 0.9 * plan.pre_orders)
        self._tell(f"{plan.pre_orders} pre-orders ask for {plan.wait:.0f} s: parked on disk, and their lanes go on.")
        yield from _until(lambda: not self._now.parked_now)
        self._tell("The pre-orders were due, came back, and are done.")

    def _torn_orders_are_found(self) -> Act:
        plan = self._plan
        yield from _until(lambda: self._now.splits > 0)
        self._tell("A torn order fails its whole batch: halved until the bad one is alone.")
        yield from _until(lambda: self._now.dead_lettered >= plan.torn + plan.refunds)
        torn = f"{plan.torn} torn orders, tried {plan.attempts} times alone"
        self._tell(f"{torn}, and {plan.refunds} rejected ones: dead letters.")

    def _all_is_done(self) -> Act:
        yield from _until(lambda: self._all_published() and self._now.at_rest)
        self._tell("Every order is settled. The workers leave, the sidecar drains and stops.")

    # What they wait for

    @property
    def _slow(self) -> LanePicture:
        return self._now.lanes[self._plan.slow_lane]

    def _others_caught_up(self) -> bool:
        behind = sum(lane.behind for lane in self._now.lanes if lane.number != self._plan.slow_lane)
        return bool(self._live) and behind < _CAUGHT_UP * self._plan.records

    def _all_published(self) -> bool:
        return bool(self._live) and _ended(self._live) and self._now.published >= self._plan.records

    def _worker_comes(self, name: str) -> None:
        self.workers[name] = self._cast.worker(name)


def _plays(act: Act) -> bool:
    """One step of an act. Answers whether it goes on."""
    for _ in act:
        return True
    return False


def _until(happened: Callable[[], bool]) -> Act:
    while not happened():
        yield


def _ended(actors: list[Actor]) -> bool:
    return all(actor.ended for actor in actors)

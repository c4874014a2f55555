"""What happens in the demo, scene by scene.

A scene is a generator that yields while it waits for something. All scenes run at the same time and are resumed with
every snapshot of the sidecar; the demo ends when every order is settled.
"""

import time
from collections.abc import Callable, Iterator

from sidecar.cli.demo.journal import Recovery, busiest
from sidecar.cli.demo.plan import Folder, Plan
from sidecar.cli.demo.processes import Process, Processes
from sidecar.cli.demo.publisher import SHARES
from sidecar.cli.demo.snapshot import LaneSnapshot, Snapshot

Scene = Iterator[None]

#: shares of all orders: done when a worker is killed, and not done yet when a backlog counts as gone
_KILL_AT, _CAUGHT_UP = 0.62, 0.01


class Script:
    """Makes things happen. `tell` shows in one line what has just happened."""

    def __init__(self, plan: Plan, folder: Folder, processes: Processes, tell: Callable[[str], None]) -> None:
        self._plan = plan
        self._folder = folder
        self._processes = processes
        self._tell = tell
        self._now = Snapshot()
        #: running workers by name
        self.workers: dict[str, Process] = {}
        #: names of killed workers that are not replaced yet
        self.killed: set[str] = set()
        #: the publishers of the orders that arrive while the workers run
        self._live: list[Process] = []
        self._last = self._all_is_done()
        self._scenes = [
            self._orders_come_in(),
            self._backlog_goes(),
            self._slow_lane_is_slow(),
            self._worker_is_killed(),
            self._pre_orders_are_parked(),
            self._torn_orders_are_found(),
            self._last,
        ]

    def advance(self, now: Snapshot) -> bool:
        """Resumes every scene. Returns whether the demo goes on: scenes that wait at its end never happen."""
        self._now = now
        self._scenes = [scene for scene in self._scenes if _resume(scene)]
        return self._last in self._scenes

    # The scenes

    def _orders_come_in(self) -> Scene:
        plan = self._plan
        began = time.monotonic()
        senders = [self._processes.publisher("backlog", share) for share in range(SHARES)]
        yield from _until(lambda: _ended(senders))
        rate = plan.backlog_records / (time.monotonic() - began)
        self._tell(
            f"{plan.backlog_records:,} orders are on disk in {plan.lanes} lanes, published at {rate:,.0f} a second."
        )
        for number in range(1, plan.workers + 1):
            self._worker_comes(f"worker-{number}")
        self._live = [self._processes.publisher("live", share) for share in range(SHARES)]
        yield from _until(lambda: len(self._now.workers) == plan.workers)
        self._tell(f"{plan.workers} worker processes dial the socket for batches. More orders keep coming.")

    def _backlog_goes(self) -> Scene:
        began = time.monotonic()
        while not self._now.workers:
            # Measured from the last snapshot without a worker, so that the rate is rather too low than too high.
            began = time.monotonic()
            yield
        yield from _until(self._others_caught_up)
        rate = self._now.done / (time.monotonic() - began)
        self._tell(f"The backlog is gone: {rate:,.0f} orders a second went through one sidecar.")

    def _slow_lane_is_slow(self) -> Scene:
        lane, ms = self._plan.slow_lane, self._plan.slow_seconds * 1000
        yield from _until(lambda: self._others_caught_up() and 2 * self._slow.behind > self._plan.window)
        self._tell(f"Lane {lane} is slow on purpose, {ms:.0f} ms an order. It is behind, nobody else is.")
        yield from _until(lambda: self._all_published() and self._others_caught_up())
        if self._slow.behind:
            self._tell(f"All orders are published. Only lane {lane} has work left: {self._slow.behind:,} orders.")

    def _worker_is_killed(self) -> Scene:
        yield from _until(lambda: self._now.done > _KILL_AT * self._plan.records)
        while (name := busiest(self._folder.journals, self.workers)) is None:
            yield
        killed_at = self._processes.kill(self.workers.pop(name))
        recovery = Recovery(self._folder.journals, name, killed_at)
        self.killed.add(name)
        self._tell(f"kill -9 {name}, with {recovery.records:,} orders in its hands.")
        returns = time.monotonic() + self._plan.absence
        yield from _until(recovery.is_complete)
        self._tell(
            f"Back at once: other workers had the first after {recovery.first * 1000:.0f} ms, "
            f"all after {recovery.last * 1000:.0f} ms."
        )
        yield from _until(lambda: time.monotonic() > returns)
        self._worker_comes(f"{name}b")
        yield from _until(lambda: any(worker.name == f"{name}b" for worker in self._now.workers))
        self.killed.remove(name)
        self._tell(f"{name}b takes its place. No lane had to move for it.")

    def _pre_orders_are_parked(self) -> Scene:
        plan = self._plan
        yield from _until(lambda: self._now.parked >= 0.9 * plan.pre_orders)
        self._tell(f"{plan.pre_orders} pre-orders ask for {plan.wait:.0f} s: parked on disk, and their lanes go on.")
        yield from _until(lambda: not self._now.parked_now)
        self._tell("The pre-orders were due, came back, and are done.")

    def _torn_orders_are_found(self) -> Scene:
        plan = self._plan
        yield from _until(lambda: self._now.splits > 0)
        self._tell("A torn order fails its whole batch: split in halves until it is alone.")
        yield from _until(lambda: self._now.dead_lettered >= plan.torn + plan.refunds)
        torn = f"{plan.torn} torn orders, tried {plan.attempts} times alone"
        self._tell(f"{torn}, and {plan.refunds} rejected ones: dead letters.")

    def _all_is_done(self) -> Scene:
        yield from _until(lambda: self._all_published() and self._now.at_rest)
        self._tell("Every order is settled. The workers stop, the sidecar drains and exits.")

    # What scenes wait for

    @property
    def _slow(self) -> LaneSnapshot:
        return self._now.lanes[self._plan.slow_lane]

    def _others_caught_up(self) -> bool:
        behind = sum(lane.behind for lane in self._now.lanes if lane.number != self._plan.slow_lane)
        return bool(self._live) and behind < _CAUGHT_UP * self._plan.records

    def _all_published(self) -> bool:
        return bool(self._live) and _ended(self._live) and self._now.published >= self._plan.records

    def _worker_comes(self, name: str) -> None:
        self.workers[name] = self._processes.worker(name)


def _resume(scene: Scene) -> bool:
    """Runs a scene up to its next yield. Returns whether it goes on."""
    for _ in scene:
        return True
    return False


def _until(happened: Callable[[], bool]) -> Scene:
    while not happened():
        yield


def _ended(processes: list[Process]) -> bool:
    return all(process.ended for process in processes)

"""The business code of the workers: how long it takes, what it fails at, and what kills it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sidecar.model.records import Outcome, Part, SessionEnd, Settlement
from tests.simulation.broker.storage import StoredRecord
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.workers.streaming import Worker

#: what workers may do, and the largest share of batches with which they do it
HABITS = {
    "nacks": 0.3,
    "nacks with retry_after": 0.2,
    "asks for a long wait": 0.15,
    "nacks a part": 0.2,
    "rejects": 0.15,
    "releases": 0.2,
    "overloaded": 0.15,
    "settles in parts": 0.3,
    "settles too late": 0.2,
    "never settles": 0.1,
    "extends": 0.3,
    "settles twice": 0.3,
    "changes its mind": 0.3,
    "dies": 0.1,
    "leaves": 0.1,
    "is slow": 0.1,
    "settles old leases": 0.2,
    "says nonsense": 0.1,
}

#: share of settlements that every worker repeats: it did not get the answer
_REPEATED = 0.1


class Handler:
    """Shared by all workers. After `behave` every batch is processed normally."""

    def __init__(self, world: World, by_frame: dict[tuple[str, bytes], StoredRecord]) -> None:
        self.world = world
        self.rng = rng = world.rng
        self.by_frame = by_frame
        self.outage = False
        self.behaves = False
        #: whether the worker names the poison, or nacks the whole batch
        self.names_poison = rng.random() < 0.4
        share = rng.choice((0.0, 0.2, 0.5))
        self.habits = {name: most * rng.random() for name, most in HABITS.items() if rng.random() < share}
        self.speed = rng.choice((0.001, 0.01, 0.1, 0.5))
        self.long_wait = rng.choice((2.0, 10.0, 40.0))

    def behave(self) -> None:
        self.behaves = True
        self.habits = {}
        self.outage = False

    def has(self, habit: str) -> bool:
        rate = self.habits.get(habit)
        if rate is None or self.rng.random() >= rate:
            return False
        self.world.exercised(habit)
        return True

    def work(self) -> float:
        if self.has("is slow"):
            return self.rng.uniform(1.0, 15.0)
        return self.rng.expovariate(1.0) * self.speed

    def finish(self, worker: "Worker", lease: bytes, copies: Sequence[StoredRecord], *, alive: bool) -> None:
        """A worker has worked on a batch. `alive`: the session that got it lives."""
        rng = self.rng
        if alive and (any(copy.kind == "killer" for copy in copies) or self.has("dies")):
            worker.leave(SessionEnd.LOST)
            if rng.random() < 0.3:
                # A settlement that it sent before arrives after all.
                worker.later(rng.uniform(0.0, 0.5), lambda: worker.settle(self.outcome(lease, copies)))
            return
        if alive and self.has("leaves"):
            if worker.session is not None:
                worker.session.stop_deliveries()
            worker.leave(SessionEnd.ORDERLY)
            return
        if alive and self.has("extends"):
            self._extend(worker, lease, copies)
            return
        if self.has("never settles"):
            worker.busy.pop(lease, None)
            return
        if self.has("settles too late"):
            worker.later(rng.uniform(1.0, 30.0), lambda: self._settle(worker, lease, copies))
            return
        self._settle(worker, lease, copies)

    def _extend(self, worker: "Worker", lease: bytes, copies: Sequence[StoredRecord]) -> None:
        subscription = worker._current()
        if subscription is not None:
            subscription.extend(lease, self.rng.uniform(0.5, 30.0))
        worker.later(self.rng.uniform(0.1, 5.0), lambda: self._settle(worker, lease, copies))

    def _settle(self, worker: "Worker", lease: bytes, copies: Sequence[StoredRecord]) -> None:
        rng = self.rng
        worker.busy.pop(lease, None)
        settlement = self.outcome(lease, copies)
        if len(copies) > 1 and settlement.outcome is not None and self.has("settles in parts"):
            cut = self.rng.randrange(1, len(copies))
            first = self.rng.randrange(0, cut)
            part = Part(first, cut - first, settlement.outcome, settlement.reason, settlement.retry_after)
            worker.settle(Settlement(lease, None, parts=(part,)))
            if not self.has("never settles"):
                worker.later(self.rng.uniform(0.0, 1.0), lambda: worker.settle(settlement))
            return
        if self.has("says nonsense"):
            worker.settle(Settlement(lease, None, parts=(Part(len(copies), 1, Outcome.ACK),)))
        worker.settle(settlement)
        if self.has("settles twice") or (not self.behaves and rng.random() < _REPEATED):
            worker.later(rng.choice((0.0, 1.0, 5.0)), lambda: worker.settle(settlement))
        if self.has("changes its mind"):
            worker.settle(Settlement(lease, self.rng.choice((Outcome.ACK, Outcome.NACK, Outcome.REJECT))))
        if self.has("settles old leases"):
            old, _ = self.rng.choice(worker.old)
            outcome = self.rng.choice((Outcome.ACK, Outcome.ACK, Outcome.NACK, Outcome.RELEASE))
            worker.settle(Settlement(old, outcome))

    def outcome(self, lease: bytes, copies: Sequence[StoredRecord]) -> Settlement:
        rng = self.rng
        if self.outage:
            self.world.exercised("the handler is down")
            return Settlement(lease, Outcome.NACK, "down")
        bad = [index for index, copy in enumerate(copies) if copy.kind == "poison"]
        if bad:
            self.world.exercised("poison")
            if self.names_poison and len(copies) > 1:
                parts = tuple(Part(index, 1, Outcome.NACK, "poison") for index in bad)
                return Settlement(lease, Outcome.ACK, parts=parts)
            return Settlement(lease, Outcome.NACK, "poison")
        if self.has("nacks"):
            return Settlement(lease, Outcome.NACK, "whole")
        if self.has("nacks with retry_after"):
            return Settlement(lease, Outcome.NACK, "later", rng.choice((0.0, 0.5, 3.0)))
        if self.has("asks for a long wait"):
            if len(copies) > 1 and rng.random() < 0.7:
                part = Part(rng.randrange(len(copies)), 1, Outcome.NACK, "much later", self.long_wait)
                return Settlement(lease, Outcome.ACK, parts=(part,))
            return Settlement(lease, Outcome.NACK, "much later", self.long_wait)
        if len(copies) > 1 and self.has("nacks a part"):
            first = rng.randrange(len(copies))
            count = rng.randrange(1, len(copies) - first + 1)
            part = Part(first, count, rng.choice((Outcome.NACK, Outcome.ACK)), "part")
            return Settlement(lease, rng.choice((Outcome.ACK, Outcome.NACK)), "rest", parts=(part,))
        if self.has("rejects"):
            if len(copies) > 1 and rng.random() < 0.4:
                part = Part(rng.randrange(len(copies)), 1, Outcome.REJECT, "no good")
                return Settlement(lease, Outcome.ACK, parts=(part,))
            return Settlement(lease, Outcome.REJECT, "no good")
        if self.has("releases"):
            return Settlement(lease, Outcome.RELEASE)
        if self.has("overloaded"):
            return Settlement(lease, Outcome.OVERLOADED, "", rng.choice((None, 0.0, 1.0)))
        return Settlement(lease, Outcome.ACK)

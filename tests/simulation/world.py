"""What all parts of one history share: its dice, its trace, and what it has exercised."""

import random
from collections.abc import Callable
from typing import Any, NoReturn

from tests.simulation.loop import VirtualClock, VirtualLoop


class Violation(AssertionError):
    """A promise was broken."""


class World:
    """One history. `happened` notes what took place; `exercised` notes which fault or promise was put to the test."""

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self.seed = seed
        self.loop = loop
        self.clock = VirtualClock(loop)
        self.rng = random.Random(seed)
        #: (time, what, details), in order
        self.trace: list[tuple[Any, ...]] = []
        self.seen: set[str] = set()
        #: what to call sessions in the trace
        self.names: dict[Any, str] = {}
        self.violation: Violation | None = None
        #: the exception that was raised before any promise was broken
        self.raised_before: BaseException | None = None
        self.exercised: Callable[[str], None] = self.seen.add

    @property
    def now(self) -> float:
        return self.loop._now

    def happened(self, what: str, *details: Any) -> None:
        self.trace.append((self.loop._now, what, *details))

    def broken(self, promise: str, text: str) -> NoReturn:
        """A promise does not hold. Remembered, because the code under test may swallow what is raised in it."""
        violation = Violation(f"{promise}: {text}")
        if self.violation is None:
            self.violation = violation
            self.raised_before = next(iter(self.loop.errors), None)
            self.happened("BROKEN", promise, text)
        raise violation

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

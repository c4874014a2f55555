"""What all parts of one history share: random numbers, time, the trace, and what was exercised."""

import random
from collections.abc import Callable
from typing import Any, NoReturn

from tests.simulation.virtual_time import VirtualClock, VirtualLoop


class Violation(AssertionError):
    """A promise is broken."""


class World:
    """One history. `happened` adds an event to the trace; `exercised` notes which fault or promise was tested."""

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self.seed = seed
        self.loop = loop
        self.clock = VirtualClock(loop)
        self.rng = random.Random(seed)
        #: (time, what, details), in order
        self.trace: list[tuple[Any, ...]] = []
        self.seen: set[str] = set()
        #: names of sessions in the trace
        self.names: dict[Any, str] = {}
        self.violation: Violation | None = None
        #: the exception that the code under test raised before any promise was broken
        self.raised_before: BaseException | None = None
        self.exercised: Callable[[str], None] = self.seen.add

    @property
    def now(self) -> float:
        return self.loop._now

    def happened(self, what: str, *details: Any) -> None:
        self.trace.append((self.loop._now, what, *details))

    def broken(self, promise: str, text: str) -> NoReturn:
        """A promise does not hold. Kept in `violation`, because the code under test may swallow the exception."""
        violation = Violation(f"{promise}: {text}")
        if self.violation is None:
            self.violation = violation
            self.raised_before = next(iter(self.loop.errors), None)
            self.happened("BROKEN", promise, text)
        raise violation

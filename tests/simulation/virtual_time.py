"""An event loop in virtual time: it jumps to the next timer when nothing is ready. No files, sockets or threads."""

import asyncio
from typing import Any

from sidecar.model.clock import Clock

#: milliseconds since 1970 at which every history begins
EPOCH_MS = 1_700_000_000_000
#: turns of the loop after which time must have passed
_MOST_TURNS = 50_000


class Stuck(Exception):
    """Nothing is ready and no timer is set, or the loop is busy and time stands still."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Deterministic: ready callbacks run in order; timers run by time, then in the order in which they were set."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._turns = 0
        self._selector = self
        self._clock_resolution = 1e-9
        #: exceptions of callbacks and of tasks that nobody awaited
        self.errors: list[BaseException] = []
        self.set_exception_handler(self._note_error)

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> tuple[()]:
        """Called by the base class in place of the operating system's select. Waiting takes no time."""
        if timeout is None:
            raise Stuck("nothing is ready and no timer is set")
        self._turns += 1
        if timeout > 0:
            self._now = self._scheduled[0].when()  # type: ignore[attr-defined]
            self._turns = 0
        elif self._turns > _MOST_TURNS:
            raise Stuck("the loop is busy and time stands still")
        return ()

    def _process_events(self, _events: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _note_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.errors.append(context.get("exception") or RuntimeError(context["message"]))


class VirtualClock(Clock):
    """The time of the loop. The time of day is the same for each history, and may be wrong."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        #: milliseconds by which the time of day is ahead
        self.ahead_ms = 0
        #: how often that changed
        self.jumps = 0

    def set_ahead(self, milliseconds: int) -> None:
        self.ahead_ms = milliseconds
        self.jumps += 1

    def now(self) -> float:
        return self._loop._now

    def wall_ms(self) -> int:
        return EPOCH_MS + int(self._loop._now * 1000) + self.ahead_ms

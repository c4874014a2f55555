"""Virtual time: an event loop that jumps to the next timer when nothing is ready. No files, sockets or threads."""

import asyncio
from typing import Any

from sidecar.model.clock import Clock

#: milliseconds since 1970 at which every history begins
EPOCH_MS = 1_700_000_000_000


#: turns of the loop within which time must pass
_MOST_TURNS = 50_000


class Stuck(Exception):
    """Nothing is ready and no timer is set, or time does not pass any more."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Deterministic: what is ready runs first come, first served; timers run by time, then as they were set."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._turns = 0
        self._selector = self
        self._clock_resolution = 1e-9
        #: what went wrong in callbacks and in tasks that nobody awaited
        self.errors: list[BaseException] = []
        self.set_exception_handler(self._note_error)

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> tuple[()]:
        """What the base class asks instead of the operating system: it costs no time to wait."""
        if timeout is None:
            raise Stuck("nobody will ever do anything again")
        self._turns += 1
        if timeout > 0:
            self._now = self._scheduled[0].when()  # type: ignore[attr-defined]
            self._turns = 0
        elif self._turns > _MOST_TURNS:
            raise Stuck("it is busy for ever in one moment")
        return ()

    def _process_events(self, _events: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _note_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.errors.append(context.get("exception") or RuntimeError(context["message"]))


class VirtualClock(Clock):
    """The loop's time, also as time of day."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        return self._loop._now

    def wall_ms(self) -> int:
        return EPOCH_MS + int(self._loop._now * 1000)

"""How many calls may be under way: one at a time while the app is not there."""

import asyncio
from collections.abc import Callable

from sidecar.core.failures.backoff import Backoff
from sidecar.subscription.troubles import Troubles

TROUBLE = "push"
#: seconds that an app may ask to be left alone: it may say so by mistake, and a look each minute costs it nothing
_LONGEST_WAIT = 60.0


class Gate:
    """OPEN -> CLOSED (not reached, or asked to wait) -> PROBING (one call) -> OPEN or CLOSED. After a wait that the app
    has asked for, it is OPEN at once."""

    def __init__(self, concurrency: int, grant: Callable[[int], None], troubles: Troubles, backoff: Backoff) -> None:
        """`grant` sets the number of calls that may be under way."""
        self._concurrency = concurrency
        self._grant = grant
        self._troubles = troubles
        self._backoff = backoff
        self._failures = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> bool:
        """The app is not there, or has asked to wait."""
        return self._failures > 0 or self._timer is not None

    def reached(self) -> None:
        """A call came through to the app."""
        if self._failures:
            self._failures = 0
            self._troubles.clear(TROUBLE)
            self._open()

    def not_reached(self, text: str) -> None:
        self._troubles.set(TROUBLE, text)
        if self._failures and self._timer is not None:
            # A call that began before the gate was closed.
            return
        self._failures += 1
        self._close(self._backoff.wait(self._failures), 1)

    def wait(self, seconds: float) -> None:
        """The app asks to be left alone."""
        if not self._failures and self._timer is None and seconds > 0:
            self._close(min(seconds, _LONGEST_WAIT), self._concurrency)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self, seconds: float, then: int) -> None:
        self.close()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._let_through, then)
        self._grant(0)

    def _let_through(self, calls: int) -> None:
        self._timer = None
        self._grant(calls)

    def _open(self) -> None:
        self.close()
        self._grant(self._concurrency)

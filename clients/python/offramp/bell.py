"""Waking the one task that writes."""

import asyncio
import contextlib
import threading


class Bell:
    """Rung by any thread, heard by one task of the loop it was made on.

    Many rings before the task looks are one: that is how the settlements of many workers come to share a request.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._rung = asyncio.Event()
        #: a ring from another thread is on its way, so that further threads need not wake the loop again
        self._ringing = False

    def ring(self) -> None:
        if threading.get_ident() == self._thread:
            self._rung.set()
        elif not self._ringing:
            self._ringing = True
            # A loop that is closed has nobody left to hear it.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._rung.set)

    async def heard(self) -> None:
        """Returns after a ring. Whatever was put down before the ring must be looked at after this."""
        await self._rung.wait()
        self._rung.clear()
        # Cleared before the task looks: a thread that still finds it set has put down its part already.
        self._ringing = False

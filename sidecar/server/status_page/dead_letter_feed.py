"""The newest dead letters of a subscription, read from the broker: a few, at intervals, only while somebody looks."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sidecar.brokers.base import Broker
from sidecar.core.failures.dead_letter_topic import DeadLetterEntry
from sidecar.model.errors import BrokerError
from sidecar.settings import SubscriptionSettings
from sidecar.subscription import dead_letters

#: dead letters that are shown
_SHOWN = 10
#: seconds between two reads, and at the least, after this sidecar has dead-lettered another record
_INTERVAL, _MIN_INTERVAL = 60.0, 10.0
#: seconds that a read may take
_READ_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """What was read. Without keys, values and headers."""

    #: seconds since 1970; 0: not read yet
    at: float = 0.0
    #: the newest first
    newest: Sequence[DeadLetterEntry] = ()
    #: records in the whole topic; -1: not known
    total: int = -1
    #: why the topic could not be read
    trouble: str = ""


class DeadLetterFeed:
    """Reads one at a time."""

    def __init__(
        self, settings: SubscriptionSettings, usable: Callable[[], Broker], written: Callable[[], int]
    ) -> None:
        """`usable` returns the broker or raises `BrokerError`; `written` counts what was dead-lettered here."""
        self._settings = settings
        self._usable = usable
        self._written = written
        self._written_then = 0
        self._began = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self.latest = DeadLetters()

    def refresh(self) -> "asyncio.Task[None] | None":
        """Read again if it is time. Returns the read that is under way, if there is one."""
        if self._reading is not None and not self._reading.done():
            return self._reading
        now = asyncio.get_running_loop().time()
        if now - self._began < (_MIN_INTERVAL if self._written() != self._written_then else _INTERVAL):
            return None
        self._began = now
        self._reading = asyncio.create_task(self._read())
        return self._reading

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        written = self._written()
        try:
            async with asyncio.timeout(_READ_TIMEOUT):
                newest, total = await dead_letters.newest(self._usable(), self._settings, limit=_SHOWN)
        except (BrokerError, TimeoutError) as error:
            self.latest = DeadLetters(at=time.time(), trouble=str(error) or f"no answer within {_READ_TIMEOUT:g} s")
            return
        self._written_then = written
        self.latest = DeadLetters(at=time.time(), newest=newest, total=total)

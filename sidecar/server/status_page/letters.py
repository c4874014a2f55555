"""The newest dead letters of a subscription. The broker must be asked for them: seldom, and for few."""

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
SHOWN = 10
#: seconds between two looks while nothing was dead-lettered here, and at the least
_SELDOM, _LEAST = 60.0, 10.0
#: seconds that a look may take
_PATIENCE = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was seen. Without keys, values and headers."""

    #: seconds since 1970; 0: nobody has looked yet
    at: float = 0.0
    #: the newest first
    letters: Sequence[DeadLetterEntry] = ()
    #: in the whole topic; -1: not known
    total: int = -1
    #: why it could not be seen
    trouble: str = ""


class Letters:
    """Looks while somebody looks at the page, one look at a time."""

    def __init__(
        self, settings: SubscriptionSettings, usable: Callable[[], Broker], written: Callable[[], int]
    ) -> None:
        """`usable` gives the broker, or raises `BrokerError`; `written` counts what was dead-lettered here."""
        self._settings = settings
        self._usable = usable
        self._written = written
        self._written_then = 0
        self._began = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self.latest = Look()

    def look(self) -> "asyncio.Task[None] | None":
        """Look again if it is time. Answers the look that is under way, if one is."""
        if self._looking is not None and not self._looking.done():
            return self._looking
        since = asyncio.get_running_loop().time() - self._began
        if since < (_LEAST if self._written() != self._written_then else _SELDOM):
            return None
        self._began = asyncio.get_running_loop().time()
        self._looking = asyncio.create_task(self._look())
        return self._looking

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look(self) -> None:
        written = self._written()
        try:
            async with asyncio.timeout(_PATIENCE):
                letters, total = await dead_letters.newest(self._usable(), self._settings, limit=SHOWN)
        except (BrokerError, TimeoutError) as error:
            trouble = str(error) or f"no answer within {_PATIENCE:g} s"
            self.latest = Look(at=time.time(), trouble=trouble)
            return
        self._written_then = written
        self.latest = Look(at=time.time(), letters=letters, total=total)

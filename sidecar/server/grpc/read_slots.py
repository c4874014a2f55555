"""How many ranges of a subscription are read at a time: each may hold some megabytes of a broker's library."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

#: seconds; a write that takes longer is to a client that does not read. Reading on costs a new connection to the broker
_BLOCKED_AFTER = 0.5


class ReadSlots:
    """Gives slots to reads, in turn. A read whose client does not take what is written gives its slot to one that
    waits, and asks for another one later: slow clients hold up nobody."""

    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)
        self._waiting = 0
        #: slots of reads whose clients do not read; the one that waits longest comes first
        self._blocked: deque[Slot] = deque()

    @asynccontextmanager
    async def one(self) -> AsyncIterator["Slot"]:
        self._waiting += 1
        try:
            if self._free.locked() and self._blocked:
                self._blocked.popleft().take_away()
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            yield Slot(self)
        finally:
            self._free.release()

    def block(self, slot: "Slot") -> None:
        """The client of this slot does not read."""
        if self._waiting:
            slot.take_away()
        else:
            self._blocked.append(slot)

    def unblock(self, slot: "Slot") -> None:
        if slot in self._blocked:
            self._blocked.remove(slot)


class Slot:
    """The right to read one range."""

    def __init__(self, slots: ReadSlots) -> None:
        self._slots = slots
        self._wanted = asyncio.Event()

    @property
    def taken_away(self) -> bool:
        """Another read waits for it: stop reading, and leave it."""
        return self._wanted.is_set()

    def take_away(self) -> None:
        self._wanted.set()

    async def wait_for(self, write: "asyncio.Task[None]") -> None:
        """Returns when the write is done, or when it takes long and the slot is taken away meanwhile. Raises what the
        write raises."""
        await asyncio.wait({write}, timeout=_BLOCKED_AFTER)
        if not write.done():
            self._slots.block(self)
            wanted = asyncio.create_task(self._wanted.wait())
            try:
                await asyncio.wait({write, wanted}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                wanted.cancel()
                self._slots.unblock(self)
        if write.done():
            write.result()

"""Batches that wait for a worker: for tasks of an event loop, and for threads.

Both kinds keep the order of arrival, and end in the same way: after `close` a taker gets None, or the error.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Protocol

from offramp._internal.signal_safe import WaitQueue
from offramp.batch import Batch


class Inbox(Protocol):
    """What the connection puts batches into, on its event loop."""

    #: called by a taker that finds no batch
    on_wait: Callable[[], None]

    def put(self, batch: Batch) -> None: ...

    def take_back(self, leases: Collection[bytes] | None = None) -> list[Batch]:
        """Removes the batches of these leases that no worker has taken; None: all."""

    def oldest(self) -> float | None:
        """When the batch was received that waits longest."""

    def waiting(self) -> int:
        """Workers that wait for a batch, or left without one since the last was received."""

    def close(self, error: BaseException | None = None) -> None:
        """No further batch comes. Takers get the error, if there is one. Further calls do nothing."""

    def __len__(self) -> int: ...


class TaskInbox:
    """For tasks of one event loop."""

    def __init__(self) -> None:
        self.on_wait: Callable[[], None] = _not_connected
        self._ready: deque[Batch] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._error: BaseException | None = None

    def __len__(self) -> int:
        return len(self._ready)

    def put(self, batch: Batch) -> None:
        self._ready.append(batch)
        self._wake_one()

    async def take(self) -> Batch | None:
        """The next batch; None once the inbox is closed. Raises the error it was closed with."""
        while not self._ready:
            if self._closed:
                if self._error is not None:
                    raise self._error
                return None
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            self.on_wait()
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.cancelled():
                    with contextlib.suppress(ValueError):
                        self._waiters.remove(waiter)
                elif self._ready:
                    # It was woken for this batch; another must take it.
                    self._wake_one()
                raise
        batch = self._ready.popleft()
        batch.taken_at = time.monotonic()
        return batch

    def take_back(self, leases: Collection[bytes] | None = None) -> list[Batch]:
        return _take_back(self._ready, leases)

    def oldest(self) -> float | None:
        return self._ready[0].received_at if self._ready else None

    def waiting(self) -> int:
        return len(self._waiters)

    def close(self, error: BaseException | None = None) -> None:
        if not self._closed:
            self._closed, self._error = True, error
            while self._waiters:
                self._wake_one()

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


class ThreadInbox:
    """For threads. `take` may be called by any number of them; a signal handler may raise inside of it."""

    def __init__(self) -> None:
        self.on_wait: Callable[[], None] = _not_connected
        self._ready: deque[Batch] = deque()
        self._waiters = WaitQueue()
        #: a taker did not wait, or its timeout ended, and none has got a batch since
        self._polled = False
        self._closed = False
        self._error: BaseException | None = None

    def __len__(self) -> int:
        return len(self._ready)

    def put(self, batch: Batch) -> None:
        self._ready.append(batch)
        self._polled = False
        self._waiters.wake_one()

    def take(self, timeout: float | None = None) -> Batch | None:
        """The next batch; None once the inbox is closed, or when none came in time. Raises the error it was closed
        with."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                batch = self._ready.popleft()
            except IndexError:
                pass
            else:
                batch.taken_at = time.monotonic()
                return batch
            if self._closed:
                if self._error is not None:
                    raise self._error
                return None
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                # Counts as waiting: else nothing would be asked for on behalf of a taker that only polls.
                self._polled = True
                self.on_wait()
                return None
            self._waiters.wait(left, self._need_not_wait)

    def _need_not_wait(self) -> bool:
        if self._ready or self._closed:
            return True
        self.on_wait()
        return False

    def take_back(self, leases: Collection[bytes] | None = None) -> list[Batch]:
        return _take_back(self._ready, leases)

    def oldest(self) -> float | None:
        with contextlib.suppress(IndexError):
            return self._ready[0].received_at
        return None

    def waiting(self) -> int:
        return max(len(self._waiters), int(self._polled))

    def close(self, error: BaseException | None = None) -> None:
        if not self._closed:
            self._error = error
            self._closed = True
            self._waiters.wake_all()


def _take_back(ready: deque[Batch], leases: Collection[bytes] | None) -> list[Batch]:
    taken = []
    for batch in ready.copy():
        if leases is None or batch.lease in leases:
            # Unless a thread has taken it in this moment.
            with contextlib.suppress(ValueError):
                ready.remove(batch)
                taken.append(batch)
    return taken


def _not_connected() -> None:
    """Until a connection sets `on_wait`."""

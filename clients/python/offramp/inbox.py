"""Batches that wait for a worker, for tasks of an event loop and for threads.

Both kinds keep the order of arrival, and end in the same way: after `close` a taker gets None, or the error.
"""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Protocol

from offramp.batches import Batch


class Inbox(Protocol):
    """What the connection puts batches into, on its event loop."""

    #: called when a taker finds nothing, by the taker
    on_wait: Callable[[], None]

    def put(self, batch: Batch) -> None: ...

    def take_back(self, leases: Collection[bytes] | None = None) -> list[Batch]:
        """Those of these leases that nobody has taken; None: all."""

    def oldest(self) -> float | None:
        """When the batch came that waits longest."""

    def waiting(self) -> int:
        """Workers that wait for a batch."""

    def close(self, error: BaseException | None = None) -> None:
        """No batch comes any more. Takers get the error, if there is one. The first call counts."""

    def __len__(self) -> int: ...


class TaskInbox:
    """For tasks of one event loop."""

    def __init__(self) -> None:
        self.on_wait: Callable[[], None] = _ignore
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
        """The next batch; None when there will be none. Raises the error it was closed with."""
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
                    # It was this one's turn, so that the batch would lie there with others waiting for it.
                    self._wake_one()
                raise
        batch = self._ready.popleft()
        batch.taken_at = time.monotonic()
        return batch

    def take_back(self, leases: Collection[bytes] | None = None) -> list[Batch]:
        self._ready, taken = _divide(self._ready, leases)
        return taken

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
    """For threads. `take` may be called by any number of them."""

    def __init__(self) -> None:
        self.on_wait: Callable[[], None] = _ignore
        self._ready: deque[Batch] = deque()
        self._changed = threading.Condition()
        self._waiting = 0
        self._closed = False
        self._error: BaseException | None = None

    def __len__(self) -> int:
        return len(self._ready)

    def put(self, batch: Batch) -> None:
        with self._changed:
            self._ready.append(batch)
            self._changed.notify()

    def take(self, timeout: float | None = None) -> Batch | None:
        """The next batch; None when there will be none, or none came in time. Raises the error it was closed with."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not self._ready:
                if self._closed:
                    if self._error is not None:
                        raise self._error
                    return None
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                self._wait(left)
            batch = self._ready.popleft()
        batch.taken_at = time.monotonic()
        return batch

    def _wait(self, seconds: float | None) -> None:
        self._waiting += 1
        try:
            self.on_wait()
            self._changed.wait(seconds)
        finally:
            self._waiting -= 1

    def take_back(self, leases: Collection[bytes] | None = None) -> list[Batch]:
        with self._changed:
            self._ready, taken = _divide(self._ready, leases)
        return taken

    def oldest(self) -> float | None:
        with self._changed:
            return self._ready[0].received_at if self._ready else None

    def waiting(self) -> int:
        return self._waiting

    def close(self, error: BaseException | None = None) -> None:
        with self._changed:
            if not self._closed:
                self._closed, self._error = True, error
                self._changed.notify_all()


def _divide(ready: deque[Batch], leases: Collection[bytes] | None) -> tuple[deque[Batch], list[Batch]]:
    """What stays, and what goes."""
    if leases is None:
        return deque(), list(ready)
    return deque(b for b in ready if b.lease not in leases), [b for b in ready if b.lease in leases]


def _ignore() -> None:
    """Nobody is connected yet."""

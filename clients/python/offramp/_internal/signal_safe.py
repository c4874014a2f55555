"""Waiting in threads that stays correct when a signal handler raises at any moment (SystemExit, KeyboardInterrupt).

The conditions and events of `threading` take their lock in a method written in Python. An exception raised there leaves
the lock taken forever, and the next thread that needs it hangs. Here no thread holds a lock that another may want.
"""

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable

#: seconds. A signal that arrives just as the main thread begins to wait is not handled until the thread wakes
_SIGNAL_CHECK_INTERVAL = 1.0


class WaitQueue:
    """Waiting threads, each with a lock of its own, in the order in which they came."""

    def __init__(self) -> None:
        self._locks: deque[threading.Lock] = deque()

    def __len__(self) -> int:
        return len(self._locks)

    def wait(self, seconds: float | None, unless: Callable[[], bool]) -> None:
        """Blocks until this thread is woken, or for `seconds`. Returns at once if `unless()`, which is called when the
        thread can be woken already."""
        lock = threading.Lock()
        lock.acquire()
        try:
            self._locks.append(lock)
            if not unless():
                _acquire(lock, seconds)
            self._remove(lock)
        except BaseException:
            if not self._remove(lock):
                # This thread was woken and cannot act on it: wake the next.
                self.wake_one()
            raise

    def wake_one(self) -> None:
        with contextlib.suppress(IndexError):
            self._locks.popleft().release()

    def wake_all(self) -> None:
        while self._locks:
            self.wake_one()

    def _remove(self, lock: threading.Lock) -> bool:
        """False if it was woken already."""
        try:
            self._locks.remove(lock)
        except ValueError:
            return False
        return True


class Event:
    """Set once, by any thread or signal handler."""

    def __init__(self) -> None:
        self._set = False
        self._waiters = WaitQueue()

    def set(self) -> None:
        self._set = True
        self._waiters.wake_all()

    def is_set(self) -> bool:
        return self._set

    def wait(self, seconds: float | None = None) -> bool:
        """Blocks until it is set, or for `seconds`. Returns whether it is set."""
        if not self._set:
            self._waiters.wait(seconds, self.is_set)
        return self._set


def _acquire(lock: threading.Lock, seconds: float | None) -> None:
    if threading.current_thread() is not threading.main_thread():
        lock.acquire(timeout=-1 if seconds is None else max(0.0, seconds))
        return
    ends = math.inf if seconds is None else time.monotonic() + seconds
    while not lock.acquire(timeout=max(0.0, min(_SIGNAL_CHECK_INTERVAL, ends - time.monotonic()))):
        if time.monotonic() >= ends:
            return

"""Waiting in threads, where a signal handler may raise at any moment: SystemExit, or KeyboardInterrupt.

The conditions and events of `threading` take their lock in a method written in Python. An exception that strikes there
leaves it locked for ever, and whoever needs it next hangs. Here nobody holds a lock that another may want.
"""

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable

#: seconds. A signal that comes in the very moment in which the main thread begins to wait is not seen until it wakes
_LOOK_UP = 1.0


class Waiters:
    """Threads that wait for something, each for a lock of its own, in the order in which they came."""

    def __init__(self) -> None:
        self._locks: deque[threading.Lock] = deque()

    def __len__(self) -> int:
        return len(self._locks)

    def wait(self, seconds: float | None, unless: Callable[[], bool]) -> None:
        """Until this one is woken, or so many seconds have passed. Not at all if `unless`, which is asked after this
        one can be woken."""
        lock = threading.Lock()
        lock.acquire()
        try:
            self._locks.append(lock)
            if not unless():
                _acquire(lock, seconds)
            self._forget(lock)
        except BaseException:
            if not self._forget(lock):
                # It was this one's turn, so that another would wait for what nobody takes.
                self.wake_one()
            raise

    def wake_one(self) -> None:
        with contextlib.suppress(IndexError):
            self._locks.popleft().release()

    def wake_all(self) -> None:
        while self._locks:
            self.wake_one()

    def _forget(self, lock: threading.Lock) -> bool:
        """Whether it had not been woken."""
        try:
            self._locks.remove(lock)
        except ValueError:
            return False
        return True


class Flag:
    """Set once, by any thread or signal handler."""

    def __init__(self) -> None:
        self._set = False
        self._waiters = Waiters()

    def set(self) -> None:
        self._set = True
        self._waiters.wake_all()

    def is_set(self) -> bool:
        return self._set

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it is set, after no longer than so many seconds."""
        if not self._set:
            self._waiters.wait(seconds, self.is_set)
        return self._set


def _acquire(lock: threading.Lock, seconds: float | None) -> None:
    if threading.current_thread() is not threading.main_thread():
        lock.acquire(timeout=-1 if seconds is None else max(0.0, seconds))
        return
    ends = math.inf if seconds is None else time.monotonic() + seconds
    while not lock.acquire(timeout=max(0.0, min(_LOOK_UP, ends - time.monotonic()))):
        if time.monotonic() >= ends:
            return

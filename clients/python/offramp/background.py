"""The event loop on which the blocking half of this package talks to the sidecar.

There is one for all consumers and workers of a process, in a thread of its own: gRPC serves several loops of a
process badly. It is there while somebody uses it.
"""

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from offramp import forking
from offramp.waiting import Flag

T = TypeVar("T")


class Background:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._ready = Flag()
        # A daemon, so that a script that forgets to close something can still end.
        self._thread = threading.Thread(target=self._run, name="offramp", daemon=True)
        self._thread.start()
        self._ready.wait()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on the loop, and wait for what it answers or raises."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("on_result must not block: this would wait for the thread that it runs on")
        outcomes: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()

        async def run() -> None:
            try:
                outcomes.put((await work, None))
            except BaseException as error:
                outcomes.put((None, error))

        # The loop refers to a task only while it waits for nothing.
        tasks = []
        self._loop.call_soon_threadsafe(lambda: tasks.append(self._loop.create_task(run())))
        value, error = outcomes.get()
        if error is not None:
            raise error
        return cast(T, value)

    def post(self, call: Callable[[], object]) -> None:
        """Have it called on the loop, soon, if that still runs. Safe in a signal handler, which most locks are not."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def stop(self) -> None:
        self.post(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._ready.set()
        await self._stop.wait()


class Shared:
    """The one loop of this process."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._lock = threading.Lock()
        self._current: Background | None = None
        self._users = 0

    def acquire(self) -> Background:
        """It, started if need be. To be given back by `release`. Raises `Forked`."""
        forking.begin()
        with self._lock:
            if self._current is None:
                self._current = Background()
            self._users += 1
            return self._current

    def release(self, background: Background) -> None:
        """Ends the loop with its last user."""
        with self._lock:
            if background is not self._current:
                return
            self._users -= 1
            if self._users:
                return
            self._current = None
        background.stop()

    def end(self) -> None:
        """Sessions that were left open end with the process; their loop must not run into the interpreter's end."""
        if self._current is not None:
            self._current.stop()


shared = Shared()
atexit.register(shared.end)
# What a child inherits by a fork is the memory of a thread that does not run there, and perhaps a lock that it held.
os.register_at_fork(after_in_child=shared.forget)

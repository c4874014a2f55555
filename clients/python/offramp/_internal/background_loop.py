"""The event loop on which the blocking API talks to the sidecar.

There is one for all consumers and workers of a process, in a thread of its own, because gRPC serves several loops of a
process badly. It runs while anything uses it.
"""

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Coroutine
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from offramp._internal import fork_safety
from offramp._internal.signal_safe import Event

T = TypeVar("T")


class BackgroundLoop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._ready = Event()
        # A daemon, so that a script that forgets to close something can still end.
        self._thread = threading.Thread(target=self._run, name="offramp", daemon=True)
        self._thread.start()
        self._ready.wait()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on the loop, and wait for what it returns or raises."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("on_result must not block: this would wait for the thread that it runs on")
        results: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()

        async def run() -> None:
            try:
                results.put((await work, None))
            except BaseException as error:
                results.put((None, error))

        # A strong reference: the loop keeps one only while the task waits for something.
        tasks = []
        self._loop.call_soon_threadsafe(lambda: tasks.append(self._loop.create_task(run())))
        value, error = results.get()
        if error is not None:
            raise error
        return cast(T, value)

    def stop(self) -> None:
        # A closed loop has stopped already.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._ready.set()
        await self._stop.wait()


class SharedLoop:
    """The background loop of this process, counted by its users."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._lock = threading.Lock()
        self._current: BackgroundLoop | None = None
        self._users = 0

    def acquire(self) -> BackgroundLoop:
        """Starts it for its first user. To be given back by `release`. Raises `Forked`."""
        fork_safety.check_can_open()
        with self._lock:
            if self._current is None:
                self._current = BackgroundLoop()
            self._users += 1
            return self._current

    def release(self, loop: BackgroundLoop) -> None:
        """Stops it with its last user."""
        with self._lock:
            if loop is not self._current:
                return
            self._users -= 1
            if self._users:
                return
            self._current = None
        loop.stop()

    def stop(self) -> None:
        """For the end of the process: the loop of sessions that were left open must not run into the interpreter's
        shutdown."""
        if self._current is not None:
            self._current.stop()


shared_loop = SharedLoop()
atexit.register(shared_loop.stop)
# A forked child inherits the object of a thread that does not run there, and perhaps a locked lock.
os.register_at_fork(after_in_child=shared_loop.forget)

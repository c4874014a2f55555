"""A handler that gets batches, run in several processes: for work that keeps the processor busy."""

import contextlib
import logging
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, Unpack

from offramp import process
from offramp.batches import Batch
from offramp.errors import Refused
from offramp.options import ConnectOptions, Options
from offramp.process import Job
from offramp.signals import draining_on

logger = logging.getLogger("offramp")

#: seconds; a process that ends sooner is not started again at once
_SHORT_LIFE = 5.0
#: seconds between two starts of a process that fails
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 10.0


class Processes:
    """Calls `handler` with batches, in so many processes, each with a connection of its own.

    Python runs one thread of a process at a time, so a handler that computes needs processes to use more than one
    core; one that waits is better off with `Worker` and its threads. What is said of `Worker` holds here too: `workers`
    is the number of threads (or tasks, for a coroutine function) in each process, and further options are those of
    `Worker` and `ConnectOptions`, but for `on_result`. `processes`: as many as there are cores, if not given.

    Processes are spawned: each starts a fresh interpreter and imports what it needs. So `handler` and `initializer`
    must be functions of a module, not lambdas, and a script must guard its start by `if __name__ == "__main__":`.
    `initializer` is called once in each process, before its first batch. A process that ends is replaced, and its
    batch is delivered again. After `max_batches` batches, and perhaps one that had been prefetched, a process is
    replaced in order, against leaks.
    """

    def __init__(
        self,
        subscription: str,
        handler: Callable[[Batch], object] | Callable[[Batch], Awaitable[object]],
        *,
        processes: int | None = None,
        workers: int = 1,
        prefetch: int | None = None,
        max_batches: int | None = None,
        drain_timeout: float | None = None,
        initializer: Callable[[], object] | None = None,
        **options: Unpack[ConnectOptions],
    ) -> None:
        count = (os.cpu_count() or 1) if processes is None else processes
        if count < 1:
            raise ValueError(f"processes: {count} is less than 1")
        if max_batches is not None and max_batches < 1:
            raise ValueError(f"max_batches: {max_batches} is less than 1")
        if options.get("on_result") is not None:
            raise ValueError("on_result: it cannot be called across processes; use a Worker in each")
        # Said here rather than by every process.
        checked = Options(subscription=subscription, credit=1, **options)
        given: dict[str, Any] = {**options, "workers": workers, "prefetch": prefetch}
        self._job = Job(subscription, handler, given, max_batches, initializer)
        try:
            pickle.dumps(self._job)
        except Exception as error:
            raise TypeError(
                f"handler, initializer and options must be such that another process can import them: {error}"
            ) from error
        self._listens = checked.signals
        self._drain_timeout = drain_timeout
        self._places = [_Place() for _ in range(count)]
        self._context = multiprocessing.get_context("spawn")
        #: written to when something is to be seen at once
        self._ear, self._bell = multiprocessing.Pipe(duplex=False)
        self._told = 0
        self._refused: Refused | None = None
        self._running = threading.Lock()

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that run now."""
        return tuple(place.pid for place in self._places if place.pid)

    def run(self) -> None:
        """Work until `drain` is called or, in the main thread, SIGTERM or SIGINT comes.

        Then all processes finish what they have in hand, settle it and end; those that are not done after
        `drain_timeout` seconds are killed, and all are at a second call or signal. Raises `Refused` when the sidecar
        says no. Runs once.
        """
        if not self._running.acquire(blocking=False):
            raise RuntimeError("this has been run already; make a new one")
        with self._signals():
            try:
                self._supervise()
            finally:
                for place in self._places:
                    place.kill()
        if self._refused is not None:
            raise self._refused

    def drain(self) -> None:
        """Let `run` return once all batches in hand are settled. Returns at once; any thread, and any signal handler,
        may call it. A second call kills."""
        self._told += 1
        with contextlib.suppress(OSError):
            self._bell.send_bytes(b"!")

    def _supervise(self) -> None:
        give_up = float("inf")
        asked = False
        while True:
            now = time.monotonic()
            if self._told and not asked:
                asked = True
                give_up = now + self._drain_timeout if self._drain_timeout is not None else give_up
                for place in self._places:
                    place.terminate()
            if self._told > 1 or now >= give_up:
                for place in self._places:
                    place.kill()
            if not asked:
                for place in self._places:
                    if place.due(now):
                        place.start(self._context, self._job)
            elif not self.pids:
                return
            self._wait(now, give_up)
            for place in self._places:
                self._look(place)

    def _wait(self, now: float, give_up: float) -> None:
        """Until something ends, is due, or is said."""
        next_start = min((place.next_start for place in self._places if not place.pid), default=float("inf"))
        until = give_up if self._told else next_start
        things: list[Connection | int] = [self._ear, *(place.sentinel for place in self._places if place.pid)]
        timeout = None if until == float("inf") else max(until - now, 0.0)
        if self._ear in multiprocessing.connection.wait(things, timeout):
            self._ear.recv_bytes()

    def _look(self, place: "_Place") -> None:
        refused = place.refused()
        if refused is not None and self._refused is None:
            self._refused = refused
            self.drain()
        if (code := place.ended()) is not None and not self._told:
            place.pause(0.0 if code == 0 else None)
            if code:
                how = f"with exit code {code}" if code > 0 else f"by signal {-code}"
                logger.warning("%s: a worker process ended %s; starting another", self._job.subscription, how)

    def _signals(self) -> contextlib.AbstractContextManager[None]:
        if not self._listens:
            return contextlib.nullcontext()
        return draining_on((signal.SIGTERM, signal.SIGINT), self.drain, polite=False, sticky=True)


class _Place:
    """One of the processes, and those that come after it."""

    def __init__(self) -> None:
        self._process: SpawnProcess | None = None
        self._news: Connection | None = None
        self._started = 0.0
        self._pause = 0.0
        #: on the monotonic clock
        self.next_start = 0.0

    @property
    def pid(self) -> int:
        """0: none runs."""
        return (self._process.pid or 0) if self._process is not None else 0

    @property
    def sentinel(self) -> int:
        assert self._process is not None
        return self._process.sentinel

    def due(self, now: float) -> bool:
        return self._process is None and now >= self.next_start

    def start(self, context: multiprocessing.context.SpawnContext, job: Job) -> None:
        self._news, theirs = context.Pipe(duplex=False)
        self._started = time.monotonic()
        self._process = context.Process(target=process.main, args=(job, theirs), name=job.subscription)
        self._process.start()
        theirs.close()

    def terminate(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()

    def refused(self) -> Refused | None:
        """The sidecar said no to it, and would say no to others."""
        if self._news is None:
            return None
        with contextlib.suppress(EOFError, OSError):
            if self._news.poll():
                said = self._news.recv()
                return said if isinstance(said, Refused) else None
        return None

    def ended(self) -> int | None:
        """Its exit code, once."""
        if self._process is None or self._process.is_alive():
            return None
        code = self._process.exitcode
        self._process.close()
        self._process = None
        if self._news is not None:
            self._news.close()
            self._news = None
        return code

    def pause(self, seconds: float | None) -> None:
        """Start the next one after so many seconds; None: after a pause that grows while they do not last."""
        now = time.monotonic()
        if seconds is None:
            seconds = self._pause if now - self._started < _SHORT_LIFE else 0.0
            self._pause = min(max(seconds * 2, _FIRST_PAUSE), _LONGEST_PAUSE)
        self.next_start = now + seconds

"""A handler that gets batches, run in several processes: for work that keeps the processor busy."""

import asyncio
import contextlib
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, Unpack

from offramp import aio
from offramp._internal.handlers import is_coroutine_handler
from offramp._internal.stop_signals import drain_on_signals
from offramp.batch import Batch
from offramp.errors import Refused
from offramp.options import ConnectOptions, Options
from offramp.worker import Worker

logger = logging.getLogger("offramp")

#: seconds; a process that fails sooner is not replaced at once
_SHORT_LIFE = 5.0
#: seconds between two starts of a process that fails
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 10.0


@dataclass(frozen=True, slots=True)
class Job:
    """What each process does. Sent to it by pickle."""

    subscription: str
    handler: Callable[[Batch], Any]
    options: dict[str, Any]
    max_batches: int | None
    initializer: Callable[[], object] | None


class Processes:
    """Calls `handler` with batches, in `processes` processes, each with a connection of its own.

    Python runs one thread of a process at a time, so a handler that computes needs processes to use more than one core;
    one that waits is better off with `Worker` and its threads. What is said of `Worker` holds here too: `workers` is
    the number of threads (or tasks, for a coroutine function) in each process, and further options are those of
    `Worker` and `ConnectOptions`, except `on_result`. `processes`: by default as many as there are cores.

    Processes are spawned: each starts a fresh interpreter and imports what it needs. So `handler` and `initializer`
    must be functions of a module, not lambdas, and a script must guard its start by `if __name__ == "__main__":`.
    `initializer` is called once in each process, before its first batch. A process that ends is replaced, and its batch
    is delivered again. With `max_batches`, a process is drained and replaced after that many batches, and perhaps one
    more that was prefetched: a remedy for leaks.
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
        # Checked here, once, rather than by every process.
        checked = Options(subscription=subscription, credit=1, **options)
        worker_options: dict[str, Any] = {**options, "workers": workers, "prefetch": prefetch}
        self._job = Job(subscription, handler, worker_options, max_batches, initializer)
        try:
            pickle.dumps(self._job)
        except Exception as error:
            raise TypeError(
                f"handler, initializer and options must be such that another process can import them: {error}"
            ) from error
        self._signals = checked.signals
        self._drain_timeout = drain_timeout
        self._slots = [_Slot() for _ in range(count)]
        self._context = multiprocessing.get_context("spawn")
        #: written to by `drain`, to wake the supervisor
        self._wake_reader, self._wake_writer = multiprocessing.Pipe(duplex=False)
        self._drain_calls = 0
        self._refused: Refused | None = None
        self._running = threading.Lock()

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that run now."""
        return tuple(slot.pid for slot in self._slots if slot.pid)

    def run(self) -> None:
        """Work until `drain` is called or, in the main thread, SIGTERM or SIGINT comes.

        Then all processes finish what they have in hand, settle it and end. Those that are not done after
        `drain_timeout` seconds are killed; a second call or signal kills all. Raises `Refused` when the sidecar says
        no. Runs once.
        """
        if not self._running.acquire(blocking=False):
            raise RuntimeError("this has been run already; make a new one")
        with drain_on_signals(self.drain, enabled=self._signals, finishes=True, every_time=True):
            try:
                self._supervise()
            finally:
                for slot in self._slots:
                    slot.kill()
        if self._refused is not None:
            raise self._refused

    def drain(self) -> None:
        """Let `run` return once all batches in hand are settled. Returns at once; any thread, and any signal handler,
        may call it. A second call kills."""
        self._drain_calls += 1
        with contextlib.suppress(OSError):
            self._wake_writer.send_bytes(b"!")

    def _supervise(self) -> None:
        deadline = float("inf")
        draining = False
        while True:
            now = time.monotonic()
            if self._drain_calls and not draining:
                draining = True
                deadline = now + self._drain_timeout if self._drain_timeout is not None else deadline
                for slot in self._slots:
                    slot.terminate()
            if self._drain_calls > 1 or now >= deadline:
                for slot in self._slots:
                    slot.kill()
            if not draining:
                for slot in self._slots:
                    if slot.due(now):
                        slot.start(self._context, self._job)
            elif not self.pids:
                return
            self._wait(now, deadline)
            for slot in self._slots:
                self._check(slot)

    def _wait(self, now: float, deadline: float) -> None:
        """Until a process ends, is due to start, or `drain` is called."""
        next_start = min((slot.next_start for slot in self._slots if not slot.pid), default=float("inf"))
        until = deadline if self._drain_calls else next_start
        things: list[Connection | int] = [self._wake_reader, *(slot.sentinel for slot in self._slots if slot.pid)]
        timeout = None if until == float("inf") else max(until - now, 0.0)
        if self._wake_reader in wait(things, timeout):
            self._wake_reader.recv_bytes()

    def _check(self, slot: "_Slot") -> None:
        refused = slot.refused()
        if refused is not None and self._refused is None:
            self._refused = refused
            self.drain()
        if (code := slot.ended()) is not None and not self._drain_calls:
            slot.schedule_next(failed=code != 0)
            if code:
                how = f"with exit code {code}" if code > 0 else f"by signal {-code}"
                logger.warning("%s: a worker process ended %s; starting another", self._job.subscription, how)


class _Slot:
    """One process at a time: the first, and its replacements."""

    def __init__(self) -> None:
        self._process: SpawnProcess | None = None
        #: gets the refusal of the process, if there is one
        self._refusal: Connection | None = None
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

    def start(self, context: SpawnContext, job: Job) -> None:
        self._refusal, theirs = context.Pipe(duplex=False)
        self._started = time.monotonic()
        self._process = context.Process(target=_child_main, args=(job, theirs), name=job.subscription)
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
        """The sidecar refused it, and would refuse others."""
        if self._refusal is None:
            return None
        with contextlib.suppress(EOFError, OSError):
            if self._refusal.poll():
                error = self._refusal.recv()
                return error if isinstance(error, Refused) else None
        return None

    def ended(self) -> int | None:
        """Its exit code, once."""
        if self._process is None or self._process.is_alive():
            return None
        code = self._process.exitcode
        self._process.close()
        self._process = None
        if self._refusal is not None:
            self._refusal.close()
            self._refusal = None
        return code

    def schedule_next(self, *, failed: bool) -> None:
        """At once, or after a pause that grows while processes fail early."""
        now = time.monotonic()
        pause = 0.0
        if failed:
            pause = self._pause if now - self._started < _SHORT_LIFE else 0.0
            self._pause = min(max(pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE)
        self.next_start = now + pause


# In the child process


def _child_main(job: Job, refusal: Connection) -> None:
    # Ctrl-C goes to all processes of a terminal; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wake_reader, wake_writer = os.pipe()
    # SIGTERM may come twice, from the parent and from a supervisor that stops the whole group: that must do no harm. A
    # pipe has no lock that the code which the signal interrupts could hold.
    signal.signal(signal.SIGTERM, lambda number, frame: os.write(wake_writer, b"!"))
    worker, run = _make_worker(job)
    threading.Thread(target=_drain_when_readable, args=(worker, wake_reader), daemon=True).start()
    threading.Thread(target=_write_when_parent_ends, args=(wake_writer,), daemon=True).start()
    try:
        if job.initializer is not None:
            job.initializer()
        run()
    except SystemExit as error:
        # Raised by the user's code: never a regular end, whatever its code.
        sys.exit(error.code or 1)
    except Refused as error:
        with contextlib.suppress(OSError):
            refusal.send(error)
        sys.exit(1)


def _make_worker(job: Job) -> tuple[Worker | aio.Worker, Callable[[], object]]:
    """A worker, and the call that runs it."""
    limit = _BatchLimit(job.max_batches)
    options = {**job.options, "signals": False}
    if is_coroutine_handler(job.handler):

        async def handle_async(batch: Batch) -> object:
            limit.count()
            return await job.handler(batch)

        tasks = aio.Worker(job.subscription, handle_async, **options)
        limit.on_reached = tasks.drain
        return tasks, lambda: asyncio.run(tasks.run())

    def handle(batch: Batch) -> object:
        limit.count()
        return job.handler(batch)

    threads = Worker(job.subscription, handle, **options)
    limit.on_reached = threads.drain
    return threads, threads.run


class _BatchLimit:
    """Counts batches, and calls `on_reached` when the last one that the process may handle begins."""

    def __init__(self, limit: int | None) -> None:
        self._left = limit or 0
        self._lock = threading.Lock()
        self.on_reached: Callable[[], None] = lambda: None

    def count(self) -> None:
        with self._lock:
            self._left -= 1
            reached = self._left == 0
        if reached:
            self.on_reached()


def _drain_when_readable(worker: Worker | aio.Worker, wake_reader: int) -> None:
    os.read(wake_reader, 1)
    worker.drain()


def _write_when_parent_ends(wake_writer: int) -> None:
    """A parent that was killed can send no signal."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.write(wake_writer, b"!")

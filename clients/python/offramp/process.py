"""The life of one process of `offramp.Processes`."""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from offramp import aio
from offramp.batches import Batch
from offramp.errors import Refused
from offramp.handling import is_asynchronous
from offramp.worker import Worker


@dataclass(frozen=True, slots=True)
class Job:
    """What each process does. Travels to it by pickle."""

    subscription: str
    handler: Callable[[Batch], Any]
    options: dict[str, Any]
    max_batches: int | None
    initializer: Callable[[], object] | None


def main(job: Job, news: Connection) -> None:
    # Ctrl-C goes to all processes of a terminal; the parent says what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ear, bell = os.pipe()
    # It may come twice, from the parent and from whoever stops all processes of a group: that must do no harm. And a
    # pipe has no lock that the code which a signal interrupts could hold.
    signal.signal(signal.SIGTERM, lambda number, frame: os.write(bell, b"!"))
    worker, run = _worker(job)
    threading.Thread(target=_drain_when, args=(worker, ear), daemon=True).start()
    threading.Thread(target=_follow_parent, args=(bell,), daemon=True).start()
    try:
        if job.initializer is not None:
            job.initializer()
        run()
    except SystemExit as error:
        # Said by the code of the user, which is no end in order, whatever it calls it.
        sys.exit(error.code or 1)
    except Refused as error:
        with contextlib.suppress(OSError):
            news.send(error)
        sys.exit(1)


def _worker(job: Job) -> tuple[Worker | aio.Worker, Callable[[], object]]:
    """A worker, and what runs it."""
    count = _Count(job.max_batches)
    options = {**job.options, "signals": False}
    if is_asynchronous(job.handler):

        async def work(batch: Batch) -> object:
            count.one_more()
            return await job.handler(batch)

        tasks = aio.Worker(job.subscription, work, **options)
        count.at_the_limit = tasks.drain
        return tasks, lambda: asyncio.run(tasks.run())

    def handle(batch: Batch) -> object:
        count.one_more()
        return job.handler(batch)

    threads = Worker(job.subscription, handle, **options)
    count.at_the_limit = threads.drain
    return threads, threads.run


class _Count:
    """Counts batches, and says when the process has begun the last one that it may do."""

    def __init__(self, limit: int | None) -> None:
        self._left = limit or 0
        self._lock = threading.Lock()
        self.at_the_limit: Callable[[], None] = lambda: None

    def one_more(self) -> None:
        with self._lock:
            self._left -= 1
            reached = self._left == 0
        if reached:
            self.at_the_limit()


def _drain_when(worker: Worker | aio.Worker, ear: int) -> None:
    os.read(ear, 1)
    worker.drain()


def _follow_parent(bell: int) -> None:
    """A parent that was killed can give no signal any more."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.write(bell, b"!")

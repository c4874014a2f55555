"""A handler that gets batches, run in threads."""

import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Unpack

from offramp.background import Background, shared
from offramp.batches import Batch
from offramp.handling import check_done, check_workers, conclude, is_asynchronous
from offramp.inbox import ThreadInbox
from offramp.link import Link
from offramp.options import ConnectOptions, Options
from offramp.signals import draining_on
from offramp.waiting import Flag

Handler = Callable[[Batch], object]


class Worker:
    """Calls `handler` with batches, in `workers` threads on one connection.

    A handler that returns has done its batch: it is acked, except for records that it marked otherwise. One that
    raises has not: what it did not mark is retried, with the exception as the reason, unless it raises `Retry`,
    `Reject`, `Release` or `Overloaded`.

    `prefetch` is how many further batches wait in this process, so that no worker idles for a round trip; default: one
    for each worker. What waits here cannot be taken by another process; a batch that has waited for `patience` seconds
    is given back. `drain_timeout` is how many seconds handlers get to finish once it drains; default: as long as
    they take. For the other options see `ConnectOptions`.
    """

    def __init__(
        self,
        subscription: str,
        handler: Handler,
        *,
        workers: int = 1,
        prefetch: int | None = None,
        drain_timeout: float | None = None,
        **options: Unpack[ConnectOptions],
    ) -> None:
        if is_asynchronous(handler):
            raise TypeError("handler: it is a coroutine function (async def), which only offramp.aio.Worker can run")
        self._handler = handler
        self._workers = workers
        self._drain_timeout = drain_timeout
        self._options = Options(subscription=subscription, credit=check_workers(workers, prefetch), **options)
        self._background: Background | None = None
        self._link: Link | None = None
        self._draining = False
        #: somebody called `drain`, or all threads ended by themselves
        self._told = Flag()
        self._finished = Flag()
        self._lock = threading.Lock()
        self._running = workers
        self._failure: BaseException | None = None

    @property
    def connected(self) -> bool:
        """There is a session with the sidecar now."""
        return self._link is not None and self._link.connected

    def run(self) -> None:
        """Work until `drain` is called or, in the main thread, SIGTERM or SIGINT comes.

        Then no further batch is taken, those in hand are finished and settled, and the sidecar is told. Waits for the
        sidecar for as long as it takes, also when it restarts. Raises `Refused` when the sidecar says no, and what
        a handler raises to end the process (SystemExit, for one). A worker runs once.
        """
        if self._background is not None:
            raise RuntimeError("this worker has been run already; make a new one")
        self._background = shared.acquire()
        try:
            self._run(self._background)
        finally:
            shared.release(self._background)
        if self._failure is not None:
            raise self._failure

    def drain(self) -> None:
        """Take no further batch, and let `run` return once those in hand are settled. Returns at once; any thread, and
        any signal handler, may call it."""
        self._draining = True
        if self._link is not None:
            self._link.drain()
            self._told.set()

    def _run(self, loop: Background) -> None:
        inbox = ThreadInbox()
        with self._signals():
            link = self._link = loop.call(self._make_link(inbox))
            try:
                if self._draining:
                    self.drain()
                for number in range(self._workers):
                    # Daemons: a handler that never ends must not keep the process from ending once `run` gave up on it.
                    name = f"{self._options.subscription}-{number}"
                    threading.Thread(target=self._work, args=(inbox,), name=name, daemon=True).start()
                self._told.wait()
                self._finished.wait(self._drain_timeout)
            finally:
                loop.call(link.leave(None))

    async def _make_link(self, inbox: ThreadInbox) -> Link:
        return Link(self._options, inbox)

    def _signals(self) -> AbstractContextManager[None]:
        if not self._options.signals:
            return nullcontext()
        return draining_on((signal.SIGTERM, signal.SIGINT), self.drain, polite=False)

    def _work(self, inbox: ThreadInbox) -> None:
        try:
            while (batch := inbox.take()) is not None:
                self._handle(batch)
        except BaseException as error:
            self._failure = self._failure or error
            self.drain()
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    self._finished.set()
                    self._told.set()

    def _handle(self, batch: Batch) -> None:
        try:
            check_done(self._handler(batch))
        except Exception as error:
            conclude(batch, error)
        except BaseException as error:
            # First, or the batch might come back to this very process.
            self.drain()
            conclude(batch, error)
            raise
        else:
            conclude(batch, None)

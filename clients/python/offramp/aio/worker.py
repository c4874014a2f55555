"""A handler that gets batches, run in tasks."""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable
from typing import Unpack

from offramp.batches import Batch
from offramp.handling import check_done, check_workers, conclude, is_asynchronous
from offramp.inbox import TaskInbox
from offramp.link import Link
from offramp.options import ConnectOptions, Options
from offramp.signals import draining_on

Handler = Callable[[Batch], Awaitable[object]]


class Worker:
    """Calls the coroutine function `handler` with batches, in `workers` tasks on one connection.

    A handler that returns has done its batch: it is acked, except for records that it marked otherwise. One that
    raises has not: what it did not mark is retried, with the exception as the reason, unless it raises `Retry`,
    `Reject`, `Release` or `Overloaded`.

    `prefetch` is how many further batches wait in this process, so that no worker idles for a round trip; default: one
    for each worker. What waits here cannot be taken by another process; a batch that has waited for `patience` seconds
    is given back. `drain_timeout` is how many seconds handlers get to finish once it drains, before they are
    cancelled; default: as long as they take. For the other options see `ConnectOptions`.
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
        if not is_asynchronous(handler):
            raise TypeError("handler: it must be a coroutine function (async def); offramp.Worker runs plain functions")
        self._handler = handler
        self._workers = workers
        self._drain_timeout = drain_timeout
        self._options = Options(subscription=subscription, credit=check_workers(workers, prefetch), **options)
        self._link: Link | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining = False
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None

    @property
    def connected(self) -> bool:
        """There is a session with the sidecar now."""
        return self._link is not None and self._link.connected

    async def run(self) -> None:
        """Work until `drain` is called or, in the main thread, SIGTERM or SIGINT comes.

        Then no further batch is taken, those in hand are finished and settled, and the sidecar is told. Waits for the
        sidecar for as long as it takes, also when it restarts. Raises `Refused` when the sidecar says no, and what a
        handler raises to end the process (SystemExit, for one). When this is cancelled, so are the handlers, and what
        they hold is left to the sidecar. A worker runs once.
        """
        if self._loop is not None:
            raise RuntimeError("this worker has been run already; make a new one")
        self._loop = asyncio.get_running_loop()
        inbox = TaskInbox()
        with self._signals():
            link = self._link = Link(self._options, inbox)
            self._tasks = [asyncio.create_task(self._work(inbox)) for _ in range(self._workers)]
            try:
                if self._draining:
                    self._drain()
                await asyncio.wait(self._tasks)
            finally:
                self._cancel()
                ends = await asyncio.gather(*self._tasks, return_exceptions=True)
                await link.leave(None)
        for end in [self._failure, *ends]:
            if isinstance(end, Exception | KeyboardInterrupt | SystemExit):
                raise end

    def drain(self) -> None:
        """Take no further batch, and let `run` return once those in hand are settled. Returns at once; any thread, and
        any signal handler, may call it."""
        self._draining = True
        if self._loop is not None:
            # A loop that is closed has no worker to drain.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        if self._link is not None:
            self._link.drain()
        if self._drain_timeout is not None:
            asyncio.get_running_loop().call_later(self._drain_timeout, self._cancel)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _signals(self) -> contextlib.AbstractContextManager[None]:
        if not self._options.signals:
            return contextlib.nullcontext()
        return draining_on((signal.SIGTERM, signal.SIGINT), self.drain, polite=False)

    async def _work(self, inbox: TaskInbox) -> None:
        while (batch := await inbox.take()) is not None:
            await self._handle(batch)

    async def _handle(self, batch: Batch) -> None:
        try:
            check_done(await self._handler(batch))
        except (KeyboardInterrupt, SystemExit) as error:
            # Raised by `run`: raised here, it would stop the loop before the sidecar could be told anything.
            self._failure = self._failure or error
            self._drain()
            conclude(batch, error)
        except asyncio.CancelledError as error:
            if _is_cancelled():
                # Interrupted, so that nobody can say how far it came: left to the sidecar.
                raise
            conclude(batch, error)
        except Exception as error:
            conclude(batch, error)
        else:
            conclude(batch, None)


def _is_cancelled() -> bool:
    """This task is to end, as opposed to something that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0

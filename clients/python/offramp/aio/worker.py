"""Runs a handler for batches in asyncio tasks."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Unpack

from offramp._internal.connection import Connection
from offramp._internal.handlers import check_result, credit_for, is_coroutine_handler, settle_by_result
from offramp._internal.inbox import TaskInbox
from offramp._internal.stop_signals import drain_on_signals
from offramp.batch import Batch
from offramp.options import ConnectOptions, Options

Handler = Callable[[Batch], Awaitable[object]]


class Worker:
    """Calls the coroutine function `handler` with batches, in `workers` tasks on one connection.

    When a handler returns, its batch is acked, except for records that it marked otherwise. When it raises, the records
    that it did not mark are retried with the exception as the reason, unless it raises `Retry`, `Reject`, `Release` or
    `Overloaded`.

    `prefetch` is the number of further batches that wait in this process, so that no worker waits for a round trip;
    default: one for each worker. No other process can take them; a batch that has waited for `patience` seconds is
    given back. `drain_timeout` is the number of seconds that handlers have to finish once it drains, before they are
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
        if not is_coroutine_handler(handler):
            raise TypeError("handler: it must be a coroutine function (async def); offramp.Worker runs plain functions")
        self._handler = handler
        self._workers = workers
        self._drain_timeout = drain_timeout
        self._options = Options(subscription=subscription, credit=credit_for(workers, prefetch), **options)
        self._connection: Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining = False
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None

    @property
    def connected(self) -> bool:
        """There is a session with the sidecar now."""
        return self._connection is not None and self._connection.connected

    async def run(self) -> None:
        """Work until `drain` is called or, in the main thread, SIGTERM or SIGINT comes.

        Then no further batch is taken, those in hand are finished and settled, and the sidecar is told. Waits for the
        sidecar for as long as it takes, also when it restarts. Raises `Refused` when the sidecar refuses, and what a
        handler raises to end the process (SystemExit, for one). When this is cancelled, so are the handlers, and what
        they hold is left to the sidecar. A worker runs once.
        """
        if self._loop is not None:
            raise RuntimeError("this worker has been run already; make a new one")
        self._loop = asyncio.get_running_loop()
        inbox = TaskInbox()
        with drain_on_signals(self.drain, enabled=self._options.signals, finishes=True):
            connection = self._connection = Connection(self._options, inbox)
            self._tasks = [asyncio.create_task(self._work(inbox)) for _ in range(self._workers)]
            try:
                if self._draining:
                    self._drain()
                await asyncio.wait(self._tasks)
            finally:
                self._cancel()
                ends = await asyncio.gather(*self._tasks, return_exceptions=True)
                await connection.close(None)
        for end in [self._failure, *ends]:
            if isinstance(end, Exception | KeyboardInterrupt | SystemExit):
                raise end

    def drain(self) -> None:
        """Take no further batch, and let `run` return once those in hand are settled. Returns at once; any thread, and
        any signal handler, may call it."""
        self._draining = True
        if self._loop is not None:
            # A closed loop has no worker to drain.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        if self._connection is not None:
            self._connection.drain()
        if self._drain_timeout is not None:
            asyncio.get_running_loop().call_later(self._drain_timeout, self._cancel)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _work(self, inbox: TaskInbox) -> None:
        while (batch := await inbox.take()) is not None:
            await self._handle(batch)

    async def _handle(self, batch: Batch) -> None:
        try:
            check_result(await self._handler(batch))
        except (KeyboardInterrupt, SystemExit) as error:
            # Raised by `run`: raised here, it would stop the loop before anything could be sent to the sidecar.
            self._failure = self._failure or error
            self._drain()
            settle_by_result(batch, error)
        except asyncio.CancelledError as error:
            if _is_cancelled():
                # Interrupted: how far it came is unknown, so the batch is left to the sidecar.
                raise
            settle_by_result(batch, error)
        except Exception as error:
            settle_by_result(batch, error)
        else:
            settle_by_result(batch, None)


def _is_cancelled() -> bool:
    """Whether this task itself was cancelled, rather than something that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0

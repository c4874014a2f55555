"""Runs a handler for batches in threads."""

import threading
from collections.abc import Callable
from typing import Unpack

from offramp._internal.background_loop import BackgroundLoop, shared_loop
from offramp._internal.connection import Connection
from offramp._internal.handlers import check_result, credit_for, is_coroutine_handler, settle_by_result
from offramp._internal.inbox import ThreadInbox
from offramp._internal.signal_safe import Event
from offramp._internal.stop_signals import drain_on_signals
from offramp.batch import Batch
from offramp.options import ConnectOptions, Options

Handler = Callable[[Batch], object]


class Worker:
    """Calls `handler` with batches, in `workers` threads on one connection.

    When a handler returns, its batch is acked, except for records that it marked otherwise. When it raises, the records
    that it did not mark are retried with the exception as the reason, unless it raises `Retry`, `Reject`, `Release` or
    `Overloaded`.

    `prefetch` is the number of further batches that wait in this process, so that no worker waits for a round trip;
    default: one for each worker. No other process can take them; a batch that has waited for `patience` seconds is
    given back. `drain_timeout` is the number of seconds that handlers have to finish once it drains; default: as
    long as they take. For the other options see `ConnectOptions`.
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
        if is_coroutine_handler(handler):
            raise TypeError("handler: it is a coroutine function (async def), which only offramp.aio.Worker can run")
        self._handler = handler
        self._workers = workers
        self._drain_timeout = drain_timeout
        self._options = Options(subscription=subscription, credit=credit_for(workers, prefetch), **options)
        self._loop: BackgroundLoop | None = None
        self._connection: Connection | None = None
        self._draining = False
        #: `drain` was called, or all threads have ended by themselves
        self._stopping = Event()
        self._finished = Event()
        self._lock = threading.Lock()
        self._running = workers
        self._failure: BaseException | None = None

    @property
    def connected(self) -> bool:
        """There is a session with the sidecar now."""
        return self._connection is not None and self._connection.connected

    def run(self) -> None:
        """Work until `drain` is called or, in the main thread, SIGTERM or SIGINT comes.

        Then no further batch is taken, those in hand are finished and settled, and the sidecar is told. Waits for the
        sidecar for as long as it takes, also when it restarts. Raises `Refused` when the sidecar refuses, and what
        a handler raises to end the process (SystemExit, for one). A worker runs once.
        """
        if self._loop is not None:
            raise RuntimeError("this worker has been run already; make a new one")
        self._loop = shared_loop.acquire()
        try:
            self._run(self._loop)
        finally:
            shared_loop.release(self._loop)
        if self._failure is not None:
            raise self._failure

    def drain(self) -> None:
        """Take no further batch, and let `run` return once those in hand are settled. Returns at once; any thread, and
        any signal handler, may call it."""
        self._draining = True
        if self._connection is not None:
            self._connection.drain()
            self._stopping.set()

    def _run(self, loop: BackgroundLoop) -> None:
        inbox = ThreadInbox()
        with drain_on_signals(self.drain, enabled=self._options.signals, finishes=True):
            connection = self._connection = loop.call(self._connect(inbox))
            try:
                if self._draining:
                    self.drain()
                for number in range(self._workers):
                    # Daemons: a handler that never ends must not keep the process from ending once `run` gave up on it.
                    name = f"{self._options.subscription}-{number}"
                    threading.Thread(target=self._work, args=(inbox,), name=name, daemon=True).start()
                self._stopping.wait()
                self._finished.wait(self._drain_timeout)
            finally:
                loop.call(connection.close(None))

    async def _connect(self, inbox: ThreadInbox) -> Connection:
        return Connection(self._options, inbox)

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
                    self._stopping.set()

    def _handle(self, batch: Batch) -> None:
        try:
            check_result(self._handler(batch))
        except Exception as error:
            settle_by_result(batch, error)
        except BaseException as error:
            # First, or this process might get the batch again.
            self.drain()
            settle_by_result(batch, error)
            raise
        else:
            settle_by_result(batch, None)

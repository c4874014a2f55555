"""Iterating over batches, for blocking code."""

import contextlib
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self, Unpack, overload

from offramp._internal.background_loop import BackgroundLoop, shared_loop
from offramp._internal.connection import Connection
from offramp._internal.handlers import outcome_on_exit
from offramp._internal.inbox import ThreadInbox
from offramp._internal.stop_signals import drain_on_signals
from offramp.batch import Batch
from offramp.errors import Closed, Drained
from offramp.options import ConnectOptions, Options
from offramp.outcomes import RELEASE, Outcome


def connect(subscription: str, *, credit: int = 2, **options: Unpack[ConnectOptions]) -> "Consumer":
    """A consumer of a subscription, to be used in a `with` block and iterated over.

    `credit` is the number of batches that may be unsettled at a time, waiting ones included: with 2, the next batch is
    there when the one in hand is done. Raise it if several threads take batches. For the other options see
    `ConnectOptions`. Does not wait for the sidecar.
    """
    return Consumer(Options(subscription=subscription, credit=credit, **options))


class Consumer:
    """An iterator over batches, for any number of threads. Whoever takes a batch settles it.

    Iteration waits for the sidecar for as long as it takes, also when it restarts, and ends after `drain`. It raises
    `Refused` when the sidecar refuses. Open it after a fork, never before.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._inbox = ThreadInbox()
        self._loop: BackgroundLoop | None = None
        self._connection: Connection | None = None
        self._draining = False
        self._closed = False
        self._signals = contextlib.ExitStack()
        #: not taken by `drain`, which a signal handler may call, nor by each `take`: a child must not inherit it locked
        self._opening = threading.Lock()

    def __enter__(self) -> Self:
        self._signals.enter_context(drain_on_signals(self.drain, enabled=self._options.signals))
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._signals.close()
        self._close(outcome_on_exit(error))

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        try:
            return self.take()
        except Drained:
            raise StopIteration from None

    @property
    def connected(self) -> bool:
        """There is a session with the sidecar now."""
        return self._connection is not None and self._connection.connected

    def open(self) -> None:
        """Start asking for batches. A `with` block does this, and so does the first `take`."""
        if self._connection is None:
            with self._opening:
                if self._connection is None and not self._closed:
                    self._loop = shared_loop.acquire()
                    self._connection = self._loop.call(self._connect())
                    if self._draining:
                        self._connection.drain()
        if self._closed:
            raise Closed(f"the consumer of {self._options.subscription} is closed")

    @overload
    def take(self, timeout: None = None) -> Batch: ...

    @overload
    def take(self, timeout: float | None) -> Batch | None: ...

    def take(self, timeout: float | None = None) -> Batch | None:
        """The next batch. None if none came within `timeout` seconds. Raises `Drained` when it drains: none will come.

        With a timeout of 0 it returns what came since the last call, unless that has waited for `patience` seconds.
        """
        self.open()
        if self._connection is not None:
            self._connection.check_process()
        batch = self._inbox.take(timeout)
        if batch is None and (self._draining or self._closed):
            raise Drained(f"the consumer of {self._options.subscription} drains: no further batch comes")
        return batch

    def drain(self) -> None:
        """End the iteration, in whichever thread. What is in hand can still be settled. Returns at once."""
        self._draining = True
        if self._connection is not None:
            self._connection.drain()

    def close(self) -> None:
        """End the session. Batches that are in hand and not settled are released: they are delivered again, without
        counting as an attempt. Waits for the sidecar's last answers, for a few seconds at most."""
        self._close(RELEASE)

    def _close(self, in_hand: Outcome | None) -> None:
        if self._connection is not None and self._loop is not None:
            self._connection.check_process()
        with self._opening:
            self._closed = True
            taken, self._loop = self._loop, None
        if taken is not None and self._connection is not None:
            try:
                taken.call(self._connection.close(in_hand))
            finally:
                shared_loop.release(taken)

    async def _connect(self) -> Connection:
        return Connection(self._options, self._inbox)

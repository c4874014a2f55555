"""Iterating over batches, for asyncio."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self, Unpack, overload

from offramp._internal.connection import Connection
from offramp._internal.handlers import outcome_on_exit
from offramp._internal.inbox import TaskInbox
from offramp._internal.stop_signals import drain_on_signals
from offramp.batch import Batch
from offramp.errors import Closed, Drained
from offramp.options import ConnectOptions, Options
from offramp.outcomes import RELEASE, Outcome


def connect(subscription: str, *, credit: int = 2, **options: Unpack[ConnectOptions]) -> "Consumer":
    """A consumer of a subscription, to be used in an `async with` block and iterated over.

    `credit` is the number of batches that may be unsettled at a time, waiting ones included: with 2, the next batch is
    there when the one in hand is done. Raise it if several tasks take batches. For the other options see
    `ConnectOptions`. Does not wait for the sidecar.
    """
    return Consumer(Options(subscription=subscription, credit=credit, **options))


class Consumer:
    """An asynchronous iterator over batches, for any number of tasks. Whoever takes a batch settles it.

    Iteration waits for the sidecar for as long as it takes, also when it restarts, and ends after `drain`. It raises
    `Refused` when the sidecar refuses.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._inbox = TaskInbox()
        self._connection: Connection | None = None
        self._draining = False
        self._closed = False
        self._signals = contextlib.ExitStack()

    async def __aenter__(self) -> Self:
        self._signals.enter_context(drain_on_signals(self.drain, enabled=self._options.signals))
        self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._signals.close()
        await self._close(outcome_on_exit(error))

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        try:
            return await self.take()
        except Drained:
            raise StopAsyncIteration from None

    @property
    def connected(self) -> bool:
        """There is a session with the sidecar now."""
        return self._connection is not None and self._connection.connected

    def open(self) -> Connection:
        """Start asking for batches. An `async with` block does this, and so does the first `take`."""
        if self._closed:
            raise Closed(f"the consumer of {self._options.subscription} is closed")
        if self._connection is None:
            self._connection = Connection(self._options, self._inbox)
            if self._draining:
                self._connection.drain()
        return self._connection

    @overload
    async def take(self, timeout: None = None) -> Batch: ...

    @overload
    async def take(self, timeout: float | None) -> Batch | None: ...

    async def take(self, timeout: float | None = None) -> Batch | None:
        """The next batch. None if none came within `timeout` seconds. Raises `Drained` when it drains: none will come.

        With a timeout of 0 it returns what came since the last call, unless that has waited for `patience` seconds.
        """
        self.open().check_process()
        if timeout is None:
            batch = await self._inbox.take()
        else:
            batch = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    batch = await self._inbox.take()
        if batch is None and (self._draining or self._closed):
            raise Drained(f"the consumer of {self._options.subscription} drains: no further batch comes")
        return batch

    def drain(self) -> None:
        """End the iteration, in whichever task. What is in hand can still be settled. Any thread may call this."""
        self._draining = True
        if self._connection is not None:
            self._connection.drain()

    async def close(self) -> None:
        """End the session. Batches that are in hand and not settled are released: they are delivered again, without
        counting as an attempt. Waits for the sidecar's last answers, for a few seconds at most."""
        await self._close(RELEASE)

    async def _close(self, in_hand: Outcome | None) -> None:
        self._closed = True
        if self._connection is not None:
            await self._connection.close(in_hand)

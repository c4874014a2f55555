"""Batches one after the other, for asyncio."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self, Unpack

from offramp.batches import Batch
from offramp.errors import Closed
from offramp.handling import verdict_on_exit
from offramp.inbox import TaskInbox
from offramp.link import Link
from offramp.options import ConnectOptions, Options
from offramp.signals import draining_on
from offramp.verdicts import RELEASE, Verdict


def connect(subscription: str, *, credit: int = 2, **options: Unpack[ConnectOptions]) -> "Consumer":
    """A consumer of a subscription, to be used in an `async with` block and iterated over.

    `credit` is how many batches this process may have unsettled at a time, waiting ones included: with 2, the next
    batch is there when the one in hand is done. Raise it if several tasks take batches. For the other options see
    `ConnectOptions`. Does not wait for the sidecar.
    """
    return Consumer(Options(subscription=subscription, credit=credit, **options))


class Consumer:
    """An asynchronous iterator over batches, for any number of tasks. Each batch is to be settled by whoever took it.

    Iteration waits for the sidecar for as long as it takes, also when it restarts, and ends after `drain`. It raises
    `Refused` when the sidecar says no.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._inbox = TaskInbox()
        self._link: Link | None = None
        self._draining = False
        self._closed = False
        self._signals = contextlib.ExitStack()

    async def __aenter__(self) -> Self:
        if self._options.signals:
            self._signals.enter_context(draining_on((signal.SIGTERM,), self.drain, polite=True))
        self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._signals.close()
        await self._leave(verdict_on_exit(error))

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        batch = await self.take()
        if batch is None:
            raise StopAsyncIteration
        return batch

    @property
    def connected(self) -> bool:
        """There is a session with the sidecar now."""
        return self._link is not None and self._link.connected

    def open(self) -> Link:
        """Start asking for batches. An `async with` block does this, and so does the first `take`."""
        if self._closed:
            raise Closed(f"the consumer of {self._options.subscription} is closed")
        if self._link is None:
            self._link = Link(self._options, self._inbox)
            if self._draining:
                self._link.drain()
        return self._link

    async def take(self, timeout: float | None = None) -> Batch | None:
        """The next batch. None if none came within so many seconds, or if none will come since it drains.

        With a timeout of 0 it finds what has come since the last call, but not what has waited for `patience` seconds.
        """
        self.open().check_process()
        if timeout is None:
            return await self._inbox.take()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                return await self._inbox.take()
        return None

    def drain(self) -> None:
        """End the iteration, in whichever task. What is in hand can still be settled. Any thread may call this."""
        self._draining = True
        if self._link is not None:
            self._link.drain()

    async def close(self) -> None:
        """Leave. Batches that are in hand and not settled are released: they are delivered again, without counting
        as an attempt. Waits for the sidecar's last answers, for a few seconds at the most."""
        await self._leave(RELEASE)

    async def _leave(self, in_hand: Verdict | None) -> None:
        self._closed = True
        if self._link is not None:
            await self._link.leave(in_hand)

"""Batches one after the other, for code that blocks."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self, Unpack

from offramp.background import Background, shared
from offramp.batches import Batch
from offramp.errors import Closed
from offramp.handling import verdict_on_exit
from offramp.inbox import ThreadInbox
from offramp.link import Link
from offramp.options import ConnectOptions, Options
from offramp.signals import draining_on
from offramp.verdicts import RELEASE, Verdict


def connect(subscription: str, *, credit: int = 2, **options: Unpack[ConnectOptions]) -> "Consumer":
    """A consumer of a subscription, to be used in a `with` block and iterated over.

    `credit` is how many batches this process may have unsettled at a time, waiting ones included: with 2, the next
    batch is there when the one in hand is done. Raise it if several threads take batches. For the other options see
    `ConnectOptions`. Does not wait for the sidecar.
    """
    return Consumer(Options(subscription=subscription, credit=credit, **options))


class Consumer:
    """An iterator over batches, for any number of threads. Each batch is to be settled by whoever took it.

    Iteration waits for the sidecar for as long as it takes, also when it restarts, and ends after `drain`. It raises
    `Refused` when the sidecar says no. Open it after a fork, never before.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._inbox = ThreadInbox()
        self._background: Background | None = None
        self._link: Link | None = None
        self._draining = False
        self._closed = False
        self._signals = contextlib.ExitStack()
        #: Not for `drain`, which a signal handler may call, nor for each `take`: a child must not inherit it locked.
        self._opening = threading.Lock()

    def __enter__(self) -> Self:
        if self._options.signals:
            self._signals.enter_context(draining_on((signal.SIGTERM,), self.drain, polite=True))
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._signals.close()
        self._leave(verdict_on_exit(error))

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = self.take()
        if batch is None:
            raise StopIteration
        return batch

    @property
    def connected(self) -> bool:
        """There is a session with the sidecar now."""
        return self._link is not None and self._link.connected

    def open(self) -> None:
        """Start asking for batches. A `with` block does this, and so does the first `take`."""
        if self._link is None:
            with self._opening:
                if self._link is None and not self._closed:
                    self._background = shared.acquire()
                    self._link = self._background.call(self._make_link())
                    if self._draining:
                        self._link.drain()
        if self._closed:
            raise Closed(f"the consumer of {self._options.subscription} is closed")

    def take(self, timeout: float | None = None) -> Batch | None:
        """The next batch. None if none came within so many seconds, or if none will come since it drains.

        With a timeout of 0 it finds what has come since the last call, but not what has waited for `patience` seconds.
        """
        self.open()
        if self._link is not None:
            self._link.check_process()
        return self._inbox.take(timeout)

    def drain(self) -> None:
        """End the iteration, in whichever thread. What is in hand can still be settled. Returns at once."""
        self._draining = True
        if self._link is not None:
            self._link.drain()

    def close(self) -> None:
        """Leave. Batches that are in hand and not settled are released: they are delivered again, without counting
        as an attempt. Waits for the sidecar's last answers, for a few seconds at the most."""
        self._leave(RELEASE)

    def _leave(self, in_hand: Verdict | None) -> None:
        if self._link is not None and self._background is not None:
            self._link.check_process()
        with self._opening:
            self._closed = True
            taken, self._background = self._background, None
        if taken is not None and self._link is not None:
            try:
                taken.call(self._link.leave(in_hand))
            finally:
                shared.release(taken)

    async def _make_link(self) -> Link:
        return Link(self._options, self._inbox)

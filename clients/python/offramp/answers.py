"""What the sidecar answers, and how to wait for it if one wants to."""

import asyncio
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, TypeVar

from offramp.v1 import record_pb2 as pb
from offramp.waiting import Flag

T = TypeVar("T")


class SettleStatus(IntEnum):
    """Numbers as in `offramp.v1.SettleStatus`."""

    #: no answer came: the client left, or was refused, before it could. Whether it counts is not known
    UNANSWERED = 0
    #: the sidecar counts it: an ack will be committed
    SETTLED = 1
    #: at least the records in `stale` were not settled: they were given to another, or settled otherwise before
    STALE = 2
    #: nothing was settled: the lease is from before a restart of the sidecar, or was settled long ago
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class SettleResult:
    """The answer to a settlement."""

    status: SettleStatus
    #: indexes of records of the batch, with status STALE
    stale: tuple[range, ...] = ()
    #: for people
    detail: str = ""

    @property
    def settled(self) -> bool:
        """The sidecar counts all of it."""
        return self.status is SettleStatus.SETTLED


#: by far the most frequent answer
SETTLED = SettleResult(SettleStatus.SETTLED)


def read_result(message: pb.SettleResult) -> SettleResult:
    if message.status == pb.SETTLE_STATUS_SETTLED:
        return SETTLED
    try:
        status = SettleStatus(message.status)
    except ValueError:
        status = SettleStatus.UNANSWERED
    stale = tuple(range(one.first, one.first + one.count) for one in message.stale)
    return SettleResult(status, stale, message.detail)


def merge(results: Sequence[SettleResult]) -> SettleResult:
    """One answer for a settlement that travelled in pieces: the worst."""
    worst = max(results, key=lambda result: (not result.settled, result.status))
    return SettleResult(worst.status, tuple(one for result in results for one in result.stale), worst.detail)


class Answer(Generic[T]):
    """What the sidecar will say. Nobody has to wait for it; problems are logged either way.

    In asyncio `await` it; in a thread ask for its `result()`. Both may be done any number of times.
    """

    __slots__ = ("_flag", "_future", "_value")

    def __init__(self) -> None:
        self._value: T | None = None
        # Made only for those who wait, which hardly anybody does: threads, and tasks.
        self._flag: Flag | None = None
        self._future: Future[T] | None = None

    @property
    def done(self) -> bool:
        return self._value is not None

    def result(self, timeout: float | None = None) -> T:
        """Blocks until the answer is there. Raises `TimeoutError`.

        An answer needs a connection: while the sidecar is away, this waits for it to come back.
        """
        if self._value is not None:
            return self._value
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._wait(timeout)
        raise RuntimeError("this thread runs an event loop, which result() would block: await the answer instead")

    def __await__(self) -> Generator[Any, None, T]:
        if self._value is not None:
            return self._value
        return (yield from asyncio.wrap_future(self._waited()).__await__())

    def resolve(self, value: T) -> None:
        """For the connection only: says the answer to all who wait. The first one stays."""
        with _transition:
            if self._value is not None:
                return
            self._value = value
            flag, future = self._flag, self._future
        if flag is not None:
            flag.set()
        if future is not None:
            future.set_result(value)

    def _wait(self, timeout: float | None) -> T:
        with _transition:
            flag = self._flag = self._flag or Flag()
        if self._value is None:
            flag.wait(timeout)
        if self._value is None:
            raise TimeoutError(f"the sidecar did not answer within {timeout:g} seconds")
        return self._value

    def _waited(self) -> "Future[T]":
        with _transition:
            if self._future is None:
                self._future = Future()
                # One who stops waiting must not cancel it for the others.
                self._future.set_running_or_notify_cancel()
                if self._value is not None:
                    self._future.set_result(self._value)
            return self._future


#: held for a few instructions, so that one lock serves all answers
_transition = threading.Lock()

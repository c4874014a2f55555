"""The sidecar's answer to a settlement, and how to wait for it."""

import asyncio
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Generic, TypeVar

from offramp._internal.signal_safe import Event
from offramp.v1 import error_pb2
from offramp.v1 import record_pb2 as pb

T = TypeVar("T")


class SettleStatus(IntEnum):
    """Numbers as in `offramp.v1.SettleStatus`."""

    #: no answer came before the client closed or was refused. Whether the settlement counts is unknown
    UNANSWERED = 0
    #: the sidecar counts it: an ack will be committed
    SETTLED = 1
    #: at least the records in `stale` were not settled: they were delivered to another, or settled before
    STALE = 2
    #: nothing was settled: the lease is from before a restart of the sidecar, or was settled long ago
    UNKNOWN = 3
    #: nothing was settled: the sidecar does not accept this settlement, for the `reason`. The records stay leased
    REFUSED = 4


@dataclass(frozen=True, slots=True)
class SettleResult:
    """The answer to a settlement."""

    status: SettleStatus
    #: with status STALE: indexes of records of the batch
    stale: tuple[range, ...] = ()
    #: for people
    detail: str = ""
    #: with status REFUSED, for programs: a name of `offramp.v1.ErrorReason`, such as UNKNOWN_OUTCOME
    reason: str = ""

    @property
    def settled(self) -> bool:
        """The sidecar counts all of it."""
        return self.status is SettleStatus.SETTLED


#: by far the most frequent result
SETTLED = SettleResult(SettleStatus.SETTLED)


def read_result(message: pb.SettleResult) -> SettleResult:
    if message.status == pb.SETTLE_STATUS_SETTLED:
        return SETTLED
    try:
        status = SettleStatus(message.status)
    except ValueError:
        status = SettleStatus.UNANSWERED
    stale = tuple(range(one.first, one.first + one.count) for one in message.stale)
    return SettleResult(status, stale, message.detail, reason_name(message.reason))


def reason_name(number: int) -> str:
    """Without its prefix; empty for none; the number of one that this version does not know."""
    if not number:
        return ""
    known = error_pb2.ErrorReason.DESCRIPTOR.values_by_number.get(number)
    return known.name.removeprefix("ERROR_REASON_") if known is not None else str(number)


def merge(results: Sequence[SettleResult]) -> SettleResult:
    """One result for a settlement that was sent in pieces: the worst."""
    worst = max(results, key=lambda result: (not result.settled, result.status))
    return replace(worst, stale=tuple(one for result in results for one in result.stale))


class Answer(Generic[T]):
    """The sidecar's future answer. Waiting for it is optional; problems are logged either way.

    In asyncio `await` it; in a thread call `result()`. Both may be done any number of times.
    """

    __slots__ = ("_event", "_future", "_value")

    def __init__(self) -> None:
        self._value: T | None = None
        # Made only for threads and tasks that wait, which few do.
        self._event: Event | None = None
        self._future: Future[T] | None = None

    @property
    def done(self) -> bool:
        return self._value is not None

    def result(self, timeout: float | None = None) -> T:
        """Blocks until the answer is there. Raises `TimeoutError` after `timeout` seconds.

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
        return (yield from asyncio.wrap_future(self._shared_future()).__await__())

    def resolve(self, value: T) -> None:
        """For the connection only: wakes all who wait. Only the first call counts."""
        with _lock:
            if self._value is not None:
                return
            self._value = value
            event, future = self._event, self._future
        if event is not None:
            event.set()
        if future is not None:
            future.set_result(value)

    def _wait(self, timeout: float | None) -> T:
        with _lock:
            event = self._event = self._event or Event()
        if self._value is None:
            event.wait(timeout)
        if self._value is None:
            raise TimeoutError(f"the sidecar did not answer within {timeout:g} seconds")
        return self._value

    def _shared_future(self) -> "Future[T]":
        with _lock:
            if self._future is None:
                self._future = Future()
                # A task that stops waiting must not cancel it for the others.
                self._future.set_running_or_notify_cancel()
                if self._value is not None:
                    self._future.set_result(self._value)
            return self._future


#: held for a few instructions, so that one lock serves all answers
_lock = threading.Lock()

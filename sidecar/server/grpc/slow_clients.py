"""Limits on what clients leave unread: how long a write to a stream may take, and how many bytes of unary responses
one caller may leave unread."""

import asyncio
from collections import defaultdict
from types import TracebackType
from typing import Self

from sidecar.model.errors import ResourceExhausted, Stalled
from sidecar.model.reasons import Reason
from sidecar.model.units import show_duration, show_size
from sidecar.server.auth.caller import Caller, current
from sidecar.server.grpc.rpc import Context

#: bytes; a subscription may hold a record that is larger than its memory limit
_MIN_UNREAD_LIMIT = 64 << 20


class StreamWriter:
    """Writes to one stream, from one task at a time, with a limit on how long a write may take.

    gRPC suspends a write while the client has enough unread, so that no more than one frame waits here. But it never
    ends that wait, and other workers do not get what such a client holds.
    """

    def __init__(self, context: Context, write_timeout: float) -> None:
        """`write_timeout`: seconds that a write may take."""
        self._context = context
        self._timeout = write_timeout
        self._loop = asyncio.get_running_loop()
        #: the task that writes now, and since when
        self._task: asyncio.Task[object] | None = None
        self._since = 0.0
        self._stalled = False
        # One timer for all writes: a timer for each would cost more than most writes.
        self._timer = self._loop.call_later(write_timeout, self._on_timer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()

    async def write(self, response: bytes) -> None:
        """Raises `Stalled`."""
        task = self._task = asyncio.current_task()
        self._since = self._loop.time()
        try:
            await self._context.write(response)
        except asyncio.CancelledError:
            if not self._stalled or task is None:
                raise
            task.uncancel()
            raise Stalled(f"the client has not read for {show_duration(self._timeout)} (listen.unread)") from None
        finally:
            self._task = None

    def _on_timer(self) -> None:
        now = self._loop.time()
        ends = (self._since if self._task is not None else now) + self._timeout
        if self._task is not None and now >= ends:
            self._stalled = True
            self._task.cancel()
        else:
            self._timer = self._loop.call_at(ends, self._on_timer)


class UnreadResponses:
    """Counts the bytes of unary responses that their clients have not read yet, for each caller.

    gRPC keeps such a response until the client reads it or is gone. A client could settle what it has not read and so
    get one response after another. A caller with too much unread gets no more; other callers are not affected.
    """

    def __init__(self, memory: int) -> None:
        """`memory`: bytes that all subscriptions together may hold. What an honest client has not read, it has not
        settled either, so it cannot be more than that."""
        self._limit = max(memory, _MIN_UNREAD_LIMIT)
        self._bytes: defaultdict[Caller, int] = defaultdict(int)

    def check(self) -> None:
        """Raises `ResourceExhausted` if the caller of this call has left too much unread."""
        if self._bytes.get(current(), 0) > self._limit:
            raise ResourceExhausted(
                f"more than {show_size(self._limit)} of responses are unread, which is more than all subscriptions may "
                "hold (memory.bytes): read them before asking for more",
                Reason.UNREAD_RESPONSES,
                limit="memory.bytes",
                max=self._limit,
            )

    def count(self, response: bytes, context: Context) -> None:
        """Count the response of a call until the client has read it or is gone."""
        caller, size = current(), len(response)
        self._bytes[caller] += size

        def done(_: object) -> None:
            self._bytes[caller] -= size
            if not self._bytes[caller]:
                # Callers come and go with their tokens.
                del self._bytes[caller]

        context.add_done_callback(done)  # type: ignore[arg-type] # the stubs ask for a class of their own

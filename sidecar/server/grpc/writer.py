"""Writing to a client that may not read.

gRPC holds a write back when the client has left enough unread, so that whoever waits for each write keeps no more than
one frame. But nothing ends that wait, and what such a client holds is kept from others. So it has a limit.
"""

import asyncio
from types import TracebackType
from typing import Self

from sidecar.model.errors import Stalled
from sidecar.model.units import show_duration
from sidecar.server.grpc.rpc import Context


class Writer:
    """Writes to one stream, from one task at a time."""

    def __init__(self, context: Context, unread: float) -> None:
        """`unread`: seconds that a write may take."""
        self._context = context
        self._unread = unread
        self._loop = asyncio.get_running_loop()
        #: the task that writes now, and since when
        self._task: asyncio.Task[object] | None = None
        self._since = 0.0
        self._stalled = False
        # One timer for all writes: one for each would cost more than many a write.
        self._timer = self._loop.call_later(unread, self._look)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()

    async def write(self, answer: bytes) -> None:
        """Raises `Stalled`."""
        task = self._task = asyncio.current_task()
        self._since = self._loop.time()
        try:
            await self._context.write(answer)
        except asyncio.CancelledError:
            if not self._stalled or task is None:
                raise
            task.uncancel()
            waited = f"for {show_duration(self._unread)}, which is listen.unread"
            raise Stalled(f"the client has left unread what waits for it {waited}") from None
        finally:
            self._task = None

    def _look(self) -> None:
        waited = self._loop.time() - self._since if self._task is not None else 0.0
        if self._task is not None and waited >= self._unread:
            self._stalled = True
            self._task.cancel()
        else:
            self._timer = self._loop.call_later(self._unread - waited, self._look)

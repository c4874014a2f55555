"""Writing lines to a pipe, and knowing which of them it took."""

import os
import select
import time
from collections.abc import Callable, Sequence

#: a pipe that is ready for writing takes this much at once without blocking
_CHUNK = select.PIPE_BUF
_POLL_MS = 100
#: seconds that a half-written line gets to be finished after the writer was told to stop
_GRACE = 1.0


class LineSink:
    """A file descriptor that takes lines: a pipe whose reader may be slow, or go away."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        #: the reader went away
        self.gone = False

    def look(self) -> None:
        """Find out whether the reader went away, without writing anything."""
        self.gone = self.gone or any(events & (select.POLLERR | select.POLLHUP) for _, events in self._poll.poll(0))

    def write(self, lines: Sequence[bytes], stopped: Callable[[], bool]) -> int:
        """Writes lines until all are taken, the reader is gone, or `stopped` says so; answers how many were taken.

        A line counts once the pipe has all of it. Blocks as long as the reader lets it wait, but looks at
        `stopped` all the while: then the line that was begun is finished if the reader takes it soon.
        """
        for number, line in enumerate(lines):
            if self.gone or stopped() or not self._write_line(line, stopped):
                return number
        return len(lines)

    def _write_line(self, line: bytes, stopped: Callable[[], bool]) -> bool:
        view, given_up_at = memoryview(line), None
        while view:
            if not self._poll.poll(_POLL_MS):
                now = time.monotonic()
                if stopped() and given_up_at is None:
                    given_up_at = now + _GRACE
                if given_up_at is not None and (now >= given_up_at or len(view) == len(line)):
                    return False
                continue
            try:
                view = view[os.write(self._fd, view[:_CHUNK]) :]
            except BrokenPipeError:
                self.gone = True
                return False
        return True

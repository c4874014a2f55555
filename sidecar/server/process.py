"""What the process shows of itself: memory, processor time, open files, and how late its loop is; and its end."""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import NoReturn

from sidecar.observability.metrics import Process

#: seconds between two looks at the loop
_EVERY = 0.5


class LoopWatch:
    """Measures by how much the event loop is late: whatever blocks it delays every worker."""

    def __init__(self) -> None:
        self._worst = 0.0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _EVERY
            await asyncio.sleep(_EVERY)
            self._worst = max(self._worst, loop.time() - due)

    def take_worst(self) -> float:
        """Seconds, since it was last asked."""
        worst, self._worst = self._worst, 0.0
        return worst


def look(watch: LoopWatch) -> Process:
    return Process(
        loop_lag=watch.take_worst(),
        resident_bytes=_resident_bytes(),
        cpu_seconds=time.process_time(),
        open_files=_open_files(),
    )


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def leave(code: int) -> NoReturn:
    """End the process, once everything in it is closed.

    Threads of the brokers' libraries may still call back. If they did while the interpreter was being taken apart, a
    sidecar that had drained in order would end with a crash.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

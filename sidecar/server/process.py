"""Measurements of this process (memory, processor time, open files, lag of the event loop), and its exit."""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import NoReturn

from sidecar.observability.metrics import Process

#: seconds between two measurements of the event loop
_LAG_INTERVAL = 0.5


class LoopLag:
    """Measures how late the event loop runs its timers: whatever blocks the loop delays every worker."""

    def __init__(self) -> None:
        self._worst = 0.0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_INTERVAL
            await asyncio.sleep(_LAG_INTERVAL)
            self._worst = max(self._worst, loop.time() - due)

    def take_worst(self) -> float:
        """The worst lag since the previous call, in seconds."""
        worst, self._worst = self._worst, 0.0
        return worst


def sample(loop_lag: LoopLag) -> Process:
    return Process(
        loop_lag=loop_lag.take_worst(),
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


def exit_now(code: int) -> NoReturn:
    """Exit without finalizing the interpreter. Call this once everything is closed.

    Threads of the brokers' libraries may still call back. During finalization that would crash a sidecar that has
    drained in order.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

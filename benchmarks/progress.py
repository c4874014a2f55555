"""Shows what runs and how long it will take: the estimates, corrected by the times so far."""

import sys
import threading
import time
from collections.abc import Sequence
from typing import Self, TextIO

from benchmarks.rows import Benchmark

_WIDTH = 28


class Plan:
    """The remaining work and its time. Pure."""

    def __init__(self, benchmarks: Sequence[Benchmark], repeats: int) -> None:
        self._left = {b.name: 1 if b.once else repeats for b in benchmarks}
        self._seconds = {b.name: b.seconds for b in benchmarks}
        self._preparation = {b.name: b.preparation for b in benchmarks}
        self._planned = 0.0
        #: seconds so far
        self.taken = 0.0

    def done(self, benchmark: Benchmark, seconds: float) -> None:
        """Record the duration of one turn."""
        self._left[benchmark.name] -= 1
        preparation = self._preparation.pop(benchmark.name, 0.0)
        self._planned += self._seconds[benchmark.name] + preparation
        self.taken += seconds

    @property
    def left(self) -> float:
        """Seconds: the estimates, scaled by the ratio of actual to estimated time so far."""
        estimated = sum(self._seconds[name] * count for name, count in self._left.items())
        estimated += sum(seconds for name, seconds in self._preparation.items() if self._left[name])
        return estimated * (self.taken / self._planned if self._planned else 1.0)


class Progress:
    """A bar on a terminal, lines in a log."""

    def __init__(self, benchmarks: Sequence[Benchmark], repeats: int, out: TextIO = sys.stderr) -> None:
        self._plan = Plan(benchmarks, repeats)
        self._repeats = repeats
        self._out = out
        self._running = ""
        self._since = 0.0
        self._finished = threading.Event()
        self._drawing = threading.Thread(target=self._draw_loop, daemon=True) if out.isatty() else None

    def __enter__(self) -> Self:
        if self._drawing:
            self._drawing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._finished.set()
        if self._drawing:
            self._drawing.join()
            print("\r\033[K", end="", file=self._out, flush=True)

    def begin(self, benchmark: Benchmark, turn: int) -> None:
        self._since = time.monotonic()
        self._running = f"{benchmark.name} ({turn} of {1 if benchmark.once else self._repeats})"
        if not self._drawing:
            print(f"{self._running}; {_time(self._plan.left)} left", file=self._out, flush=True)

    def end(self, benchmark: Benchmark, seconds: float) -> None:
        self._plan.done(benchmark, seconds)
        if not self._drawing:
            print(f"    took {_time(seconds)}", file=self._out, flush=True)

    def _draw_loop(self) -> None:
        while not self._finished.wait(0.5):
            running = time.monotonic() - self._since
            taken = self._plan.taken + running
            left = max(1.0, self._plan.left - running)
            share = taken / (taken + left)
            full = int(share * _WIDTH)
            bar = "█" * full + "░" * (_WIDTH - full)
            print(
                f"\r\033[K{bar} {share:4.0%}  {_time(left)} left  {self._running}", end="", file=self._out, flush=True
            )


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"

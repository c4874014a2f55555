"""Runs many histories: what they exercised, and what they found."""

import gc
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from sidecar.model.records import Order
from tests.simulation.history import Result, run

#: the first seed of the tests; any other would do
SEED = 1_000_000
#: what less than this share of the histories has exercised counts as not tested
LEAST_SHARE = 0.01
#: shares are only judged from so many histories on
ENOUGH = 1_000
#: histories in one task of a process
_STRIDE = 5


@dataclass(slots=True)
class Findings:
    """What the histories exercised, and those that failed."""

    histories: int = 0
    events: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    failures: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> None:
        self.histories += 1
        self.events += result.events
        self.seen.update(result.seen)
        if result.violation:
            self.failures.append(result)

    @property
    def raised(self) -> list[str]:
        """Exceptions of the code under test that came before any broken promise."""
        return [result.raised for result in self.failures if result.raised]

    def neglected(self, expected: frozenset[str]) -> list[str]:
        """What was exercised too rarely to have been tested."""
        least = LEAST_SHARE * self.histories
        return sorted(name for name in expected | self.seen.keys() if self.seen[name] < least)

    def table(self) -> str:
        lines = [
            f"{count / max(1, self.histories):7.1%}  {name}" for name, count in sorted(self.seen.items(), key=_by_name)
        ]
        return "\n".join(lines)


def _by_name(item: tuple[str, int]) -> tuple[bool, int, str]:
    """The promises first, by number."""
    name = item[0]
    number = name.partition(" ")[0]
    return (not number.isdigit(), int(number) if number.isdigit() else 0, name)


def campaign(
    histories: int,
    *,
    seed: int = 0,
    jobs: int = 1,
    order: Order | None = None,
    until: Callable[[Result], bool] = lambda result: bool(result.violation),
    progress: Callable[[int, float], None] = lambda done, seconds: None,
) -> Findings:
    """Run so many histories with the seeds from `seed` on, up to the first for which `until` is true.

    More than one job forks: only for a process that has no threads. A test must not ask for it: others that ran in its
    process have left threads of gRPC, and a lock that one of them holds is held in the child forever.
    """
    findings = Findings()
    began = time.monotonic()
    for results in _results(histories, seed, jobs, order):
        for each in results:
            findings.add(each)
            if until(each):
                return findings
        progress(findings.histories, time.monotonic() - began)
    return findings


def _results(histories: int, seed: int, jobs: int, order: Order | None) -> Iterator[list[Result]]:
    last = seed + histories
    strides = [(start, min(start + _STRIDE, last), order) for start in range(seed, last, _STRIDE)]
    if jobs == 1:
        yield from map(_stride, strides)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(_stride, strides)


def _portable(result: Result) -> Result:
    """With the trace as text: the objects in it cannot be sent to another process."""
    return replace(result, trace=tuple(tuple(map(str, event)) for event in result.trace))


def _stride(stride: tuple[int, int, Order | None]) -> list[Result]:
    start, stop, order = stride
    # Histories leave reference cycles; collecting them in between costs a tenth of the time.
    gc.disable()
    try:
        return [_portable(run(seed, order)) for seed in range(start, stop)]
    finally:
        gc.enable()
        gc.collect()

"""Many histories on all cores: what they exercised, and what they found."""

import gc
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from sidecar.model.records import Order
from tests.simulation.history import Told, run

#: the first seed of the tests: the simulation must not depend on where it starts
SEED = 1_000_000
#: what fewer histories than this share have exercised counts as not tested
LEAST_SHARE = 0.01
#: below so many histories a share says nothing
ENOUGH = 1_000
#: histories that a process runs at a time
_STRIDE = 5


@dataclass(slots=True)
class Findings:
    """What a campaign has seen."""

    histories: int = 0
    events: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    failures: list[Told] = field(default_factory=list)

    def add(self, told: Told) -> None:
        self.histories += 1
        self.events += told.events
        self.seen.update(told.seen)
        if told.violation:
            self.failures.append(told)

    @property
    def raised(self) -> list[str]:
        """Exceptions of the code under test that came before any broken promise."""
        return [told.raised for told in self.failures if told.raised]

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
    """The promises first, in their order."""
    name = item[0]
    number = name.partition(" ")[0]
    return (not number.isdigit(), int(number) if number.isdigit() else 0, name)


def campaign(
    histories: int,
    *,
    seed: int = 0,
    jobs: int = 0,
    order: Order | None = None,
    until: Callable[[Told], bool] = lambda told: bool(told.violation),
    progress: Callable[[int, float], None] = lambda done, seconds: None,
) -> Findings:
    """Run so many histories, with the seeds from `seed` on. Ends early after a history for which `until` is true."""
    findings = Findings()
    began = time.monotonic()
    for told in _told(histories, seed, jobs or multiprocessing.cpu_count(), order):
        for each in told:
            findings.add(each)
            if until(each):
                return findings
        progress(findings.histories, time.monotonic() - began)
    return findings


def _told(histories: int, seed: int, jobs: int, order: Order | None) -> Iterator[list[Told]]:
    last = seed + histories
    strides = [(start, min(start + _STRIDE, last), order) for start in range(seed, last, _STRIDE)]
    if jobs == 1:
        yield from map(_stride, strides)
        return
    # Forked, so that the children test the code as it is here, mutated or not.
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(_stride, strides)


def _portable(told: Told) -> Told:
    """As text: what a trace refers to cannot leave its process."""
    return replace(told, trace=tuple(tuple(map(str, event)) for event in told.trace))


def _stride(stride: tuple[int, int, Order | None]) -> list[Told]:
    start, stop, order = stride
    # A history leaves cycles behind; collecting them in its midst costs a tenth of its time.
    gc.disable()
    try:
        return [_portable(run(seed, order)) for seed in range(start, stop)]
    finally:
        gc.enable()
        gc.collect()

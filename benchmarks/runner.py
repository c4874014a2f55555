"""Measures in turns: each turn measures every benchmark once, so that a busy moment does not affect one alone."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.environment import BenchmarkEnvironment
from benchmarks.progress import Progress
from benchmarks.rows import Benchmark, Figure, figures_of
from tests.servers.tools import Missing


@dataclass
class Outcome:
    """Figures in the order of the suites, and why others are missing, by benchmark."""

    figures: list[Figure] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    #: by Ctrl-C; the figures are those measured until then
    interrupted: bool = False

    def gave_up(self, benchmark: Benchmark) -> bool:
        return benchmark.name in self.skipped or benchmark.name in self.failed


def run(
    benchmarks: Sequence[Benchmark], environment: BenchmarkEnvironment, repeats: int, progress: Progress
) -> Outcome:
    """Skips a benchmark with missing requirements, and drops one that fails from then on; the others continue."""
    turns: dict[str, list[Mapping[str, float]]] = {benchmark.name: [] for benchmark in benchmarks}
    outcome = Outcome()
    try:
        for number in range(1, repeats + 1):
            for benchmark in benchmarks:
                if not (outcome.gave_up(benchmark) or (benchmark.once and number > 1)):
                    progress.begin(benchmark, number)
                    began = time.monotonic()
                    turns[benchmark.name] += _turn(benchmark, environment, outcome)
                    progress.end(benchmark, time.monotonic() - began)
    except KeyboardInterrupt:
        outcome.interrupted = True
    for benchmark in benchmarks:
        if found := turns[benchmark.name]:
            outcome.figures += figures_of(benchmark.rows, found)
    return outcome


def _turn(benchmark: Benchmark, environment: BenchmarkEnvironment, outcome: Outcome) -> list[Mapping[str, float]]:
    """The values, or nothing, in which case the outcome says why."""
    try:
        return [_measure(benchmark, environment)]
    except Missing as missing:
        outcome.skipped[benchmark.name] = str(missing)
    except Exception as error:
        outcome.failed[benchmark.name] = f"{type(error).__name__}: {error}"
    return []


def _measure(benchmark: Benchmark, environment: BenchmarkEnvironment) -> Mapping[str, float]:
    values = benchmark.measure(environment)
    if set(values) != {row.name for row in benchmark.rows}:
        raise RuntimeError(f"{benchmark.name} measured other rows than it declares: {sorted(values)}")
    return values

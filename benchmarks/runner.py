"""Takes turns: in each, every chosen benchmark is measured once, so that a busy moment hits none of them alone."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.figures import Figure, figures_of
from benchmarks.progress import Progress
from benchmarks.rows import Benchmark
from benchmarks.stage import Stage
from tests.servers.tools import Missing


@dataclass
class Outcome:
    """Figures in the order of the catalogue; why others are not there, by benchmark."""

    figures: list[Figure] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    #: somebody pressed Ctrl-C: what was measured until then is here
    interrupted: bool = False

    def has_given_up(self, benchmark: Benchmark) -> bool:
        return benchmark.name in self.skipped or benchmark.name in self.failed


def run(benchmarks: Sequence[Benchmark], stage: Stage, repeats: int, progress: Progress) -> Outcome:
    """What is missing skips a benchmark; one that breaks is left out from then on, and the others go on."""
    turns: dict[str, list[Mapping[str, float]]] = {benchmark.name: [] for benchmark in benchmarks}
    outcome = Outcome()
    try:
        for number in range(1, repeats + 1):
            for benchmark in benchmarks:
                if not (outcome.has_given_up(benchmark) or (benchmark.once and number > 1)):
                    progress.begin(benchmark, number)
                    began = time.monotonic()
                    turns[benchmark.name] += _turn(benchmark, stage, outcome)
                    progress.end(benchmark, time.monotonic() - began)
    except KeyboardInterrupt:
        outcome.interrupted = True
    for benchmark in benchmarks:
        if found := turns[benchmark.name]:
            outcome.figures += figures_of(benchmark.rows, found)
    return outcome


def _turn(benchmark: Benchmark, stage: Stage, outcome: Outcome) -> list[Mapping[str, float]]:
    """Its values, if it has any; otherwise the outcome says why not."""
    try:
        return [_measured(benchmark, stage)]
    except Missing as missing:
        outcome.skipped[benchmark.name] = str(missing)
    except Exception as error:
        outcome.failed[benchmark.name] = f"{type(error).__name__}: {error}"
    return []


def _measured(benchmark: Benchmark, stage: Stage) -> Mapping[str, float]:
    values = benchmark.measure(stage)
    if set(values) != {row.name for row in benchmark.rows}:
        raise RuntimeError(f"{benchmark.name} did not measure what it has rows for: {sorted(values)}")
    return values

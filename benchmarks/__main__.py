"""Measure and print the table: `python -m benchmarks [--only NAME ...] [--repeats N] [--quick]`, or `make bench`.

A missed goal is printed as missed, and the exit code is still 0. It is 1 if a benchmark failed.
"""

import argparse
import signal
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from benchmarks import machine, results
from benchmarks.environment import BenchmarkEnvironment
from benchmarks.progress import Progress
from benchmarks.report import pages, picture, table
from benchmarks.rows import Benchmark
from benchmarks.runner import Outcome, run
from benchmarks.suites import BENCHMARKS, chosen


def arguments_of(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", metavar="NAME", nargs="+", action="extend", default=[], help="only those whose names begin so"
    )
    parser.add_argument("--repeats", metavar="N", type=int, default=3, help="turns (default 3)")
    parser.add_argument("--quick", action="store_true", help="tiny, to check that everything runs; writes no results")
    parser.add_argument(
        "--results", metavar="FILE", type=Path, help=f"where results go (default {_shown(results.LATEST)})"
    )
    parser.add_argument("--list", action="store_true", help="list all benchmarks")
    parser.add_argument("--pages", action="store_true", help="measure nothing; write the latest results to the pages")
    given = parser.parse_args(words)
    if given.repeats < 1:
        parser.error(f"--repeats {given.repeats}: at least 1")
    try:
        given.benchmarks = chosen(given.only)
    except LookupError as error:
        parser.error(f"--only: {error.args[0]}")
    return given


def main(words: list[str]) -> int:
    given = arguments_of(words)
    if given.list:
        print(_listed(given.benchmarks if given.only else BENCHMARKS))
        return 0
    if given.pages:
        pages.write(results.read(results.LATEST))
        return 0
    # Like Ctrl-C: stops the servers and shows what was measured.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began, load = machine.now(), machine.load()
    _warn_if_disturbed(load)
    with BenchmarkEnvironment(quick=given.quick) as environment, Progress(given.benchmarks, given.repeats) as progress:
        outcome = run(given.benchmarks, environment, given.repeats, progress)
    circumstances = results.Circumstances(
        began, machine.now(), load, machine.load(), machine.machine(), machine.versions()
    )
    _show(outcome, circumstances)
    path: Path | None = given.results or (None if given.quick else results.LATEST)
    if path:
        names = [row.name for benchmark in BENCHMARKS for row in benchmark.rows]
        results.write(path, names, outcome.figures, circumstances)
        picture.write(path.with_suffix(".svg"), results.read(path))
        if path == results.LATEST:
            pages.write(results.read(path))
        print(f"written: {_shown(path)} and {_shown(path.with_suffix('.svg'))}")
    return 1 if outcome.failed else 0


def _warn_if_disturbed(load: float) -> None:
    if said := machine.disturbance(load):
        rule = "!" * 120
        print(f"{rule}\n{textwrap.fill(said, 120)}\n{rule}", file=sys.stderr, flush=True)


def _show(outcome: Outcome, circumstances: results.Circumstances) -> None:
    print(table.text(outcome.figures))
    for name, why in outcome.skipped.items():
        print(f"{name} was not measured: {why}")
    for name, why in outcome.failed.items():
        print(f"{name} failed: {why}")
    if outcome.interrupted:
        print("interrupted; these are the results until then")
    missed = sum(figure.met is False for figure in outcome.figures)
    judged = sum(figure.met is not None for figure in outcome.figures)
    print(
        f"{judged - missed} of {judged} goals met; load average {circumstances.load_at_start:g} at the start and "
        f"{circumstances.load_at_end:g} at the end, {circumstances.machine['cores']} cores"
    )
    # Again: the first time it was said before all that a run prints.
    _warn_if_disturbed(circumstances.load_at_start)


def _listed(benchmarks: Sequence[Benchmark]) -> str:
    return "\n".join(
        f"{benchmark.name}: {benchmark.about}{' (only if named)' if benchmark.by_name_only else ''}\n"
        + "\n".join(f"    {row.name} [{row.unit}]{f' {row.goal}' if row.goal else ''}" for row in benchmark.rows)
        for benchmark in benchmarks
    )


def _shown(path: Path) -> str:
    root = Path(__file__).parents[1]
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Measure and print the table: `python -m benchmarks [--only NAME] [--repeats N]`. A missed goal is printed as such."""

import argparse
import sys

from benchmarks.core import BENCHMARKS
from benchmarks.rows import RESULTS, save, table


def main() -> int:
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", metavar="NAME", help=f"one of {', '.join(names)}, or the beginning of some")
    parser.add_argument("--repeats", type=int, default=3, help="times that each is measured (default 3)")
    arguments = parser.parse_args()
    chosen = [benchmark for benchmark in BENCHMARKS if benchmark.name.startswith(arguments.only or "")]
    if not chosen:
        parser.error(f"--only {arguments.only}: there are {', '.join(names)}")
    rows = [benchmark.run(arguments.repeats, _progress) for benchmark in chosen]
    _progress("")
    print(table(rows))
    save(rows)
    print(f"written to {RESULTS.relative_to(RESULTS.parents[2])}")
    return 0


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

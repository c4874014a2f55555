"""Writes the latest results into the pages that people read, after each run and with `python -m benchmarks --pages`.

Only the text between `<!-- figures: WHAT -->` and `<!-- end -->` is generated. `WHAT` is `short` (the table of SHORT),
`all`, `when` (the runs that the rows come from), `load` (the load of the machine), or beginnings of row names.
"""

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import table
from benchmarks.results import Result

_ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "benchmarks/README.md", "docs/performance.md")

#: the short table: a description of each row for readers
SHORT = {
    "kafka-throughput-100b-batch-500-cpu": "sidecar CPU for a million records of 100 B, batches of 500",
    "kafka-throughput-100b-batch-500": "rate of these, through the sidecar",
    "kafka-throughput-100b-memory": "the most memory it took",
    "kafka-latency-p50-added": "latency added at 1,000 a second, p50",
    "kafka-latency-p99-added": "the same, p99",
    "slow-lane-others": "39 lanes while the 40th is slow",
    "dispatch-64": "64 workers of 5 ms, batches of one",
    "batch-handler-500": "a handler of 5 ms + 10 µs a record, 500 at a time against one at a time",
    "recovery-clear-budget": "backlog gone after a stall of a fragile service, with `budget.adaptive` against without",
    "php-processes-16-prefetch-7": "16 PHP processes of 5 ms on one lane, prefetching",
    "pulsar-shared": "rate on Pulsar, type shared",
    "local-throughput": "rate on the embedded broker",
    "cold-start": "cold start",
    "memory-idle": "memory when idle",
}


def write(results: Sequence[Result]) -> None:
    for name in PAGES:
        page = _ROOT / name
        page.write_text(filled(page.read_text("utf-8"), results), "utf-8")


def filled(page: str, results: Sequence[Result]) -> str:
    """The page with every marked part generated from the results."""

    def part(match: re.Match[str]) -> str:
        return f"<!-- figures: {match['what']} -->\n{_part(match['what'], results)}<!-- end -->"

    return re.sub(r"<!-- figures: (?P<what>.+?) -->\n.*?<!-- end -->", part, page, flags=re.DOTALL)


def _part(what: str, results: Sequence[Result]) -> str:
    if what == "short":
        return _short(results)
    if what == "when":
        return _when(results)
    if what == "load":
        return _load(results)
    figures = [result.figure for result in results]
    if what != "all":
        figures = [figure for figure in figures if figure.row.name.startswith(tuple(what.split()))]
    return table.markdown(figures)


def _short(results: Sequence[Result]) -> str:
    found = {result.figure.row.name: result.figure for result in results}
    lines = ["| what | median | of its baseline | goal | |", "|---|---|---|---|---|"]
    for name, said in SHORT.items():
        if name in found:
            _, value, unit, spread, _, goal, verdict = table.cells(found[name])
            share = found[name].of_baseline
            compared = "" if share is None else f"{share:.2f}"
            lines.append(f"| {said} | {value} {unit} ({spread}) | {compared} | {goal} | {verdict} |")
    return "\n".join(lines) + "\n"


def _when(results: Sequence[Result]) -> str:
    """One line for each run."""
    runs: dict[str, list[Result]] = {}
    for result in results:
        runs.setdefault(result.circumstances.began, []).append(result)
    lines = []
    for began, of_it in sorted(runs.items()):
        one = of_it[0].circumstances
        versions = ", ".join(f"{name} {version}" for name, version in one.versions.items())
        text = (
            f"- {len(of_it)} rows from {began} to {one.ended}: load average {one.load_at_start:g} at the start, "
            f"{one.load_at_end:g} at the end; {one.machine['cores']} cores, {one.machine['processor']}, "
            f"{one.machine['memory_gb']} GB; {versions}."
        )
        lines += textwrap.wrap(text, 120, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def _load(results: Sequence[Result]) -> str:
    """How far the figures can be trusted."""
    seen = [load for one in results for load in (one.circumstances.load_at_start, one.circumstances.load_at_end)]
    cores = int(str(results[0].circumstances.machine["cores"]))
    said = f"Measured on {cores} cores under a load average of {min(seen):g} to {max(seen):g}."
    # A run keeps its own machine busy: servers, sidecar and client share it.
    if max(seen) > 3 * cores:
        said += (
            " **That is far more than the benchmarks cause themselves: the machine was busy with other work.** "
            "Processor time and memory are still valid, rates are lower bounds, and latencies are not valid."
        )
    return said + "\n"

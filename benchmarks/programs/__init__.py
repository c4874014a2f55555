"""The processes that benchmarks start: consumers, producers, a service behind a handler. Each prints one line of JSON.

result = run("worker", sidecar.address, "--workers", 4, "--records", 1000)
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.rows import Goal, Row
from benchmarks.sidecar import TIMEOUT, Sidecar


def command(program: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", f"benchmarks.programs.{program}", *map(str, arguments)]


def run(program: str, *arguments: object, packages: Path | None = None) -> dict[str, Any]:
    """Run a program and return what it printed. `packages` is a folder of packages that precede the installed ones."""
    done = subprocess.run(
        command(program, *arguments),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT * 4,
        env={**os.environ, "PYTHONPATH": str(packages)} if packages else None,
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def consume(row: str, sidecar: Sidecar, *arguments: object) -> dict[str, float]:
    """Let a worker consume through a sidecar. Returns three rows: the rate under this name; with `-cpu` added, the CPU
    seconds of the sidecar per million records; with `-client` added, the share of a core that the client used."""
    before = sidecar.cpu_seconds
    done = run("worker", sidecar.address, *arguments)
    used = sidecar.cpu_seconds - before
    return {
        row: done["records"] / done["seconds"],
        f"{row}-cpu": used / done["records"] * 1e6,
        f"{row}-client": done["busy"],
    }


def consume_rows(
    name: str, *, goal: Goal | None = None, cpu_goal: Goal | None = None, baseline: str = ""
) -> tuple[Row, Row, Row]:
    """The rows of `consume`. `baseline` is that of the rate; the row of its processor time has `-cpu` added."""
    return (
        Row(name, "records/s", goal, baseline),
        Row(f"{name}-cpu", "CPU s per million", cpu_goal, baseline and f"{baseline}-cpu"),
        Row(f"{name}-client", "of a core: the client"),
    )


@contextmanager
def running(*words: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that is terminated at the end of the block, unless it has ended."""
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()


def results_of(processes: Sequence["subprocess.Popen[str]"]) -> list[dict[str, Any]]:
    """What these processes printed, once all have ended."""
    return [json.loads(process.communicate(timeout=TIMEOUT)[0]) for process in processes]


def print_result(**values: float) -> None:
    print(json.dumps(values), flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]

"""Processes that a benchmark starts: consumers, producers, what is behind a handler. Each prints one line of JSON.

said = run("worker", sidecar.address, "--workers", 4, "--records", 1000)
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.sidecar import PATIENCE


def command(program: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", f"benchmarks.programs.{program}", *map(str, arguments)]


def run(program: str, *arguments: object, packages: Path | None = None) -> dict[str, Any]:
    """What a program says when it is done. `packages` is a folder of those that it uses before the installed ones."""
    done = subprocess.run(
        command(program, *arguments),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE * 4,
        env={**os.environ, "PYTHONPATH": str(packages)} if packages else None,
    )
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@contextmanager
def running(*words: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that is ended with the block, if it has not ended by itself."""
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=PATIENCE)
        finally:
            process.kill()


def say(**values: float) -> None:
    print(json.dumps(values))

"""The client of each language, and PHP processes that share one lane."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.environment import BenchmarkEnvironment
from benchmarks.rows import Benchmark, Row, at_least, at_most
from benchmarks.sidecar import TIMEOUT, Sidecar
from tests.servers.tools import Missing

ROOT = Path(__file__).parents[2]
JAR = ROOT / "clients/java/scenarios/target/offramp-scenarios.jar"
_RECORDS, _SIZE = 150_000, 1_024
#: seconds per batch of the PHP processes, as in clients/php/tests/bench_handler.php
_WORK = 0.005
#: seconds that are counted once all processes work
_WINDOW = 2.0
_ONE_LANE_RECORDS = 30_000
#: by client
_CPU_GOALS = {"python": at_most(1.2), "python-aio": at_most(1.2)}
#: by number of processes and prefetch; of all others
_IDEAL_GOALS, _IDEAL_GOAL = {(16, 0): at_least(0.9)}, at_least(0.8)

#: each takes a subscription and a number of records, and prints one line of JSON
PROGRAMS: Mapping[str, Sequence[str]] = {
    "python": (sys.executable, "-m", "benchmarks.programs.client", "threads"),
    "python-aio": (sys.executable, "-m", "benchmarks.programs.client", "tasks"),
    "php": ("php", "clients/php/tests/bench.php"),
    "java": ("java", "-cp", str(JAR), "io.offramp.scenarios.Bench"),
}


def rate(client: str, environment: BenchmarkEnvironment) -> Mapping[str, float]:
    _check(client)
    records = environment.records(_RECORDS)
    topic = environment.local_topic(lanes=4, records=records, size=_SIZE)
    with environment.on_local(topic) as sidecar:
        done = subprocess.run(
            [*PROGRAMS[client], "bench", str(records)],
            cwd=ROOT,
            env=_environment(sidecar),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT,
        )
    result = json.loads(done.stdout)
    return {
        f"client-{client}": result["records"] / result["seconds"],
        f"client-{client}-cpu": result["cpu_seconds"] / result["records"] * 1e6,
    }


def processes(count: int, prefetch: int, environment: BenchmarkEnvironment) -> Mapping[str, float]:
    _check("php")
    topic = environment.local_topic(lanes=1, records=environment.records(_ONE_LANE_RECORDS), size=_SIZE)
    options = ("-s", "bench", "-p", str(count), "--prefetch", str(prefetch))
    with environment.on_local(topic, lanes=1, batch={"records": 1}) as sidecar:
        workers = subprocess.Popen(
            ["php", "clients/php/bin/offramp-worker", *options, "clients/php/tests/bench_handler.php"],
            cwd=ROOT,
            env=_environment(sidecar),
            stderr=subprocess.DEVNULL,
        )
        try:
            sidecar.until(
                lambda status: len(status.sessions) >= count and status.counters.acked > count,
                f"work of {count} PHP processes",
            )
            before, cpu, began = sidecar.status().counters.acked, sidecar.cpu_seconds, time.perf_counter()
            time.sleep(environment.seconds(_WINDOW))
            acked = sidecar.status().counters.acked - before
            seconds, used = time.perf_counter() - began, sidecar.cpu_seconds - cpu
        finally:
            workers.send_signal(signal.SIGTERM)
            workers.wait(TIMEOUT)
    name = _name(count, prefetch)
    return {name: acked / seconds / (count / _WORK), f"{name}-cpu": used / max(1, acked) * 1e6}


def _check(client: str) -> None:
    if client == "php" and not shutil.which("php"):
        raise Missing("PHP is not installed: run `make php`")
    if client == "java" and not (shutil.which("java") and JAR.exists()):
        raise Missing("the Java client is not built: run `make java`")


def _environment(sidecar: Sidecar) -> dict[str, str]:
    return {**os.environ, "OFFRAMP_ADDRESS": sidecar.address}


def _name(count: int, prefetch: int) -> str:
    return f"php-processes-{count}" + (f"-prefetch-{prefetch}" if prefetch else "")


_CLIENTS = tuple(
    Benchmark(
        f"client-{client}",
        f"{_RECORDS:,} records of 1 KiB, batches of 500, one process with one worker, embedded broker",
        (
            Row(f"client-{client}", "records/s"),
            Row(f"client-{client}-cpu", "CPU µs a record: the client", _CPU_GOALS.get(client)),
        ),
        partial(rate, client),
        seconds=5.0,
        preparation=3.0 if client == "python" else 0.0,
    )
    for client in PROGRAMS
)

_PROCESSES = tuple(
    Benchmark(
        _name(count, prefetch),
        f"{count} PHP processes of 5 ms on one lane, batches of one"
        + (f", up to {prefetch} more with each call" if prefetch else ""),
        (
            Row(_name(count, prefetch), "of the ideal", _IDEAL_GOALS.get((count, prefetch), _IDEAL_GOAL)),
            Row(f"{_name(count, prefetch)}-cpu", "CPU µs a batch"),
        ),
        partial(processes, count, prefetch),
        seconds=4.0,
    )
    for prefetch in (0, 7)
    for count in (1, 4, 16)
)

BENCHMARKS = _CLIENTS + _PROCESSES

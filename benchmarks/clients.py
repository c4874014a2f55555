"""Measure the clients: `python -m benchmarks.clients [--only NAME] [--repeats N]`.

Each client in turn, and all of them again, so that a busy moment of the machine hits none of them alone.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

import offramp
from benchmarks.rows import Goal, Row, table
from benchmarks.running import Sidecar
from offramp.v1 import admin_pb2, admin_pb2_grpc

ROOT = Path(__file__).parents[1]
RECORDS, SIZE, BATCH = 200_000, 1_024, 500
#: seconds that a handler of the PHP processes takes, as in clients/php/tests/bench_handler.php
WORK = 0.005
#: seconds of work in full swing that are measured
WINDOW = 3.0
_PATIENCE = 300.0
_JAR = ROOT / "clients/java/scenarios/target/offramp-scenarios.jar"

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Measured:
    """What is measured of one client. `missing` says in a sentence why it cannot be."""

    name: str
    measure: Callable[[], Figures]
    missing: str = ""


def consuming(*command: str) -> Figures:
    """Records a second and CPU of one client process, alone with a sidecar."""
    with Sidecar(BATCH) as sidecar:
        sidecar.publish(RECORDS, SIZE)
        environment = {**os.environ, "OFFRAMP_ADDRESS": sidecar.address}
        done = subprocess.run(
            [*command, "bench", str(RECORDS)],
            cwd=ROOT,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
        )
    said = json.loads(done.stdout)
    return {
        "records/s": said["records"] / said["seconds"],
        "CPU µs a record": said["cpu_seconds"] / said["records"] * 1e6,
    }


def php_processes(processes: int, prefetch: int) -> Figures:
    """The rate of processes that each take 5 ms for a batch of one record, all on one lane, as a share of the most that
    they could do."""
    command = [
        "php",
        "clients/php/bin/offramp-worker",
        "-s",
        "bench",
        "-p",
        str(processes),
        "--prefetch",
        str(prefetch),
    ]
    ideal = processes / WORK
    with Sidecar(1) as sidecar:
        messages = [offramp.Message(b"x" * SIZE, lane=0)] * 1_000
        with offramp.Publisher(broker="local", address=sidecar.address) as publisher:
            for _ in range(int(ideal * WINDOW * 2 / len(messages)) + 1):
                publisher.publish_many("bench", messages)
        environment = {**os.environ, "OFFRAMP_ADDRESS": sidecar.address}
        workers = subprocess.Popen(
            [*command, "clients/php/tests/bench_handler.php"], cwd=ROOT, env=environment, stderr=subprocess.DEVNULL
        )
        try:
            with admin(sidecar) as status:
                _until(lambda: len(status().sessions) == processes and status().counters.acked > processes)
                before, began = status().counters.acked, time.perf_counter()
                time.sleep(WINDOW)
                rate = (status().counters.acked - before) / (time.perf_counter() - began)
        finally:
            workers.send_signal(signal.SIGTERM)
            workers.wait(_PATIENCE)
    return {"of the ideal": rate / ideal}


@contextmanager
def admin(sidecar: Sidecar) -> Iterator[Callable[[], admin_pb2.SubscriptionStatus]]:
    with grpc.insecure_channel(sidecar.address) as channel:
        stub = admin_pb2_grpc.AdminServiceStub(channel)  # type: ignore[no-untyped-call]
        yield lambda: stub.GetStatus(admin_pb2.GetStatusRequest(subscription="bench")).status.subscriptions[0]


def clients() -> list[Measured]:
    no_php = "" if shutil.which("php") else "PHP is not installed: run `make php`"
    no_java = "" if shutil.which("java") and _JAR.exists() else "the Java client is not built: run `make java`"
    python = (sys.executable, "-m", "benchmarks.clients_python")
    java = ("java", "-cp", str(_JAR), "io.offramp.scenarios.Bench")
    # Java's program takes the number of workers at the end and has one if it is not told.
    rates = [
        Measured("python", lambda: consuming(*python, "threads")),
        Measured("python-aio", lambda: consuming(*python, "tasks")),
        Measured("php", lambda: consuming("php", "clients/php/tests/bench.php"), no_php),
        Measured("java", lambda: consuming(*java), no_java),
    ]
    shares = [
        Measured(f"php-{count}-processes" + (f"-prefetch-{more}" if more else ""), _share(count, more), no_php)
        for more in (0, 7)
        for count in (1, 4, 16)
    ]
    return rates + shares


def _share(processes: int, prefetch: int) -> Callable[[], Figures]:
    return lambda: php_processes(processes, prefetch)


def _until(look: Callable[[], bool]) -> None:
    ends = time.monotonic() + _PATIENCE
    while not look():
        if time.monotonic() > ends:
            raise RuntimeError("the workers did not start")
        time.sleep(0.01)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clients", description=__doc__)
    parser.add_argument("--only", metavar="NAME", default="", help="those whose names begin so")
    parser.add_argument("--repeats", type=int, default=3, help="times that each is measured (default 3)")
    arguments = parser.parse_args()
    chosen = [one for one in clients() if one.name.startswith(arguments.only)]
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(1, arguments.repeats + 1):
        for one in chosen:
            if not one.missing:
                print(f"{one.name}: {number} of {arguments.repeats}", file=sys.stderr)
                for unit, value in one.measure().items():
                    found[one.name, unit].append(value)
    rows = [
        Row(name, unit, statistics.median(values), tuple(values), Goal(0.8, True) if unit == "of the ideal" else None)
        for (name, unit), values in found.items()
    ]
    print(table(rows))
    for one in chosen:
        if one.missing:
            print(f"{one.name} was not measured: {one.missing}")
    load = os.getloadavg()
    print(
        f"load average of the machine at the end: {load[0]:.1f} (1 min), {load[1]:.1f} (5 min), {os.cpu_count()} cores"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

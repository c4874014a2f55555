"""`make bench` runs: every benchmark once, tiny, so that none breaks unseen. The figures are not judged.

Those with Spark are in tests/spark/test_benchmarks.py.
"""

import json
import subprocess
import sys
from functools import cached_property
from pathlib import Path

import pytest

from benchmarks.environment import BenchmarkEnvironment
from benchmarks.rows import Benchmark
from benchmarks.suites import BENCHMARKS
from tests.servers import sharing
from tests.servers.kafka import KafkaServer
from tests.servers.pulsar import PulsarServer
from tests.servers.tools import Missing, give_up

#: played by the command
ROWS = ("start", "local-throughput")


class SharedServers(BenchmarkEnvironment):
    """With the servers of this test run."""

    @cached_property
    def kafka(self) -> KafkaServer:
        return sharing.kafka()

    @cached_property
    def pulsar(self) -> PulsarServer:
        return sharing.pulsar()


def test_the_command_writes_what_it_measured(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--repeats", "1", "--results", str(path)]
    done = subprocess.run([*command, "--only", *ROWS], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["name"]: row["value"] for row in json.loads(path.read_text())["rows"]}
    assert {"cold-start", "memory-idle", "local-throughput"} <= set(rows)
    assert all(value > 0 for name, value in rows.items() if not name.endswith(("-cpu", "-client")))
    assert path.with_suffix(".svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    "benchmark",
    [pytest.param(one, id=one.name) for one in BENCHMARKS if one.name not in ROWS and not one.name.startswith("spark")],
)
def test_every_benchmark_measures_the_rows_that_it_declares(benchmark: Benchmark) -> None:
    with SharedServers(quick=True) as environment:
        try:
            found = benchmark.measure(environment)
        except Missing as missing:
            give_up(missing)
    assert set(found) == {row.name for row in benchmark.rows}

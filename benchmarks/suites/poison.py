"""What one record in a hundred that always fails costs the good ones, in rate and in latency."""

import json
import time
from collections.abc import Mapping

import offramp
from benchmarks.environment import BenchmarkEnvironment
from benchmarks.programs import command, running
from benchmarks.programs.poisoned import BAD
from benchmarks.rows import Benchmark, Row, at_least, at_most

#: good records per second, and in how many portions
_RATE, _PORTIONS = 500, 100
_SECONDS = 5.0
_WORKERS, _WORK = 16, 0.005
_EVERY = 100


def measure(environment: BenchmarkEnvironment) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for name, every in {"without": 0, "beside": _EVERY}.items():
        done = _consume(environment, every)
        found |= {f"poison-{kind}-{name}": done[kind] for kind in ("rate", "p99")}
    return found


def _consume(environment: BenchmarkEnvironment, every: int) -> dict[str, float]:
    """`every`: after this many good records comes a bad one; 0: never."""
    topic = f"poison-{time.time_ns()}"
    records = int(environment.seconds(_SECONDS) * _RATE)
    with (
        environment.on_local(topic, batch={"records": 1}) as sidecar,
        offramp.Publisher(broker="local", address=sidecar.address) as publisher,
        running(*command("poisoned", sidecar.address, records, _WORKERS, _WORK)) as worker,
    ):
        assert worker.stdout is not None
        worker.stdout.readline()
        _publish(publisher, topic, records, every)
        done: dict[str, float] = json.loads(worker.stdout.readline())
    return done


def _publish(publisher: offramp.Publisher, topic: str, records: int, every: int) -> None:
    began = time.monotonic()
    for number in range(0, records, _RATE // _PORTIONS):
        time.sleep(max(0.0, began + number / _RATE - time.monotonic()))
        portion = []
        for each in range(number, min(number + _RATE // _PORTIONS, records)):
            portion.append(offramp.Message(str(time.monotonic_ns()).encode()))
            if every and each % every == 0:
                portion.append(offramp.Message(BAD))
        publisher.publish_many(topic, portion)


BENCHMARKS = (
    Benchmark(
        "poison",
        f"{_RATE} good records a second, and for every {_EVERY}th a bad one; {_WORKERS} workers of 5 ms, one at a time",
        (
            Row("poison-rate-without", "good records/s"),
            Row(
                "poison-rate-beside",
                "good records/s",
                at_least(0.95, of_baseline=True),
                baseline="poison-rate-without",
            ),
            Row("poison-p99-without", "ms, p99"),
            Row("poison-p99-beside", "ms, p99", at_most(2, of_baseline=True), baseline="poison-p99-without"),
        ),
        measure,
        seconds=14.0,
        by_name_only=True,
    ),
)

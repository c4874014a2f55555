"""Batches of one record to workers that take 5 ms each, as a share of what so many workers could do at most."""

from collections.abc import Mapping
from functools import partial

from benchmarks.environment import BenchmarkEnvironment
from benchmarks.programs import run
from benchmarks.rows import Benchmark, Row, at_least

_WORK = 0.005
_SECONDS = 2.0
#: more than can be dispatched in that time
_RECORDS = 60_000
_GOALS = {64: at_least(0.7)}


def measure(workers: int, environment: BenchmarkEnvironment) -> Mapping[str, float]:
    topic = environment.local_topic(lanes=4, records=environment.records(_RECORDS), size=100)
    with environment.on_local(topic, batch={"records": 1}) as sidecar:
        before = sidecar.cpu_seconds
        # The topic of a quick run ends before the time does.
        limit = min(environment.records(_RECORDS), int(workers / _WORK * _SECONDS))
        arguments = (
            "--workers",
            workers,
            "--work",
            _WORK,
            "--seconds",
            environment.seconds(_SECONDS),
            "--records",
            limit,
        )
        done = run("worker", sidecar.address, *arguments)
        used = sidecar.cpu_seconds - before
    return {
        f"dispatch-{workers}": done["batches"] / done["seconds"] / (workers / _WORK),
        f"dispatch-{workers}-cpu": used / done["batches"] * 1e6,
        f"dispatch-{workers}-client": done["busy"],
    }


BENCHMARKS = tuple(
    Benchmark(
        f"dispatch-{workers}",
        f"batches of one record to {workers} workers of 5 ms on one stream, embedded broker",
        (
            Row(f"dispatch-{workers}", "of the ideal", _GOALS.get(workers)),
            Row(f"dispatch-{workers}-cpu", "CPU µs a batch"),
            Row(f"dispatch-{workers}-client", "of a core: the client"),
        ),
        partial(measure, workers),
        seconds=4.0,
        preparation=2.0 if workers == 1 else 0.0,
    )
    for workers in (1, 16, 64, 256)
)

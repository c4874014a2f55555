"""Batches of one record: what they cost, and how many workers of 5 ms get of what they could do at most."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial

from benchmarks.environment import BenchmarkEnvironment
from benchmarks.programs import command, results_of, run, running
from benchmarks.rows import Benchmark, Row, at_least, at_most
from benchmarks.sidecar import Sidecar

_WORK = 0.005
_SECONDS = 2.0
#: more than can be dispatched in that time
_RECORDS = 200_000
_GOALS = {64: at_least(0.93)}

#: without work, by the number of workers: records, and the goals in CPU µs a batch of the sidecar and of the client
_ONES = {1: 10_000, 256: 50_000}
_ONES_GOALS = {1: at_most(30), 256: at_most(10)}
_ONES_CLIENT_GOALS = {256: at_most(10)}

#: so that the client is not the limit
_PROCESSES = 4


def _sidecar(environment: BenchmarkEnvironment) -> Sidecar:
    topic = environment.local_topic(lanes=4, records=environment.records(_RECORDS), size=100)
    return environment.on_local(topic, batch={"records": 1})


def _words(sidecar: Sidecar, environment: BenchmarkEnvironment, workers: int, most: int) -> tuple[object, ...]:
    """The arguments of a worker. `most`: records that are left for it, since the topic of a quick run ends before the
    time does."""
    limit = min(most, int(workers / _WORK * _SECONDS))
    until = ("--seconds", environment.seconds(_SECONDS), "--records", limit)
    return (sidecar.address, "--workers", workers, "--work", _WORK, *until)


def measure(workers: int, environment: BenchmarkEnvironment) -> Mapping[str, float]:
    with _sidecar(environment) as sidecar:
        before = sidecar.cpu_seconds
        done = run("worker", *_words(sidecar, environment, workers, environment.records(_RECORDS)))
        used = sidecar.cpu_seconds - before
    return {
        f"dispatch-{workers}": done["batches"] / done["seconds"] / (workers / _WORK),
        f"dispatch-{workers}-cpu": used / done["batches"] * 1e6,
        f"dispatch-{workers}-client": done["busy"],
    }


def by_processes(workers: int, environment: BenchmarkEnvironment) -> Mapping[str, float]:
    # What one has in hand when it has counted enough is acked, and counted by nobody.
    most = environment.records(_RECORDS) // (2 * _PROCESSES)
    with _sidecar(environment) as sidecar, ExitStack() as all_of_them:
        words = command("worker", *_words(sidecar, environment, workers // _PROCESSES, most))
        done = results_of([all_of_them.enter_context(running(*words)) for _ in range(_PROCESSES)])
    rate = sum(one["batches"] / one["seconds"] for one in done)
    name = f"dispatch-{workers}-processes"
    return {name: rate / (workers / _WORK), f"{name}-client": sum(one["busy"] for one in done)}


def ones(workers: int, environment: BenchmarkEnvironment) -> Mapping[str, float]:
    with _sidecar(environment) as sidecar:
        before = sidecar.cpu_seconds
        done = run("worker", sidecar.address, "--workers", workers, "--records", environment.records(_ONES[workers]))
        used = sidecar.cpu_seconds - before
    return {
        f"batch-of-one-{workers}-cpu": used / done["batches"] * 1e6,
        f"batch-of-one-{workers}-client-cpu": done["cpu"] / done["batches"] * 1e6,
    }


BENCHMARKS = (
    *(
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
            preparation=3.0 if workers == 1 else 0.0,
        )
        for workers in (1, 16, 64, 256)
    ),
    Benchmark(
        "dispatch-256-processes",
        f"the same to 256 workers in {_PROCESSES} processes",
        (
            Row("dispatch-256-processes", "of the ideal", at_least(0.9)),
            Row("dispatch-256-processes-client", "of a core: the clients"),
        ),
        partial(by_processes, 256),
        seconds=4.0,
    ),
    *(
        Benchmark(
            f"batch-of-one-{workers}",
            f"{_ONES[workers]:,} batches of one record to {workers} workers that do nothing, embedded broker",
            (
                Row(f"batch-of-one-{workers}-cpu", "CPU µs a batch", _ONES_GOALS[workers]),
                Row(
                    f"batch-of-one-{workers}-client-cpu",
                    "CPU µs a batch: the client",
                    _ONES_CLIENT_GOALS.get(workers),
                ),
            ),
            partial(ones, workers),
            seconds=3.0,
        )
        for workers in _ONES
    ),
)

"""A handler that gains from batches, with 5 ms per batch and 10 µs per record, with and without batches."""

from collections.abc import Mapping

from benchmarks.environment import BenchmarkEnvironment
from benchmarks.programs import consume
from benchmarks.rows import Benchmark, Row

_WORKERS = 16
_WORK, _WORK_A_RECORD = 0.005, 0.000_01
_SECONDS = 2.0
_RECORDS = 500_000


def measure(environment: BenchmarkEnvironment) -> Mapping[str, float]:
    records = environment.records(_RECORDS)
    topic = environment.local_topic(lanes=4, records=records, size=100)
    found = {}
    for batch in (1, 500):
        with environment.on_local(topic, batch={"records": batch}) as sidecar:
            work = ("--work", _WORK, "--work-a-record", _WORK_A_RECORD)
            until = ("--seconds", environment.seconds(_SECONDS), "--records", records)
            name = f"batch-handler-{batch}"
            found[name] = consume(name, sidecar, "--workers", _WORKERS, *work, *until)[name]
    return found


BENCHMARKS = (
    Benchmark(
        "batch-handler",
        f"{_WORKERS} workers that take 5 ms for a batch and 10 µs for each record of it, embedded broker",
        (
            Row("batch-handler-1", "records/s, one at a time"),
            Row("batch-handler-500", "records/s, 500 at a time", baseline="batch-handler-1"),
        ),
        measure,
        seconds=9.0,
        preparation=3.0,
    ),
)

"""What a record costs the sidecar with ten times as many lanes, workers or waiting records."""

from collections.abc import Mapping

from benchmarks.environment import BenchmarkEnvironment
from benchmarks.programs import consume
from benchmarks.rows import Benchmark, Row, at_most

_RECORDS = 50_000
#: records per batch; a smaller batch for the workers, so that there is enough for all of them
_BATCH, _SMALL_BATCH = 500, 20
_GOAL = at_most(1.1, of_baseline=True)


def _cost(
    environment: BenchmarkEnvironment, *, records: int = _RECORDS, lanes: int = 8, workers: int = 4, batch: int = _BATCH
) -> float:
    """CPU seconds for a million records."""
    records = environment.records(records)
    topic = environment.kafka_topic(lanes=lanes, records=records, size=100)
    with environment.on_kafka(topic, batch={"records": batch}) as sidecar:
        return consume("growth", sidecar, "--workers", workers, "--records", records)["growth-cpu"]


def measure(environment: BenchmarkEnvironment) -> Mapping[str, float]:
    return {
        "growth-base": _cost(environment),
        "growth-lanes": _cost(environment, lanes=80),
        "growth-backlog": _cost(environment, records=10 * _RECORDS),
        "growth-workers-base": _cost(environment, workers=16, batch=_SMALL_BATCH),
        "growth-workers": _cost(environment, workers=160, batch=_SMALL_BATCH),
    }


BENCHMARKS = (
    Benchmark(
        "growth",
        f"{_RECORDS:,} records of 100 B on 8 lanes of Kafka, and ten times as many lanes, records or workers",
        (
            Row("growth-base", "CPU s per million, 8 lanes"),
            Row("growth-lanes", "CPU s per million, 80 lanes", _GOAL, baseline="growth-base"),
            Row("growth-backlog", "CPU s per million, 10 times the backlog", _GOAL, baseline="growth-base"),
            Row("growth-workers-base", "CPU s per million, 16 workers"),
            Row("growth-workers", "CPU s per million, 160 workers", _GOAL, baseline="growth-workers-base"),
        ),
        measure,
        seconds=20.0,
        preparation=10.0,
    ),
)

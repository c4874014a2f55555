"""What a record costs the sidecar with ten times as many lanes, workers or waiting records."""

from collections.abc import Mapping

from benchmarks.programs import consume
from benchmarks.rows import Benchmark, Row
from benchmarks.stage import Stage

_RECORDS = 50_000
#: records per batch; a smaller batch for the workers, so that there is enough for all of them
_BATCH, _SMALL_BATCH = 500, 20


def _cost(stage: Stage, *, records: int = _RECORDS, lanes: int = 8, workers: int = 4, batch: int = _BATCH) -> float:
    """CPU seconds for a million records."""
    records = stage.records(records)
    topic = stage.kafka_topic(lanes=lanes, records=records, size=100)
    with stage.on_kafka(topic, batch={"records": batch}) as sidecar:
        return consume("growth", sidecar, "--workers", workers, "--records", records)["growth-cpu"]


def measure(stage: Stage) -> Mapping[str, float]:
    return {
        "growth-base": _cost(stage),
        "growth-lanes": _cost(stage, lanes=80),
        "growth-backlog": _cost(stage, records=10 * _RECORDS),
        "growth-workers-base": _cost(stage, workers=16, batch=_SMALL_BATCH),
        "growth-workers": _cost(stage, workers=160, batch=_SMALL_BATCH),
    }


BENCHMARKS = (
    Benchmark(
        "growth",
        f"{_RECORDS:,} records of 100 B on 8 lanes of Kafka, and ten times as many lanes, records or workers",
        (
            Row("growth-base", "CPU s per million, 8 lanes"),
            Row("growth-lanes", "CPU s per million, 80 lanes", baseline="growth-base"),
            Row("growth-backlog", "CPU s per million, 10 times the backlog", baseline="growth-base"),
            Row("growth-workers-base", "CPU s per million, 16 workers"),
            Row("growth-workers", "CPU s per million, 160 workers", baseline="growth-workers-base"),
        ),
        measure,
        seconds=22.0,
        preparation=10.0,
    ),
)

"""A sidecar on Kafka beside a direct, tuned consumer of the same topic: rate, processor time, memory."""

from collections.abc import Mapping
from functools import partial

from benchmarks.environment import BenchmarkEnvironment
from benchmarks.programs import consume, consume_rows, run
from benchmarks.rows import Benchmark, Row, at_least, at_most

_LANES = 8
_WORKERS = 4
#: a batch is what is available: without waiting, and limited by bytes alone
ADAPTIVE = 10_000

_SIZES = {"100b": 100, "1k": 1_024, "100k": 102_400}
_RECORDS = {"100b": 500_000, "1k": 200_000, "100k": 2_500}
#: for batches of one, which cost much more
_FEW_RECORDS = {"100b": 20_000, "1k": 20_000, "100k": 2_500}
#: A batch is full at 1 MiB, so ten records of 100 KiB are the largest one.
_BATCHES = {"100b": (1, 100, 500, ADAPTIVE), "1k": (1, 100, 500, ADAPTIVE), "100k": (1, 500)}

#: by size and batch
_GOALS = {("100b", 500): at_least(0.6, of_baseline=True), ("1k", 500): at_least(0.5, of_baseline=True)}
_CPU_GOALS = {("100b", 500): at_most(1.3, of_baseline=True), ("1k", 500): at_most(1.5, of_baseline=True)}
_MEMORY_GOALS = {"100b": at_most(112), "1k": at_most(200)}


def _name(size: str, batch: int) -> str:
    return f"kafka-throughput-{size}-" + ("batch-adaptive" if batch == ADAPTIVE else f"batch-{batch}")


def measure(size: str, environment: BenchmarkEnvironment) -> Mapping[str, float]:
    found: dict[str, float] = {}
    records = environment.records(_RECORDS[size])
    topic = environment.kafka_topic(lanes=_LANES, records=records, size=_SIZES[size])
    direct = run("direct_kafka", environment.kafka.bootstrap, topic, records)
    found[f"kafka-throughput-{size}-direct"] = direct["records"] / direct["seconds"]
    found[f"kafka-throughput-{size}-direct-cpu"] = direct["cpu"] / direct["records"] * 1e6
    most = 0.0
    for batch in _BATCHES[size]:
        records = environment.records(_FEW_RECORDS[size] if batch == 1 else _RECORDS[size])
        topic = environment.kafka_topic(lanes=_LANES, records=records, size=_SIZES[size])
        with environment.on_kafka(topic, batch={"records": batch}) as sidecar:
            found |= consume(_name(size, batch), sidecar, "--workers", _WORKERS, "--records", records)
            most = max(most, sidecar.most_resident_mb)
    found[f"kafka-throughput-{size}-memory"] = most
    return found


def _rows(size: str) -> tuple[Row, ...]:
    direct = f"kafka-throughput-{size}-direct"
    rows = [Row(direct, "records/s"), Row(f"{direct}-cpu", "CPU s per million")]
    for batch in _BATCHES[size]:
        goal, cpu_goal = _GOALS.get((size, batch)), _CPU_GOALS.get((size, batch))
        rows += consume_rows(_name(size, batch), goal=goal, cpu_goal=cpu_goal, baseline=direct)
    return (*rows, Row(f"kafka-throughput-{size}-memory", "MB resident at most", _MEMORY_GOALS.get(size)))


BENCHMARKS = tuple(
    Benchmark(
        f"kafka-throughput-{size}",
        f"{_RECORDS[size]:,} records of {_SIZES[size]:,} B in {_LANES} lanes of Kafka, direct and through a sidecar",
        _rows(size),
        partial(measure, size),
        seconds={"100b": 24.0, "1k": 20.0, "100k": 12.0}[size],
        preparation={"100b": 12.0, "1k": 3.0, "100k": 3.0}[size],
    )
    for size in _SIZES
)

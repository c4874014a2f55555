"""A sidecar on NATS beside a direct consumer of the same stream."""

from collections.abc import Mapping

from benchmarks.environment import BenchmarkEnvironment
from benchmarks.programs import consume, consume_rows, run
from benchmarks.rows import Benchmark, Row, at_least, at_most

_LANES = 4
_RECORDS = 200_000


def measure(environment: BenchmarkEnvironment) -> Mapping[str, float]:
    records = environment.records(_RECORDS)
    topic = environment.nats_topic(lanes=_LANES, records=records, size=100)
    direct = run("direct_nats", environment.nats.url, topic, _LANES, records)
    with environment.on_nats(topic) as sidecar:
        found = consume("nats", sidecar, "--records", records)
    return found | {
        "nats-direct": direct["records"] / direct["seconds"],
        "nats-direct-cpu": direct["cpu"] / direct["records"] * 1e6,
    }


BENCHMARKS = (
    Benchmark(
        "nats",
        f"{_RECORDS:,} records of 100 B in {_LANES} lanes of a stream of NATS, batches of 500",
        (
            Row("nats-direct", "records/s"),
            Row("nats-direct-cpu", "CPU s per million"),
            *consume_rows(
                "nats",
                goal=at_least(0.5, of_baseline=True),
                cpu_goal=at_most(2.0, of_baseline=True),
                baseline="nats-direct",
            ),
        ),
        measure,
        seconds=10.0,
        preparation=10.0,
        # A quarter of an hour is enough for all others.
        by_name_only=True,
    ),
)

"""A sidecar on Redis beside a direct consumer of the same streams."""

from collections.abc import Mapping

from benchmarks.environment import BenchmarkEnvironment
from benchmarks.programs import consume, consume_rows, run
from benchmarks.rows import Benchmark, Row, at_least, at_most

_LANES = 4
_RECORDS = 200_000


def measure(environment: BenchmarkEnvironment) -> Mapping[str, float]:
    records = environment.records(_RECORDS)
    topic = environment.redis_topic(lanes=_LANES, records=records, size=100)
    direct = run("direct_redis", environment.redis.port, topic, _LANES, records)
    with environment.on_redis(topic) as sidecar:
        found = consume("redis", sidecar, "--records", records)
    return found | {
        "redis-direct": direct["records"] / direct["seconds"],
        "redis-direct-cpu": direct["cpu"] / direct["records"] * 1e6,
    }


BENCHMARKS = (
    Benchmark(
        "redis",
        f"{_RECORDS:,} records of 100 B in {_LANES} streams of Redis, batches of 500",
        (
            Row("redis-direct", "records/s"),
            Row("redis-direct-cpu", "CPU s per million"),
            *consume_rows(
                "redis",
                goal=at_least(0.5, of_baseline=True),
                cpu_goal=at_most(2.0, of_baseline=True),
                baseline="redis-direct",
            ),
        ),
        measure,
        seconds=10.0,
        preparation=10.0,
        # A quarter of an hour is enough for all others.
        by_name_only=True,
    ),
)

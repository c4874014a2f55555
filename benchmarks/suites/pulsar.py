"""A sidecar on Pulsar beside a direct consumer of the same topic, for each subscription type."""

from collections.abc import Mapping
from functools import partial

from benchmarks.environment import BenchmarkEnvironment
from benchmarks.programs import consume, consume_rows, run
from benchmarks.rows import Benchmark, Row, at_least, at_most

_LANES = 4
_RECORDS = 100_000
#: subscription types as in the configuration, and their names in pulsar-client
_KINDS = {"shared": "Shared", "key_shared": "KeyShared", "failover": "Failover"}
_CPU_GOALS = {"shared": at_most(2.5, of_baseline=True)}


def measure(kind: str, environment: BenchmarkEnvironment) -> Mapping[str, float]:
    records = environment.records(_RECORDS)
    topic = environment.pulsar_topic(lanes=_LANES, records=records, size=100)
    direct = run("direct_pulsar", environment.pulsar.url, topic, _KINDS[kind], records)
    with environment.on_pulsar(topic, kind) as sidecar:
        found = consume(f"pulsar-{kind}", sidecar, "--records", records)
    return found | {
        f"pulsar-{kind}-direct": direct["records"] / direct["seconds"],
        f"pulsar-{kind}-direct-cpu": direct["cpu"] / direct["records"] * 1e6,
    }


BENCHMARKS = tuple(
    Benchmark(
        f"pulsar-{kind}",
        f"{_RECORDS:,} records of 100 B in {_LANES} lanes of Pulsar, subscription type {kind}, batches of 500",
        (
            Row(f"pulsar-{kind}-direct", "records/s"),
            Row(f"pulsar-{kind}-direct-cpu", "CPU s per million"),
            *consume_rows(
                f"pulsar-{kind}",
                goal=at_least(0.4, of_baseline=True),
                cpu_goal=_CPU_GOALS.get(kind),
                baseline=f"pulsar-{kind}-direct",
            ),
        ),
        partial(measure, kind),
        seconds=11.0,
        preparation=30.0 if kind == "shared" else 0.0,
    )
    for kind in _KINDS
)

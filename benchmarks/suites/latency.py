"""What a sidecar adds to the latency of a Kafka record, at a thousand records a second."""

import json
import subprocess
import time
from collections.abc import Mapping

from benchmarks.environment import BenchmarkEnvironment
from benchmarks.programs import command, run, running
from benchmarks.rows import Benchmark, Row, at_most

_RATE = 1_000
_SECONDS = 5.0
_SHARES = ("p50", "p99", "p999")
#: of what is added
_GOALS = {"p50": at_most(0.5), "p99": at_most(1.5)}


def measure(environment: BenchmarkEnvironment) -> Mapping[str, float]:
    records = int(environment.seconds(_SECONDS) * _RATE)
    found: dict[str, float] = {}
    topic = _new_topic(environment)
    with running(*command("latency", "direct", environment.kafka.bootstrap, topic, records)) as consumer:
        direct = _send(environment, topic, records, consumer)
    topic = _new_topic(environment)
    with (
        environment.on_kafka(topic) as sidecar,
        running(*command("latency", "sidecar", sidecar.address, records)) as consumer,
    ):
        sidecar.until(lambda status: status.lanes, "lane")
        through = _send(environment, topic, records, consumer)
    for share in _SHARES:
        found[f"kafka-latency-{share}-direct"] = direct[share]
        found[f"kafka-latency-{share}-added"] = through[share] - direct[share]
    found["kafka-latency-producer"] = max(direct["late_p99"], through["late_p99"])
    return found


def _new_topic(environment: BenchmarkEnvironment) -> str:
    topic = f"latency-{time.time_ns()}"
    environment.kafka.make_topic(topic, 1)
    return topic


def _send(
    environment: BenchmarkEnvironment, topic: str, records: int, consumer: "subprocess.Popen[str]"
) -> dict[str, float]:
    """Send the records; returns the results of consumer and producer."""
    assert consumer.stdout is not None
    consumer.stdout.readline()
    sent = run("paced", environment.kafka.bootstrap, topic, records, _RATE)
    seen: dict[str, float] = json.loads(consumer.stdout.readline())
    return {**seen, **sent}


BENCHMARKS = (
    Benchmark(
        "kafka-latency",
        f"from the moment a record is due at the producer to the handler, {_RATE:,} a second, one lane",
        (
            *(Row(f"kafka-latency-{share}-direct", "ms") for share in _SHARES),
            *(Row(f"kafka-latency-{share}-added", "ms more than direct", _GOALS.get(share)) for share in _SHARES),
            Row("kafka-latency-producer", "ms: its own lateness, p99"),
        ),
        measure,
        seconds=16.0,
        preparation=10.0,
    ),
)

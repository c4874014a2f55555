"""Start time, idle memory, and memory with a stopped app or with much that was settled."""

import os
import signal
import time
from collections.abc import Mapping

from benchmarks.environment import BenchmarkEnvironment
from benchmarks.programs import command, running
from benchmarks.rows import Benchmark, Row, at_most

#: seconds for which the app is stopped
_STOPPED = 60.0
_RECORDS = 200_000
#: sessions, batches of each, and records and bytes of a batch, for what must be remembered of settled batches
_OUTCOMES = (1, 400, 5_000, 100)
_ANSWERS = (40, 1, 8_000, 1_024)
#: seconds until the start is certainly over
_IDLE = 1.0


def start(environment: BenchmarkEnvironment) -> Mapping[str, float]:
    with environment.on_local("nothing") as sidecar:
        time.sleep(environment.seconds(_IDLE))
        return {"cold-start": sidecar.ready_after, "memory-idle": sidecar.resident_mb}


def stopped(environment: BenchmarkEnvironment) -> Mapping[str, float]:
    """The topic has far more than fits into memory."""
    topic = environment.kafka_topic(lanes=8, records=environment.records(_RECORDS), size=1_024)
    with (
        environment.on_kafka(topic) as sidecar,
        running(*command("worker", sidecar.address, "--work", 0.05, "--seconds", 3600)) as app,
    ):
        sidecar.until(lambda status: status.counters.acked, "record that was acked")
        os.kill(app.pid, signal.SIGSTOP)
        time.sleep(environment.seconds(_STOPPED))
        most = sidecar.most_resident_mb
        os.kill(app.pid, signal.SIGCONT)
        os.kill(app.pid, signal.SIGKILL)
    return {"memory-stopped": most}


def outcomes(environment: BenchmarkEnvironment) -> Mapping[str, float]:
    return {"memory-outcomes": _settled(environment, "outcomes", *_OUTCOMES)}


def answers(environment: BenchmarkEnvironment) -> Mapping[str, float]:
    return {"memory-answers": _settled(environment, "answers", *_ANSWERS)}


def _settled(
    environment: BenchmarkEnvironment, way: str, sessions: int, batches: int, records: int, size: int
) -> float:
    """Megabytes once all is settled."""
    records, batches = environment.records(records), min(batches, 2) if environment.quick else batches
    topic = environment.local_topic(lanes=8, records=sessions * batches * records, size=size)
    batch = {"records": records, "bytes": "16MiB"}
    with (
        environment.on_local(topic, lanes=8, batch=batch) as sidecar,
        running(*command("settled", way, sidecar.address, sessions, batches)) as workers,
    ):
        assert workers.stdout is not None
        workers.stdout.readline()
        return sidecar.resident_mb


BENCHMARKS = (
    Benchmark(
        "start",
        f"a sidecar on the embedded broker that has just started, and after {_IDLE:g} s of idling",
        (
            Row("cold-start", "s from the start to an open socket", at_most(0.64)),
            Row("memory-idle", "MB resident", at_most(58)),
        ),
        start,
        seconds=2.5,
    ),
    Benchmark(
        "memory-stopped",
        f"a topic of {_RECORDS:,} records of 1 KiB on Kafka, and an app that is stopped (SIGSTOP) for {_STOPPED:g} s",
        (Row("memory-stopped", "MB resident at most", at_most(200)),),
        stopped,
        seconds=65.0,
        once=True,
    ),
    Benchmark(
        "memory-outcomes",
        f"{_OUTCOMES[1]} batches of {_OUTCOMES[2]:,} records, each record settled otherwise than the one before",
        (Row("memory-outcomes", "MB resident once all is settled", at_most(200)),),
        outcomes,
        seconds=60.0,
        preparation=10.0,
        once=True,
        by_name_only=True,
    ),
    Benchmark(
        "memory-answers",
        f"{_ANSWERS[0]} sessions of Open that fetched {_ANSWERS[2]:,} records of 1 KiB each, settled them, and stay",
        (Row("memory-answers", "MB resident once all is settled", at_most(200)),),
        answers,
        seconds=20.0,
        preparation=5.0,
        once=True,
        by_name_only=True,
    ),
)

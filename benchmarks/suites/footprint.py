"""Start time, idle memory, and memory with a stopped app."""

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


BENCHMARKS = (
    Benchmark(
        "start",
        f"a sidecar on the embedded broker that has just started, and after {_IDLE:g} s of idling",
        (
            Row("cold-start", "s from the start to an open socket", at_most(1.5)),
            Row("memory-idle", "MB resident", at_most(80)),
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
)

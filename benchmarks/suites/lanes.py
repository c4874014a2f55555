"""The rate of the other lanes while one is slow."""

from collections.abc import Mapping

from benchmarks.environment import BenchmarkEnvironment
from benchmarks.programs import run
from benchmarks.rows import Benchmark, Row, at_least

_LANES = 40
_RECORDS = 400_000
#: small, so that workers mostly wait and the speed of the machine does not matter
_BATCH = 10
#: seconds per batch, and per batch of the slow lane
_WORK, _SLOW = 0.02, 5.0
_SECONDS = 3.0


def measure(environment: BenchmarkEnvironment) -> Mapping[str, float]:
    topic = environment.kafka_topic(lanes=_LANES, records=environment.records(_RECORDS), size=100)
    rates = []
    for slow in (_WORK, environment.seconds(_SLOW)):
        with environment.on_kafka(
            topic, order="lane", batch={"records": 1 if environment.quick else _BATCH}
        ) as sidecar:
            done = run("lanes", sidecar.address, _LANES, _WORK, slow, environment.seconds(_SECONDS))
        rates.append(done["records"] / done["seconds"])
    return {"slow-lane-none": rates[0], "slow-lane-others": rates[1]}


BENCHMARKS = (
    Benchmark(
        "slow-lane",
        f"{_LANES} lanes of Kafka in order `lane`, {_LANES} workers of 20 ms: the rate of 39 while a batch of the "
        f"other takes {_SLOW:g} s, and while it does not",
        (
            Row("slow-lane-none", "records/s of 39 lanes"),
            Row(
                "slow-lane-others",
                "records/s of 39 lanes",
                at_least(0.95, of_baseline=True),
                baseline="slow-lane-none",
            ),
        ),
        measure,
        seconds=13.0,
        preparation=12.0,
    ),
)

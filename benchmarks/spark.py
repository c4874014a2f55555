"""The Spark source on a real Kafka, beside other ways to read the same topic, in one session of Spark.

`make bench ONLY=spark` compares it with tasks that read with confluent-kafka, as one would write them in Python
without a source; `make bench ONLY=spark-beside-own` with the Kafka source in Scala that comes with Spark.
"""

from collections.abc import Mapping
from pathlib import Path

import pyspark

from benchmarks.programs import run
from benchmarks.rows import Benchmark, Goal, Row, at_least
from benchmarks.stage import Stage
from tests.servers.maven import Jars

_LANES, _RECORDS, _SIZE = 8, 1_000_000, 1_024

#: Spark's own source, of the very version that is installed
CONNECTOR = Jars(
    "spark-sql-kafka",
    pyspark.__version__,
    [f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"],
    megabytes=60,
)


def beside_own(stage: Stage) -> Mapping[str, float]:
    """Raises `Missing` where Maven does not have the connector, or a part of it."""
    return _measure(stage, CONNECTOR.fetch(), "own")


def beside_direct(stage: Stage) -> Mapping[str, float]:
    return _measure(stage, Path("-"), "direct")


def _measure(stage: Stage, jars: Path, other: str) -> Mapping[str, float]:
    records = stage.records(_RECORDS)
    topic = stage.kafka_topic(lanes=_LANES, records=records, size=_SIZE)
    with stage.on_kafka(topic, mode="ranges") as sidecar:
        before = sidecar.cpu_seconds
        said = run("spark", jars, stage.kafka.bootstrap, topic, sidecar.address, records, 3 if stage.quick else 30)
        used = sidecar.cpu_seconds - before
    reads = said.pop("reads")
    of = "spark" if other == "direct" else f"spark-beside-{other}"
    return {
        f"spark-{other}-count": said["other-count"],
        f"spark-{other}-parquet": said["other-parquet"],
        f"{of}-count": said["count"],
        f"{of}-parquet": said["parquet"],
        f"{of}-empty-batch": said["empty-batch"],
        f"{of}-cpu": used / (reads * records) * 1e6,
    }


def _rows(of: str, other: str, goal: Goal | None = None) -> tuple[Row, ...]:
    return (
        Row(f"{other}-count", "records/s"),
        Row(f"{of}-count", "records/s", goal, baseline=f"{other}-count"),
        Row(f"{other}-parquet", "records/s"),
        Row(f"{of}-parquet", "records/s", baseline=f"{other}-parquet"),
        Row(f"{of}-empty-batch", "ms"),
        Row(f"{of}-cpu", "CPU s per million: the sidecar"),
    )


_ABOUT = (
    f"{_RECORDS:,} records of 1 KiB in {_LANES} lanes of Kafka, read by Spark in local[2]: count() and a parquet write "
    "of key, value, topic and timestamp, after a warm-up; and a trigger that finds nothing new; beside "
)

BENCHMARKS = (
    Benchmark(
        "spark",
        f"{_ABOUT}tasks that read with confluent-kafka",
        _rows("spark", "spark-direct"),
        beside_direct,
        seconds=90.0,
        preparation=40.0,
        by_name_only=True,
    ),
    Benchmark(
        "spark-beside-own",
        f"{_ABOUT}Spark's own Kafka source",
        _rows("spark-beside-own", "spark-own", at_least(0.25, of_baseline=True)),
        beside_own,
        seconds=90.0,
        preparation=40.0,
        by_name_only=True,
    ),
)

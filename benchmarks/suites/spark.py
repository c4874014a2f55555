"""The Spark source on a real Kafka, beside other ways to read the same topic, in one Spark session.

`make bench ONLY=spark` compares it with tasks that read with confluent-kafka, as one would write them in Python
without a source; `make bench ONLY=spark-beside-own` with Spark's own Kafka source in Scala, on the newest Spark for
which it is published, which happens separately and later.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.environment import BenchmarkEnvironment
from benchmarks.programs import run
from benchmarks.rows import Benchmark, Goal, Row, at_least
from tests.servers.maven import Jars, cache, locked
from tests.servers.tools import Missing

_LANES, _RECORDS, _SIZE = 8, 1_000_000, 1_024

#: the newest Spark whose own source is published
_WITH_OWN = "4.2.0"
CONNECTOR = Jars(
    "spark-sql-kafka",
    _WITH_OWN,
    [f"org.apache.spark:spark-sql-kafka-0-10_2.13:{_WITH_OWN}"],
    # There is no newer version of this part, which only handles delegation tokens.
    pinned=["org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0"],
    megabytes=60,
)


def beside_own(environment: BenchmarkEnvironment) -> Mapping[str, float]:
    """Raises `Missing` if that Spark or its source cannot be fetched."""
    return _measure(environment, CONNECTOR.fetch(), "own", _spark_with_own())


def beside_direct(environment: BenchmarkEnvironment) -> Mapping[str, float]:
    return _measure(environment, Path("-"), "direct")


def _spark_with_own() -> Path:
    """The folder of that Spark, which is separate from the installed one."""
    folder = cache() / f"pyspark-{_WITH_OWN}"
    with locked(folder.with_name(folder.name + ".lock")):
        if not folder.exists():
            print(f"fetching pyspark {_WITH_OWN} with pip (once, about 450 MB) ...", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix=folder.name, dir=folder.parent) as half:
                pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", f"{half}/whole"]
                done = subprocess.run([*pip, f"pyspark=={_WITH_OWN}"], check=False, stderr=subprocess.PIPE, text=True)
                if done.returncode:
                    raise Missing(f"pyspark {_WITH_OWN} cannot be installed: {done.stderr.strip()[-500:]}")
                shutil.move(f"{half}/whole", folder)
    return folder


def _measure(
    environment: BenchmarkEnvironment, jars: Path, other: str, packages: Path | None = None
) -> Mapping[str, float]:
    records = environment.records(_RECORDS)
    # Each lane is a task, and starting one is most of what a quick run would do.
    topic = environment.kafka_topic(lanes=2 if environment.quick else _LANES, records=records, size=_SIZE)
    with environment.on_kafka(topic, mode="ranges") as sidecar:
        before = sidecar.cpu_seconds
        words = (jars, environment.kafka.bootstrap, topic, sidecar.address, records, 3 if environment.quick else 30)
        said = run("spark", *words, packages=packages)
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
        f"{_ABOUT}Spark's own Kafka source, on Spark {_WITH_OWN}",
        _rows("spark-beside-own", "spark-own", at_least(0.25, of_baseline=True)),
        beside_own,
        seconds=90.0,
        preparation=40.0,
        by_name_only=True,
    ),
)

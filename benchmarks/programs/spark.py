"""One Spark session that reads a topic through a sidecar and in another way, and prints the rates.
`python -m benchmarks.programs.spark JARS KAFKA TOPIC ADDRESS RECORDS TRIGGERS`.

The other way is Spark's own Kafka source, if JARS is its folder, or with `-` a consumer in each task."""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer
from pyspark.sql import DataFrame, SparkSession

import spark_bridge
from benchmarks.programs import print_result
from benchmarks.programs.direct_spark import read_lanes

#: empty triggers that do not count, since the first ones compile
_WARM_UP = 5


class Turns:
    """The measurements of each source."""

    def __init__(self, spark: SparkSession, kafka: str, topic: str, address: str, records: int, folder: str) -> None:
        self._spark = spark
        self._kafka = kafka
        self._topic = topic
        self._address = address
        self._records = records
        self._folder = folder

    def direct(self) -> DataFrame:
        consumer = Consumer({"bootstrap.servers": self._kafka, "group.id": "benchmark"})
        lanes = len(consumer.list_topics(self._topic, timeout=30).topics[self._topic].partitions)
        consumer.close()
        numbers = self._spark.range(0, lanes, numPartitions=lanes)
        schema = "key binary, value binary, topic string, timestamp timestamp"
        return numbers.mapInArrow(partial(read_lanes, self._kafka, self._topic), schema)

    def own(self) -> DataFrame:
        reader = self._spark.read.format("kafka").option("kafka.bootstrap.servers", self._kafka)
        return reader.option("subscribe", self._topic).load()

    def bridge(self) -> DataFrame:
        reader = self._spark.read.format("offramp").option("address", self._address)
        return reader.option("subscription", "bench").load()

    def rate(self, use: Callable[[DataFrame], None], source: Callable[[], DataFrame]) -> float:
        began = time.perf_counter()
        use(source())
        return self._records / (time.perf_counter() - began)

    def count(self, source: DataFrame) -> None:
        found = source.count()
        if found != self._records:
            raise RuntimeError(f"{found} records were read of {self._records}")

    def parquet(self, source: DataFrame) -> None:
        rows = source.select("key", "value", "topic", "timestamp")
        rows.write.mode("overwrite").parquet(f"{self._folder}/parquet")

    def empty(self, triggers: int) -> float:
        """Milliseconds of a trigger that finds nothing new, as reported by Spark."""
        source = self._spark.readStream.format("offramp").option("address", self._address)
        frame = source.option("subscription", "bench").option("startingPosition", "latest").load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", f"{self._folder}/checkpoint")
        query = writer.trigger(processingTime="50 milliseconds").start()
        try:
            while len(query.recentProgress) < triggers + _WARM_UP:
                time.sleep(0.1)
            took = [float(one["durationMs"]["triggerExecution"]) for one in query.recentProgress[_WARM_UP:]]
            return statistics.median(took)
        finally:
            query.stop()


def main(jars: str, kafka: str, topic: str, address: str, records: int, triggers: int) -> None:
    with tempfile.TemporaryDirectory(prefix="offramp-bench-") as folder:
        spark = session(jars, folder)
        turns = Turns(spark, kafka, topic, address, records, folder)
        other = turns.direct if jars == "-" else turns.own
        for source in (other, turns.bridge):
            turns.count(source())
        print_result(
            **{
                "other-count": turns.rate(turns.count, other),
                "count": turns.rate(turns.count, turns.bridge),
                "other-parquet": turns.rate(turns.parquet, other),
                "parquet": turns.rate(turns.parquet, turns.bridge),
                "empty-batch": turns.empty(triggers),
                # How often the whole topic was read from the sidecar.
                "reads": 3,
            }
        )
        spark.stop()


def session(jars: str, folder: str) -> SparkSession:
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("benchmark")
    for name, value in {
        "spark.jars": "" if jars == "-" else ",".join(str(jar) for jar in sorted(Path(jars).glob("*.jar"))),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        # Spark reports triggers without data only at this interval.
        "spark.sql.streaming.noDataProgressEventInterval": "1",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark_bridge.install(spark)
    return spark


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), int(sys.argv[6]))

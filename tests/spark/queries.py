"""Queries that read a subscription into a sink of the test."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

import spark_bridge
from spark_bridge.stream_reader import StreamReader

#: seconds; the first batch of a session takes long on a busy machine
BATCH_TIMEOUT = 120.0


class Batches:
    """What a query has given to its sink, by batch. A batch that comes again must be the same."""

    def __init__(self) -> None:
        self.rows: dict[int, list[Row]] = {}
        self.partitions: dict[int, int] = {}
        self.failing: set[int] = set()

    def __call__(self, df: DataFrame, batch: int) -> None:
        rows = sorted(df.collect(), key=lambda row: (row.topic, row.lane, row.position))
        assert self.rows.setdefault(batch, rows) == rows, f"batch {batch} is another than before"
        self.partitions[batch] = df.rdd.getNumPartitions()
        if batch in self.failing:
            self.failing.remove(batch)
            raise RuntimeError("the sink failed")

    @property
    def values(self) -> list[int]:
        return sorted(int(row.value) for rows in self.rows.values() for row in rows)


def start(spark: SparkSession, options: dict[str, str], folder: Path, sink: Batches, **trigger: Any) -> StreamingQuery:
    """A query with its checkpoint in the folder, which goes on until it is stopped unless `trigger` says otherwise."""
    source = spark.readStream.format("offramp").options(**options).load()
    writer = source.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(**trigger or {"processingTime": "100 milliseconds"}).start()


def run(spark: SparkSession, options: dict[str, str], folder: Path, sink: Batches) -> None:
    """A query that reads what is there, and ends."""
    query = start(spark, options, folder, sink, availableNow=True)
    assert query.awaitTermination(int(BATCH_TIMEOUT))
    spark_bridge.flush(query)


def source_progress(reader: StreamReader, end: dict[str, Any]) -> dict[str, Any]:
    """As Spark puts it into a progress."""
    return {"endOffset": json.dumps(end), "latestOffset": json.dumps(reader.reportLatestOffset())}


def finished_query(*progresses: list[dict[str, Any]]) -> Any:
    """A query that has made these progresses, each with its sources."""
    return SimpleNamespace(recentProgress=[{"sources": sources} for sources in progresses])

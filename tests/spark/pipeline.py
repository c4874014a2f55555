"""A driver that tests kill: reads a subscription into a sink that is idempotent on the batch.

    python -m tests.spark.pipeline MASTER ADDRESS SUBSCRIPTION FOLDER [--until-done] [--dies]

With `--dies` it kills itself and its JVM as soon as the first batch is in the sink, of which Spark does not know yet.

The sink is a folder for each batch id, replaced as a whole. A journal beside it has a line for every time that a batch
was given to the sink, with a digest of its rows, so that a test can see whether a batch that came again was the same.
"""

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import spark_bridge


class Sink:
    def __init__(self, folder: Path, *, dies: bool) -> None:
        self._dies = dies
        self._out = folder / "out"
        self._out.mkdir(exist_ok=True)
        self._journal = folder / "journal"

    def __call__(self, df: DataFrame, batch: int) -> None:
        rows = sorted(
            [
                *(row.topic, row.lane, row.position, bytes(row.value).hex(), bytes(row.key or b"").hex()),
                [[one.name, bytes(one.value or b"").hex()] for one in row.headers],
                row.timestamp.isoformat(),
            ]
            for row in df.collect()
        )
        text = json.dumps(rows)
        digest = hashlib.sha256(text.encode()).hexdigest()
        with self._journal.open("a") as journal:
            journal.write(json.dumps({"batch": batch, "rows": len(rows), "digest": digest, "pid": os.getpid()}) + "\n")
        # Beside its place and then renamed: a batch is there as a whole or not at all.
        made = self._out / f".{batch}.{os.getpid()}"
        made.write_text(text)
        made.replace(self._out / f"{batch}.json")
        if self._dies:
            # A group of its own, with the JVM in it: see `crashes.Driver`.
            os.killpg(0, signal.SIGKILL)


def main() -> None:
    master, address, subscription, place, *more = sys.argv[1:]
    folder = Path(place)
    builder = SparkSession.builder.master(master).appName("pipeline")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark_bridge.install(spark)
    until_done = "--until-done" in more
    # Many batches while there are kills, few once there are none.
    limit = "10000" if until_done else "200"
    options = {"address": address, "subscription": subscription, "maxRecordsPerBatch": limit, "timeout": "60s"}
    source = spark.readStream.format("offramp").options(**options).load()
    writer = source.writeStream.foreachBatch(Sink(folder, dies="--dies" in more)).option(
        "checkpointLocation", str(folder / "checkpoint")
    )
    query = (
        writer.trigger(availableNow=True) if until_done else writer.trigger(processingTime="100 milliseconds")
    ).start()
    query.awaitTermination()
    spark_bridge.flush(query)


if __name__ == "__main__":
    main()

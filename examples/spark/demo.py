"""The example pipeline, for real, on the embedded broker: `make demo-spark`. Shows its result, and checks it."""

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession
from sessions import as_messages, per_minute

import offramp
import spark_bridge

BEGAN = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)
MINUTES, USERS = 3, 200
GAP = timedelta(seconds=30)

CONFIG = """
listen: {{tcp: "{address}", socket: ""}}
http: {{address: ""}}
log: {{level: warning}}
brokers: {{local: {{type: local, directory: "{folder}/data", lanes: 2}}}}
subscriptions:
  clicks: {{topics: [clicks], mode: ranges}}
  clicks-to-topic: {{topics: [clicks], mode: ranges}}
  minutes: {{topics: [minutes]}}
"""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="offramp-spark-") as folder, sidecar(Path(folder)) as address:
        clicks = make_clicks()
        publish(address, clicks)
        print(f"{len(clicks):,} clicks of {USERS} users in {MINUTES} minutes are in the topic clicks")
        spark = start_spark()
        try:
            run(spark, address, "clicks", Path(folder))
            run(spark, address, "clicks-to-topic", Path(folder))
            files = spark.read.parquet(f"{folder}/minutes").orderBy("minute")
            print("\nsessions by the minute in which they ended, from the parquet files:")
            files.show(truncate=False)
            from_files = {row.minute.replace(tzinfo=UTC): (row.sessions, row.clicks) for row in files.collect()}
        finally:
            spark.stop()
        from_topic = consume(address, len(from_files))
    print(f"the topic minutes has {len(from_topic)} messages, taken by a plain consumer")
    right = expected(clicks)
    if from_files == from_topic == right:
        print("files, topic and a count in plain Python agree")
        return 0
    print(f"they differ:\nfiles  {from_files}\ntopic  {from_topic}\npython {right}", file=sys.stderr)
    return 1


def run(spark: SparkSession, address: str, subscription: str, folder: Path) -> None:
    """One query, until it has done what is there."""
    began = time.monotonic()
    source = spark.readStream.format("offramp").option("address", address).option("subscription", subscription)
    minutes = per_minute(source.load())
    if subscription == "clicks":
        writer = minutes.writeStream.format("parquet").option("path", f"{folder}/minutes")
    else:
        writer = as_messages(minutes).writeStream.format("offramp").option("address", address)
        writer = writer.option("broker", "local").option("topic", "minutes")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint-{subscription}")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    spark_bridge.flush(query)
    rows = sum(one["numInputRows"] for one in query.recentProgress)
    where = "parquet files" if subscription == "clicks" else "the topic minutes"
    print(f"{rows:,} clicks became sessions in {where}, in {time.monotonic() - began:.0f} s")


def make_clicks() -> list[dict[str, str]]:
    """In order of time, each user with pauses that end sessions; then one long after, which closes every minute."""
    chance = random.Random(7)
    clicks = []
    for user in range(USERS):
        at = BEGAN + timedelta(seconds=chance.uniform(0, 60))
        while at < BEGAN + timedelta(minutes=MINUTES):
            clicks.append({"user": f"user-{user}", "page": chance.choice("abcdef"), "at": at.isoformat()})
            at += timedelta(seconds=chance.choice((1, 2, 5, 40)))
    clicks.sort(key=lambda click: click["at"])
    clicks.append({"user": "nobody", "page": "z", "at": (BEGAN + timedelta(minutes=MINUTES + 10)).isoformat()})
    return clicks


def publish(address: str, clicks: list[dict[str, str]]) -> None:
    with offramp.Publisher(broker="local", address=address) as publisher:
        for start in range(0, len(clicks), 1_000):
            some = clicks[start : start + 1_000]
            publisher.publish_many("clicks", [offramp.Message(json.dumps(one), key=one["user"]) for one in some])


def consume(address: str, wanted: int) -> dict[datetime, tuple[int, int]]:
    """What the second query has published, taken by a worker as any other."""
    found: dict[datetime, tuple[int, int]] = {}
    with offramp.connect("minutes", address=address) as consumer:
        while len(found) < wanted and (batch := consumer.take(timeout=10)) is not None:
            for record in batch:
                minute = json.loads(record.value or b"")
                found[datetime.fromisoformat(minute["minute"])] = (minute["sessions"], minute["clicks"])
            batch.ack()
    return found


def expected(clicks: list[dict[str, str]]) -> dict[datetime, tuple[int, int]]:
    """The same count in plain Python."""
    sessions: Counter[datetime] = Counter()
    counts: Counter[datetime] = Counter()
    by_user: dict[str, list[datetime]] = {}
    for click in clicks[:-1]:
        by_user.setdefault(click["user"], []).append(datetime.fromisoformat(click["at"]))
    for times in by_user.values():
        began = 0
        for number, at in enumerate(times, start=1):
            if number == len(times) or times[number] - at >= GAP:
                # The end itself is the first moment that is not of the session.
                minute = (at + GAP - timedelta(microseconds=1)).replace(second=0, microsecond=0)
                sessions[minute] += 1
                counts[minute] += number - began
                began = number
    return {minute: (sessions[minute], counts[minute]) for minute in sessions}


def start_spark() -> SparkSession:
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    # Executors import the transformations from here.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    print("starting Spark ...", flush=True)
    builder = SparkSession.builder.master("local[2]").appName("clicks per minute")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark_bridge.install(spark)
    return spark


@contextmanager
def sidecar(folder: Path) -> Iterator[str]:
    """A sidecar on the embedded broker; where it listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config = folder / "offramp.yaml"
    config.write_text(CONFIG.format(address=address, folder=folder))
    process = subprocess.Popen([sys.executable, "-m", "sidecar", "run", "--config", str(config)])
    try:
        yield address
    finally:
        process.terminate()
        process.wait(30)


if __name__ == "__main__":
    sys.exit(main())

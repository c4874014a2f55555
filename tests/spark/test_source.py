"""Streams and bounded reads on a real Spark."""

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from offramp import Message, Publisher
from spark_bridge.columns import DEAD_LETTER_SCHEMA, SCHEMA
from tests.e2e.harness import eventually
from tests.spark.crashes import DRIVER_TIMEOUT, Driver
from tests.spark.environment import CLICKS, LANES, ORDERS, SparkEnvironment, reject_what_is_bad
from tests.spark.queries import BATCH_TIMEOUT, Batches, run, start


def test_a_query_reads_everything_once_and_goes_on_from_its_checkpoint(
    spark: SparkSession, environment: SparkEnvironment, tmp_path: Path
) -> None:
    sink = Batches()
    run(spark, environment.options(), tmp_path, sink)
    assert sink.rows == {0: []}, "there is nothing yet, and Spark begins with a batch all the same"
    environment.numbers(0, 95)
    run(spark, environment.options(maxRecordsPerBatch="40", maxRecordsPerPartition="10"), tmp_path, sink)
    assert sink.values == list(range(95))
    assert [len(rows) for rows in sink.rows.values()] == [0, 40, 40, 15]
    assert sink.partitions[1] > LANES, "lanes are read by several tasks"
    eventually(lambda: sum(environment.committed().values()) == 95, "the run has committed all it did")
    environment.numbers(95, 100)
    run(spark, environment.options(), tmp_path, sink)
    assert sink.values == list(range(100))
    assert len(sink.rows[4]) == 5


def test_a_batch_whose_sink_failed_comes_again_byte_for_byte(
    spark: SparkSession, environment: SparkEnvironment, tmp_path: Path
) -> None:
    environment.publish([Message(bytes([n, 0, 255]), key=b"k", headers={"n": b"%d" % n}) for n in range(60)])
    sink = Batches()
    sink.failing = {1}
    with pytest.raises(StreamingQueryException, match="the sink failed"):
        run(spark, environment.options(maxRecordsPerBatch="25"), tmp_path, sink)
    before = dict(sink.rows)
    environment.numbers(0, 7)
    environment.sidecar.restart()
    # `Batches` compares; that the limit is another now does not matter.
    run(spark, environment.options(maxRecordsPerBatch="1000"), tmp_path, sink)
    assert sink.rows[1] == before[1]
    assert sum(map(len, sink.rows.values())) == 67


def test_progress_is_committed_before_the_next_batch_is_built(
    spark: SparkSession, environment: SparkEnvironment, tmp_path: Path
) -> None:
    environment.numbers(0, 10)
    source = spark.readStream.format("offramp").options(**environment.options()).load()
    query = source.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        eventually(lambda: sum(environment.committed().values()) == 10, "the listener has committed", BATCH_TIMEOUT)
        progress = query.lastProgress
        assert progress is not None
        assert '"lanes"' in progress.sources[0].latestOffset
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscripton": "clicks"}, 'option "subscripton": reading has no such option. Did you mean "subscription"?'),
        ({"subscription": "clikcs"}, "clikcs"),
        ({"subscription": ORDERS}, "mode: ranges"),
        ({"maxRecordsPerBatch": "many"}, "option maxRecordsPerBatch:"),
        ({"address": "127.0.0.1:1", "timeout": "200ms"}, "127.0.0.1:1"),
    ],
)
def test_a_mistake_is_a_clear_python_exception(
    spark: SparkSession, environment: SparkEnvironment, tmp_path: Path, options: dict[str, str], said: str
) -> None:
    with pytest.raises((AnalysisException, StreamingQueryException)) as caught:
        run(spark, environment.options(**options), tmp_path, Batches())
    assert said in str(caught.value)


def test_a_checkpoint_of_another_subscription_ends_the_query_with_a_clear_reason(
    spark: SparkSession, environment: SparkEnvironment, tmp_path: Path
) -> None:
    environment.numbers(0, 3)
    run(spark, environment.options(), tmp_path, Batches())
    with pytest.raises(StreamingQueryException, match='the checkpoint belongs to the subscription "clicks"'):
        run(spark, environment.options(subscription="other"), tmp_path, Batches())


@pytest.mark.timeout(900)
def test_of_two_drivers_with_one_checkpoint_one_goes_on(spark: SparkSession, environment: SparkEnvironment) -> None:
    other = Driver(environment.folder / "driver", "local[1]", environment.address, CLICKS)
    mine = start(spark, environment.options(maxRecordsPerBatch="200"), other.folder, Batches())
    stop = threading.Event()

    def publish() -> None:
        number = 0
        while not stop.wait(0.05):
            environment.numbers(number, number + 10)
            number += 10

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        other.start()
        eventually(lambda: other.ended or not mine.isActive, "one has ended", DRIVER_TIMEOUT)
        stop.set()
        publisher.join()
        eventually(lambda: environment.done() > 0, "the other has done all of it", BATCH_TIMEOUT)
        assert other.ended is mine.isActive, other.log
    finally:
        stop.set()
        publisher.join()
        mine.stop()
        other.kill()


# Bounded reads


def bounded(spark: SparkSession, environment: SparkEnvironment, **options: str) -> DataFrame:
    return spark.read.format("offramp").options(**environment.options(**options)).load()


def test_a_bounded_read_has_all_columns_and_null_is_not_empty(
    spark: SparkSession, environment: SparkEnvironment
) -> None:
    headers: Any = [("a", b"1"), ("a", None), ("b", b"")]
    environment.publish([
        Message(b"\x00\xff", key=b"k", headers=headers, lane=0, timestamp_ms=1_700_000_000_123),
        Message(None, key=None, lane=0, timestamp_ms=1),
        Message(b"", key=b"", lane=1, timestamp_ms=2),
    ])  # fmt: skip
    df = bounded(spark, environment)
    assert df.schema == SCHEMA
    first, null, empty = df.orderBy("lane", "position").collect()
    assert (bytes(first.value), bytes(first.key), first.topic, first.lane) == (b"\x00\xff", b"k", CLICKS, 0)
    assert [(one.name, one.value) for one in first.headers] == headers
    assert first.timestamp.isoformat() == "2023-11-14T22:13:20.123000"
    assert (null.value, null.key, null.headers) == (None, None, [])
    assert (empty.value, empty.key, empty.lane, empty.attempt) == (b"", b"", 1, 1)


def test_a_bounded_read_takes_a_time_span_positions_and_columns(
    spark: SparkSession, environment: SparkEnvironment
) -> None:
    assert bounded(spark, environment).count() == 0
    environment.publish([Message(b"%d" % n, lane=n % 2, timestamp_ms=1_000 * n) for n in range(1, 21)])

    def values(**options: str) -> list[int]:
        rows = (
            spark.read.schema("value binary")
            .format("offramp")
            .options(**environment.options(**options))
            .load()
            .collect()
        )
        return sorted(int(row.value) for row in rows)

    assert values() == list(range(1, 21))
    span = {"startingPosition": "1970-01-01T00:00:05Z", "endingPosition": "1970-01-01T00:00:09Z"}
    assert values(**span) == [5, 6, 7, 8]
    first = bounded(spark, environment).where("lane = 0").agg({"position": "min"}).first()
    assert first is not None
    at = first[0]
    one_lane = {"startingPosition": f'{{"clicks/0": {at + 2}}}', "endingPosition": f'{{"clicks/0": {at + 4}}}'}
    assert values(**one_lane) == [6, 8]
    assert values(**span, subscription="both") == [5, 6, 7, 8]
    assert environment.committed() == {"clicks/0": -1, "clicks/1": -1}, "a bounded read leaves no trace"


def test_a_schema_has_the_nullability_that_it_says(spark: SparkSession, environment: SparkEnvironment) -> None:
    environment.publish([Message(b"x", headers=[("a", b"1")], lane=0), Message(None, lane=0)])

    def rows(schema: str) -> list[Any]:
        return spark.read.schema(schema).format("offramp").options(**environment.options()).load().collect()

    documented = "headers array<struct<name: string, value: binary>>, value binary"
    assert [(row.headers, row.value) for row in rows(documented)] == [([("a", b"1")], b"x"), ([], None)]
    with pytest.raises(PythonException, match=r'"value": .* the record clicks/0/\d+ has none .* Leave out NOT NULL'):
        rows("value binary not null")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingPosition": '{"clikcs/0": 1}'}, "there is no lane clikcs/0; there are clicks/0, clicks/1"),
        ({"startingPosition": "committed"}, '"committed" is for streams'),
        ({"maxRecordsPerBatch": "3"}, 'option "maxrecordsperbatch": a bounded read has no such option'),
    ],
)
def test_a_mistake_in_a_bounded_read_is_a_clear_python_exception(
    spark: SparkSession, environment: SparkEnvironment, options: dict[str, str], said: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        bounded(spark, environment, **options).collect()
    assert said in str(caught.value)


def test_dead_letters_are_a_dataframe(spark: SparkSession, environment: SparkEnvironment) -> None:
    with Publisher(broker="local", address=environment.address) as publisher:
        places = publisher.publish_many(ORDERS, [Message(b"good"), Message(b"bad", key=b"k")])
    reject_what_is_bad(ORDERS, environment.address, records=2)
    letters = bounded(spark, environment, subscription=ORDERS, deadLetters="true")
    assert letters.schema == DEAD_LETTER_SCHEMA
    eventually(lambda: letters.count() == 1, "it is written", BATCH_TIMEOUT)
    row = letters.first()
    assert row is not None
    assert (row.reason, bytes(row.value), bytes(row.key), row.topic) == ("REJECTED: it is bad", b"bad", b"k", ORDERS)
    assert (row.lane, row.position) == places[1]
    assert row.id == f"{ORDERS}/{row.lane}/{row.position}"

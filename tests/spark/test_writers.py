"""Writing to topics on a real Spark."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from offramp import Message, Place
from offramp.channel import Access
from offramp.errors import PartlyPublished, Refused, Unavailable
from spark_bridge.writers import ID_HEADER, RowPublisher, _rows
from tests.e2e.harness import eventually
from tests.spark.environment import SparkEnvironment

QUERY_TIMEOUT = 120


def published(spark: SparkSession, environment: SparkEnvironment) -> list[tuple[str, bytes | None, str]]:
    """Topic, value and id of what is in the topics, by a bounded read."""
    rows = spark.read.format("offramp").options(**environment.options("both")).load().collect()
    return [
        (row.topic, None if row.value is None else bytes(row.value), dict(row.headers)[ID_HEADER].decode())
        for row in rows
    ]


def test_rows_go_to_topics_with_keys_headers_and_ids(spark: SparkSession, environment: SparkEnvironment) -> None:
    rows = spark.sql("""
        SELECT * FROM VALUES
          ('one', 'k', 'clicks', array(named_struct('name', 'h', 'value', binary('x'))), 1, timestamp_millis(5)),
          (NULL, NULL, 'later', NULL, NULL, NULL),
          ('', '', NULL, array(), 0, NULL)
        AS t(value, key, topic, headers, lane, timestamp)""")
    options = {"address": environment.address, "broker": "local", "topic": "clicks"}
    rows.write.format("offramp").options(**options).mode("append").save()
    found = spark.read.format("offramp").options(**environment.options("both")).load()
    by_value = {None if row.value is None else bytes(row.value): row for row in found.collect()}
    one, null, empty = by_value[b"one"], by_value[None], by_value[b""]
    assert (one.topic, one.lane, bytes(one.key), one.timestamp.microsecond) == ("clicks", 1, b"k", 5_000)
    assert (one.headers[0].name, bytes(one.headers[0].value)) == ("h", b"x")
    assert (null.topic, null.key) == ("later", None)
    assert (empty.topic, empty.lane, bytes(empty.key)) == ("clicks", 0, b"")
    assert len({row.headers[-1].value for row in by_value.values()}) == 3
    assert {row.headers[-1].name for row in by_value.values()} == {ID_HEADER}


class Partial:
    """A publisher that publishes only the first message at first."""

    def __init__(self, error: type[Refused] | type[Unavailable]) -> None:
        self.error = error
        self.calls: list[list[Message]] = []

    def publish_many(self, topic: str, messages: list[Message]) -> list[Place]:
        self.calls.append(messages)
        if len(self.calls) == 1:
            raise PartlyPublished("1 of 2", [Place(0, 0), self.error("no")])
        return [Place(0, 1)] * len(messages)


def test_a_request_of_which_the_broker_took_a_part_is_sent_again_unless_the_rest_is_refused() -> None:
    rows = RowPublisher(Access(), "clicks", None, "clicks", 7, 1 << 20, 60.0)
    messages = [Message(b"1"), Message(b"2")]
    later = Partial(Unavailable)
    rows._send(later, "clicks", messages)  # type: ignore[arg-type]
    assert later.calls == [messages] * 2
    with pytest.raises(PartlyPublished):
        rows._send(Partial(Refused), "clicks", messages)  # type: ignore[arg-type]


def test_a_task_that_is_tried_again_gives_its_rows_the_same_ids(
    spark: SparkSession, environment: SparkEnvironment
) -> None:
    # The last row is larger than any request may be: the task fails with it, each time after the others were published.
    value = "CASE WHEN id < 40 THEN CAST(id AS string) ELSE repeat('x', 6000000) END AS value"
    rows = spark.range(0, 41, 1, 1).selectExpr(value)
    options = {"address": environment.address, "subscription": "clicks", "topic": "clicks", "maxRecordsPerRequest": "7"}
    with pytest.raises(PySparkException):
        rows.write.format("offramp").options(**options).mode("append").save()
    found = published(spark, environment)
    assert len(found) > 40, "they were published more than once"
    assert len({id_ for _, _, id_ in found}) == 40
    assert len({(value, id_) for _, value, id_ in found}) == 40


def test_the_size_of_a_request_is_counted_in_bytes() -> None:
    batch = pa.RecordBatch.from_pylist([{"value": "€" * 100, "key": "ä"}] * 4)
    (first, *_) = rows = [(message, size) for _, message, size in _rows([batch], "id", "clicks")]
    assert first[0].value == ("€" * 100).encode()
    assert all(size >= 302 for _, size in rows)
    publisher = RowPublisher(Access(address="127.0.0.1:1"), "clicks", None, "clicks", 1_000, 800, 1.0)
    assert [len(messages) for _, messages in publisher._requests(_rows([batch], "id", "clicks"))] == [2, 2]


def test_an_id_that_came_along_in_the_headers_is_not_the_id_of_the_row() -> None:
    headers = [{"name": ID_HEADER, "value": b"of another hop"}, {"name": "kind", "value": b"click"}]
    batch = pa.RecordBatch.from_pylist([{"value": b"v", "headers": headers}])
    ((_, message, _),) = _rows([batch], "query/7", "clicks")
    assert [*message.headers] == [("kind", b"click"), (ID_HEADER, "query/7/0")]


def test_a_stream_gives_ids_of_its_query_and_batch(
    spark: SparkSession, environment: SparkEnvironment, tmp_path: Path
) -> None:
    environment.numbers(0, 10)
    source = spark.readStream.format("offramp").options(**environment.options()).load()
    options = {
        "address": environment.address,
        "broker": "local",
        "topic": "later",
        "checkpointLocation": str(tmp_path / "c"),
    }
    query = source.select("value").writeStream.format("offramp").options(**options).trigger(availableNow=True).start()
    assert query.awaitTermination(QUERY_TIMEOUT)
    later = spark.read.format("offramp").options(**environment.options("both")).load().where("topic = 'later'")
    eventually(lambda: later.count() == 10, "they are there", QUERY_TIMEOUT)
    ids = {dict(row.headers)[ID_HEADER].decode() for row in later.collect()}
    assert len(ids) == 10
    assert {one.rsplit("/", 2)[0] for one in ids} == {f"{query.id}/0"}


@pytest.mark.parametrize(
    ("ddl", "options", "said"),
    [
        ("valeu string", {}, 'column "valeu": there is no such column to write'),
        ("value int", {}, 'column "value": it is int and must be string or binary'),
        ("key string", {}, 'column "value": it must be there'),
        (
            "value string, headers map<string,string>",
            {},
            'column "headers": it is map<string,string> and must be array',
        ),
        ("value string", {"topic": ""}, "option topic: "),
        ("value string", {"brokr": "x"}, 'option "brokr": writing has no such option. Did you mean "broker"?'),
        ("value string", {"subscription": "clicks"}, "option subscription: give it, to publish to its broker"),
    ],
)
def test_a_mistake_is_found_before_any_row_is_written(
    spark: SparkSession, environment: SparkEnvironment, ddl: str, options: dict[str, str], said: str
) -> None:
    given = {"address": environment.address, "broker": "local", "topic": "clicks", **options}
    with pytest.raises(AnalysisException) as caught:
        spark.createDataFrame([], ddl).write.format("offramp").options(**given).mode("append").save()
    assert said in str(caught.value)


def test_a_topic_cannot_be_overwritten(spark: SparkSession, environment: SparkEnvironment) -> None:
    given = {"address": environment.address, "broker": "local", "topic": "clicks"}
    with pytest.raises(AnalysisException, match="a topic can only be appended to"):
        spark.sql("SELECT 'x' AS value").write.format("offramp").options(**given).mode("overwrite").save()

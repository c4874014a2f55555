"""Records as Arrow columns."""

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, StructType

from offramp.v1 import admin_pb2, record_pb2
from spark_bridge.columns import (
    DEAD_LETTER_SCHEMA,
    HANDLED_SCHEMA,
    SCHEMA,
    DeadLetterRows,
    RecordRows,
    arrow_schema,
    select_columns,
    to_arrow,
)
from spark_bridge.errors import BadOption


@pytest.mark.parametrize("schema", [SCHEMA, HANDLED_SCHEMA, DEAD_LETTER_SCHEMA])
def test_batches_have_the_very_schema_that_spark_expects(schema: StructType) -> None:
    assert arrow_schema(schema).equals(to_arrow_schema(schema, timezone="UTC"))


def test_null_is_not_empty_and_headers_may_repeat() -> None:
    headers = [
        record_pb2.Header(name="a", value=b"1"),
        record_pb2.Header(name="a", value=b""),
        record_pb2.Header(name="none"),
    ]
    records = [
        record_pb2.Record(position=1),
        record_pb2.Record(key=b"", value=b"", lane=3, position=2, headers=headers, timestamp_ms=1_500),
        record_pb2.Record(key=b"k", value=b"\x00\xff", position=2**60),
    ]
    rows = to_arrow(RecordRows(records, "orders"), arrow_schema(SCHEMA)).to_pylist()
    assert [row["key"] for row in rows] == [None, b"", b"k"]
    assert [row["value"] for row in rows] == [None, b"", b"\x00\xff"]
    assert [row["headers"] for row in rows] == [
        [],
        [{"name": "a", "value": b"1"}, {"name": "a", "value": b""}, {"name": "none", "value": None}],
        [],
    ]
    assert [row["position"] for row in rows] == [1, 2, 2**60]
    assert [row["lane"] for row in rows] == [0, 3, 0]
    assert [row["timestamp"] for row in rows] == [None, datetime.fromtimestamp(1.5, UTC), None]
    assert {(row["topic"], row["attempt"]) for row in rows} == {("orders", 1)}


def test_a_time_that_spark_cannot_show_is_null_and_holds_nothing_up() -> None:
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC)
    first_ms, last_ms = ((at - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1) for at in (first, last))
    nanoseconds = 1_763_283_600_123_000_000
    times = [1_500, nanoseconds, first_ms, first_ms - 1, last_ms, last_ms + 1, 2**63 - 1, -(2**63)]
    shown = [datetime.fromtimestamp(1.5, UTC), None, first, None, last, None, None, None]
    records = [record_pb2.Record(timestamp_ms=at) for at in times]
    assert RecordRows(records, "orders").column("timestamp").to_pylist() == shown
    letters = [admin_pb2.DeadLetter(dead_lettered_ms=at, record=one) for at, one in zip(times, records, strict=True)]
    for name in ("timestamp", "dead_lettered"):
        assert DeadLetterRows(letters).column(name).to_pylist() == shown


def test_no_records_make_an_empty_batch() -> None:
    assert to_arrow(RecordRows([], "orders"), arrow_schema(SCHEMA)).num_rows == 0


def test_attempts_and_doubts_can_be_told() -> None:
    records = [record_pb2.Record(), record_pb2.Record(), record_pb2.Record()]
    rows = RecordRows(records, "orders", [(1, False), (4, False), (1, True)])
    assert rows.column("attempt").to_pylist() == [1, 4, 1]
    assert rows.column("possibly_processed").to_pylist() == [False, False, True]
    assert RecordRows(records, "orders").column("possibly_processed").to_pylist() == [False] * 3


def test_a_dead_letter_has_the_place_of_its_origin_and_why() -> None:
    letter = admin_pb2.DeadLetter(
        id="orders/2/7", topic="orders", lane=2, position=7, reason="no", attempts=5, worker="w",
        dead_lettered_ms=1_000, record=record_pb2.Record(value=b"x", timestamp_ms=500),
    )  # fmt: skip
    (row,) = to_arrow(DeadLetterRows([letter]), arrow_schema(DEAD_LETTER_SCHEMA)).to_pylist()
    assert row == {
        "key": None, "value": b"x", "headers": [], "topic": "orders", "lane": 2, "position": 7,
        "timestamp": datetime.fromtimestamp(0.5, UTC), "attempt": 5, "id": "orders/2/7", "reason": "no", "worker": "w",
        "dead_lettered": datetime.fromtimestamp(1, UTC),
    }  # fmt: skip


def test_a_schema_chooses_columns_in_its_order() -> None:
    asked = select_columns(StructType().add("position", "long").add("value", "binary"), SCHEMA)
    rows = RecordRows([record_pb2.Record(value=b"x", position=4)], "orders")
    assert to_arrow(rows, arrow_schema(asked)).to_pylist() == [{"position": 4, "value": b"x"}]


def test_headers_have_the_nullability_that_was_asked_for() -> None:
    header = StructType().add("name", "string").add("value", "binary")
    asked = select_columns(StructType().add("headers", ArrayType(header)), SCHEMA)
    records = [record_pb2.Record(headers=[record_pb2.Header(name="a", value=b"1")]), record_pb2.Record()]
    for schema in (asked, select_columns(StructType([SCHEMA["headers"]]), SCHEMA)):
        batch = to_arrow(RecordRows(records, "orders"), arrow_schema(schema))
        assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))
        assert batch.to_pylist() == [{"headers": [{"name": "a", "value": b"1"}]}, {"headers": []}]


def test_a_null_in_a_column_that_was_asked_for_without_names_its_record() -> None:
    asked = arrow_schema(select_columns(StructType().add("value", "binary", nullable=False), SCHEMA))
    good, tombstone = record_pb2.Record(value=b"x", position=4), record_pb2.Record(lane=2, position=7)
    assert to_arrow(RecordRows([good], "orders"), asked).num_rows == 1
    said = r'column "value": .* the record orders/2/7 has none.* Leave out NOT NULL'
    with pytest.raises(BadOption, match=said):
        to_arrow(RecordRows([good, tombstone], "orders"), asked)


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        (
            "headers",
            ArrayType(StructType().add("name", "string").add("value", "binary", nullable=False)),
            "a header may have no value",
        ),
        ("valeu", "binary", 'there is no column "valeu".*Did you mean "value"'),
        ("value", "string", 'the column "value" is binary, not string; cast it after reading'),
    ],
)
def test_a_schema_of_other_columns_is_refused(name: str, kind: str | DataType, said: str) -> None:
    with pytest.raises(BadOption, match=said):
        select_columns(StructType().add(name, kind), SCHEMA)

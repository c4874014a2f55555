"""Records as columns: the schemas that Spark sees, and Arrow batches built from the records of a message.

This is the hot path of every read. protobuf's parser (in C) decodes a message; each column is then one pass over the
records that creates no object but the value itself.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from offramp.v1 import admin_pb2, record_pb2
from spark_bridge.errors import BadOption, did_you_mean

_SPARK_HEADER = StructType([StructField("name", StringType(), False), StructField("value", BinaryType())])
_ARROW_HEADER = pa.struct([pa.field("name", pa.string(), nullable=False), pa.field("value", pa.binary())])
_ARROW_HEADERS = pa.list_(pa.field("element", _ARROW_HEADER, nullable=False))
_ARROW_TIME = pa.timestamp("us", tz="UTC")
#: milliseconds since 1970: the years 1 to 9999, the range of Spark's timestamps
_FIRST_TIME, _LAST_TIME = -62_135_596_800_000, 253_402_300_799_999

#: a record; a null value is not an empty one
SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", ArrayType(_SPARK_HEADER, containsNull=False), False),
        StructField("topic", StringType(), False),
        StructField("lane", IntegerType(), False),
        StructField("position", LongType(), False),
        StructField("timestamp", TimestampType()),
        StructField("attempt", IntegerType(), False),
    ]
)

#: a record that was leased to a handler
HANDLED_SCHEMA = StructType([*SCHEMA.fields, StructField("possibly_processed", BooleanType(), False)])

#: a dead letter: topic, lane and position are those of its origin, attempt counts the deliveries that failed
DEAD_LETTER_SCHEMA = StructType(
    [
        *SCHEMA.fields,
        StructField("id", StringType(), False),
        StructField("reason", StringType(), False),
        StructField("worker", StringType(), False),
        StructField("dead_lettered", TimestampType()),
    ]
)

_SCALARS: dict[type[DataType], pa.DataType] = {
    BinaryType: pa.binary(),
    BooleanType: pa.bool_(),
    StringType: pa.string(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    TimestampType: _ARROW_TIME,
}

Records = Sequence[record_pb2.Record]


class Rows(Protocol):
    """The records of one message, column by column."""

    def __len__(self) -> int: ...

    def column(self, name: str) -> pa.Array:
        """Raises `KeyError` for a name that is not in the schema."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects for this one."""
    return pa.schema([pa.field(one.name, _arrow_type(one.dataType), nullable=one.nullable) for one in schema.fields])


def _arrow_type(kind: DataType) -> pa.DataType:
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", _arrow_type(kind.elementType), nullable=kind.containsNull))
    if isinstance(kind, StructType):
        return pa.struct(list(arrow_schema(kind)))
    return _SCALARS[type(kind)]


def select_columns(asked: StructType, known: StructType) -> StructType:
    """The columns that a user's schema asks for, in its order, with its nullability: what Spark then expects, to the
    letter. Raises `BadOption` for one that does not exist."""
    by_name = {one.name: one for one in known.fields}
    for one in asked.fields:
        if one.name not in by_name:
            hint = did_you_mean(one.name, by_name)
            raise BadOption(f'schema: there is no column "{one.name}"; there are {", ".join(by_name)}.{hint}')
        wanted, has = one.dataType.simpleString(), by_name[one.name].dataType.simpleString()
        if wanted != has:
            raise BadOption(f'schema: the column "{one.name}" is {has}, not {wanted}; cast it after reading')
        header = one.dataType.elementType if isinstance(one.dataType, ArrayType) else None
        if isinstance(header, StructType) and not header["value"].nullable:
            raise BadOption(f'schema: the column "{one.name}": a header may have no value. Leave out NOT NULL')
    return asked


def to_arrow(rows: Rows, schema: pa.Schema) -> pa.RecordBatch:
    """One Arrow batch of all the rows. Raises `BadOption` for a null in a column that was asked for as NOT NULL."""
    return pa.RecordBatch.from_arrays([_column(rows, field) for field in schema], schema=schema)


def _column(rows: Rows, field: pa.Field) -> pa.Array:
    column = rows.column(field.name)
    if column.null_count and not field.nullable:
        # Spark would read whatever is in the buffer there.
        row = column.is_null().index(True).as_py()
        place = "/".join(str(rows.column(name)[row]) for name in ("topic", "lane", "position"))
        raise BadOption(
            f'column "{field.name}": the schema says that it is never null, and the record {place} has none (a '
            "tombstone, perhaps). Leave out NOT NULL"
        )
    return column if column.type == field.type else column.cast(field.type)


class RecordRows:
    """Records of one topic. `deliveries` has the attempt of each and whether it may have been processed already; None
    if all are delivered for the first time."""

    def __init__(self, records: Records, topic: str, deliveries: Sequence[tuple[int, bool]] | None = None) -> None:
        # Once, as a list: iterating over the repeated field creates the record objects again for each column.
        self._records = list(records)
        self._topic = topic
        self._deliveries = deliveries

    def __len__(self) -> int:
        return len(self._records)

    def column(self, name: str) -> pa.Array:
        if name == "topic":
            return constant(pa.scalar(self._topic, pa.string()), len(self._records))
        if name == "attempt":
            if self._deliveries is None:
                return constant(pa.scalar(1, pa.int32()), len(self._records))
            return pa.array([attempt for attempt, _ in self._deliveries], pa.int32())
        if name == "possibly_processed":
            if self._deliveries is None:
                return constant(pa.scalar(False, pa.bool_()), len(self._records))
            return pa.array([possibly for _, possibly in self._deliveries], pa.bool_())
        return _RECORD_COLUMNS[name](self._records)


class DeadLetterRows:
    """Dead letters of any topics."""

    def __init__(self, dead_letters: Sequence[admin_pb2.DeadLetter]) -> None:
        self._dead_letters = dead_letters
        self._records = [one.record for one in dead_letters]

    def __len__(self) -> int:
        return len(self._dead_letters)

    def column(self, name: str) -> pa.Array:
        make = _DEAD_LETTER_COLUMNS.get(name)
        return make(self._dead_letters) if make else _RECORD_COLUMNS[name](self._records)


def constant(value: pa.Scalar, length: int) -> pa.Array:
    return pa.repeat(value, length)


def _keys(records: Records) -> pa.Array:
    # HasField is slow: asked only for empty keys, the only ones that can be absent.
    return pa.array([one.key or (b"" if one.HasField("key") else None) for one in records], pa.binary())


def _values(items: Records | Sequence[record_pb2.Header]) -> pa.Array:
    return pa.array([one.value or (b"" if one.HasField("value") else None) for one in items], pa.binary())


def _headers(records: Records) -> pa.Array:
    lists = [one.headers for one in records]
    offsets = pa.array([0, *accumulate(map(len, lists))], pa.int32())
    # Most topics have no headers: do not iterate over the lists then.
    headers = list(chain.from_iterable(lists)) if offsets[-1].as_py() else []
    names = pa.array([one.name for one in headers], pa.string())
    pairs = pa.StructArray.from_arrays([names, _values(headers)], fields=list(_ARROW_HEADER))
    return pa.ListArray.from_arrays(offsets, pairs, type=_ARROW_HEADERS)


def _times(milliseconds: Sequence[int]) -> pa.Array:
    # Producers write any number, for example nanoseconds: a record that cannot be shown would block all behind it.
    times = [at * 1_000 if at and _FIRST_TIME <= at <= _LAST_TIME else None for at in milliseconds]
    return pa.array(times, pa.int64()).cast(_ARROW_TIME)


_RECORD_COLUMNS: dict[str, Callable[[Records], pa.Array]] = {
    "key": _keys,
    "value": _values,
    "headers": _headers,
    "lane": lambda records: pa.array([one.lane for one in records], pa.int32()),
    "position": lambda records: pa.array([one.position for one in records], pa.int64()),
    "timestamp": lambda records: _times([one.timestamp_ms for one in records]),
}

_DEAD_LETTER_COLUMNS: dict[str, Callable[[Sequence[Any]], pa.Array]] = {
    "topic": lambda rows: pa.array([one.topic for one in rows], pa.string()),
    "lane": lambda rows: pa.array([one.lane for one in rows], pa.int32()),
    "position": lambda rows: pa.array([one.position for one in rows], pa.int64()),
    "attempt": lambda rows: pa.array([one.attempts for one in rows], pa.int32()),
    "id": lambda rows: pa.array([one.id for one in rows], pa.string()),
    "reason": lambda rows: pa.array([one.reason for one in rows], pa.string()),
    "worker": lambda rows: pa.array([one.worker for one in rows], pa.string()),
    "dead_lettered": lambda rows: _times([one.dead_lettered_ms for one in rows]),
}

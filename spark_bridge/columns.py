"""Records as columns: the schema that Spark sees, and Arrow batches made straight from what came over the wire.

This is the hot path of every read. protobuf's own parser (in C) takes a message apart; each column is then one pass
over the records that makes no object but the value itself.
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
from spark_bridge.errors import BadOption, nearest

_SPARK_HEADER = StructType([StructField("name", StringType(), False), StructField("value", BinaryType())])
_ARROW_HEADER = pa.struct([pa.field("name", pa.string(), nullable=False), pa.field("value", pa.binary())])
_ARROW_HEADERS = pa.list_(pa.field("element", _ARROW_HEADER, nullable=False))
_ARROW_TIME = pa.timestamp("us", tz="UTC")
#: milliseconds since 1970: the years 1 to 9999, which is what a timestamp of Spark can be
_FIRST_TIME, _LAST_TIME = -62_135_596_800_000, 253_402_300_799_999

#: of a record; a null value is not an empty one
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

#: of a record in the hands of a handler
HANDLED_SCHEMA = StructType([*SCHEMA.fields, StructField("possibly_processed", BooleanType(), False)])

#: of a dead letter: topic, lane and position are those of its origin, attempt counts the deliveries that failed
DEAD_LETTER_SCHEMA = StructType(
    [
        *SCHEMA.fields,
        StructField("id", StringType(), False),
        StructField("reason", StringType(), False),
        StructField("worker", StringType(), False),
        StructField("dead_lettered", TimestampType()),
    ]
)

_ARROW_TYPES: dict[type[DataType], pa.DataType] = {
    BinaryType: pa.binary(),
    BooleanType: pa.bool_(),
    StringType: pa.string(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    TimestampType: _ARROW_TIME,
    ArrayType: _ARROW_HEADERS,
}

Records = Sequence[record_pb2.Record]


class Rows(Protocol):
    """Records of one message, by their columns."""

    def __len__(self) -> int: ...

    def column(self, name: str) -> pa.Array:
        """Raises `KeyError` for a name that is not in the schema."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """As Spark expects batches of this schema to be."""
    return pa.schema(
        [pa.field(one.name, _ARROW_TYPES[type(one.dataType)], nullable=one.nullable) for one in schema.fields]
    )


def chosen(asked: StructType, known: StructType) -> StructType:
    """The columns that a user's schema asks for, in its order. Raises `BadOption` for those that are not there."""
    by_name = {one.name: one for one in known.fields}
    for one in asked.fields:
        if one.name not in by_name:
            raise BadOption(
                f'schema: there is no column "{one.name}"; there are {", ".join(by_name)}.{nearest(one.name, by_name)}'
            )
        wanted, has = one.dataType.simpleString(), by_name[one.name].dataType.simpleString()
        if wanted != has:
            raise BadOption(f'schema: the column "{one.name}" is {has}, not {wanted}; cast it after reading')
    return StructType([StructField(one.name, by_name[one.name].dataType, one.nullable) for one in asked.fields])


def to_arrow(rows: Rows, schema: pa.Schema) -> pa.RecordBatch:
    """One Arrow batch of all the rows."""
    return pa.RecordBatch.from_arrays([rows.column(name) for name in schema.names], schema=schema)


class RecordRows:
    """Records of one topic. `deliveries` are the attempt of each and whether it may have been processed already; None
    if this is the first for all of them."""

    def __init__(self, records: Records, topic: str, deliveries: Sequence[tuple[int, bool]] | None = None) -> None:
        # A list keeps the record objects from one column to the next.
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
        return _OF_A_RECORD[name](self._records)


class DeadLetterRows:
    """Dead letters of any topics."""

    def __init__(self, letters: Sequence[admin_pb2.DeadLetter]) -> None:
        self._letters = letters
        self._records = [letter.record for letter in letters]

    def __len__(self) -> int:
        return len(self._letters)

    def column(self, name: str) -> pa.Array:
        make = _OF_A_DEAD_LETTER.get(name)
        return make(self._letters) if make else _OF_A_RECORD[name](self._records)


def constant(value: pa.Scalar, length: int) -> pa.Array:
    return pa.repeat(value, length)


def _keys(records: Records) -> pa.Array:
    # Only an empty one can be an absent one, and that is dear to ask.
    return pa.array([one.key or (b"" if one.HasField("key") else None) for one in records], pa.binary())


def _values(records: Records) -> pa.Array:
    return pa.array([one.value or (b"" if one.HasField("value") else None) for one in records], pa.binary())


def _headers(records: Records) -> pa.Array:
    lists = [one.headers for one in records]
    offsets = pa.array([0, *accumulate(map(len, lists))], pa.int32())
    # Most topics have none, and then this is all there is to do.
    headers = list(chain.from_iterable(lists)) if offsets[-1].as_py() else []
    names = pa.array([one.name for one in headers], pa.string())
    values = [one.value or (b"" if one.HasField("value") else None) for one in headers]
    pairs = pa.StructArray.from_arrays([names, pa.array(values, pa.binary())], fields=list(_ARROW_HEADER))
    return pa.ListArray.from_arrays(offsets, pairs, type=_ARROW_HEADERS)


def _times(milliseconds: Sequence[int]) -> pa.Array:
    # Producers write what they like, nanoseconds for one: a record that cannot be shown would hold up all behind it.
    times = [at * 1_000 if at and _FIRST_TIME <= at <= _LAST_TIME else None for at in milliseconds]
    return pa.array(times, pa.int64()).cast(_ARROW_TIME)


_OF_A_RECORD: dict[str, Callable[[Records], pa.Array]] = {
    "key": _keys,
    "value": _values,
    "headers": _headers,
    "lane": lambda records: pa.array([one.lane for one in records], pa.int32()),
    "position": lambda records: pa.array([one.position for one in records], pa.int64()),
    "timestamp": lambda records: _times([one.timestamp_ms for one in records]),
}

_OF_A_DEAD_LETTER: dict[str, Callable[[Sequence[Any]], pa.Array]] = {
    "topic": lambda letters: pa.array([one.topic for one in letters], pa.string()),
    "lane": lambda letters: pa.array([one.lane for one in letters], pa.int32()),
    "position": lambda letters: pa.array([one.position for one in letters], pa.int64()),
    "attempt": lambda letters: pa.array([one.attempts for one in letters], pa.int32()),
    "id": lambda letters: pa.array([one.id for one in letters], pa.string()),
    "reason": lambda letters: pa.array([one.reason for one in letters], pa.string()),
    "worker": lambda letters: pa.array([one.worker for one in letters], pa.string()),
    "dead_lettered": lambda letters: _times([one.dead_lettered_ms for one in letters]),
}

"""`df.write.format("offramp")` and `df.writeStream.format("offramp")`: publish rows to topics.

Each task publishes its rows in order, in bounded requests, each answered when the broker has it durably. A task that
Spark retries publishes its rows again, with the same id in a header, so that readers can recognise duplicates.
"""

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from offramp import Message, Publisher
from offramp._internal.backoff import Backoff
from offramp.channel import Access
from offramp.errors import OutOfRoom, PartlyPublished, Unavailable
from spark_bridge.errors import BadOption, did_you_mean
from spark_bridge.options import WRITING, Options

#: the header with a row's id
ID_HEADER = "offramp-message-id"
#: task properties that identify the query and the micro-batch
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
#: bytes of a message beside its key, value and headers, and of a header beside its name and value; an upper estimate
_OVERHEAD = 32

_TEXT = (StringType, BinaryType)
_NUMBER = (IntegerType, LongType, ShortType)
_COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "value": _TEXT,
    "key": _TEXT,
    "headers": (ArrayType,),
    "topic": (StringType,),
    "lane": _NUMBER,
    "timestamp": (TimestampType,),
    "id": (StringType,),
}


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The result of one task."""

    rows: int


@dataclass(frozen=True)
class RowPublisher:
    """Publishes the rows of a task. Spark sends it to executors, so it holds no connection."""

    access: Access
    subscription: str | None
    broker: str | None
    topic: str | None
    max_records: int
    max_bytes: int
    timeout: float

    @classmethod
    def configured(cls, options: Options, schema: StructType) -> "RowPublisher":
        """Raises `BadOption` for invalid columns and options, before any row is written."""
        _check_columns(schema, options)
        if bool(options["subscription"]) is bool(options["broker"]):
            raise BadOption("option subscription: give it, to publish to its broker, or give option broker; not both")
        return cls(
            access=options.access(),
            subscription=options["subscription"],
            broker=options["broker"],
            topic=options["topic"],
            max_records=max(1, options["maxRecordsPerRequest"]),
            max_bytes=options["maxBytesPerRequest"],
            timeout=options["timeout"],
        )

    def publish(self, batches: Iterable[pa.RecordBatch], id_prefix: str) -> Written:
        """Returns when the broker has all rows durably."""
        rows = 0
        with Publisher(
            subscription=self.subscription, broker=self.broker, timeout=self.timeout, **asdict(self.access)
        ) as publisher:
            for topic, messages in self._requests(_rows(batches, id_prefix, self.topic)):
                self._send(publisher, topic, messages)
                rows += len(messages)
        return Written(rows)

    def _requests(self, rows: Iterable[tuple[str, Message, int]]) -> Iterator[tuple[str, list[Message]]]:
        """The rows in order, as requests to one topic within the limits."""
        topic, size = "", 0
        held: list[Message] = []
        for to, message, length in rows:
            if held and (to != topic or len(held) >= self.max_records or size + length > self.max_bytes):
                yield topic, held
                held, size = [], 0
            topic = to
            held.append(message)
            size += length
        if held:
            yield topic, held

    def _send(self, publisher: Publisher, topic: str, messages: list[Message]) -> None:
        ends = time.monotonic() + self.timeout
        backoff = Backoff()
        while True:
            try:
                publisher.publish_many(topic, messages)
                return
            except OutOfRoom:
                raise
            except (PartlyPublished, Unavailable) as error:
                if isinstance(error, PartlyPublished) and not error.retryable:
                    raise
                # The broker may have some of them. Their ids are the same the next time, and so is their order.
                pause = backoff.next()
                if time.monotonic() + pause >= ends:
                    raise
                time.sleep(pause)


class BatchWriter(DataSourceArrowWriter):
    """`df.write`: rows that a failed write has already published stay published."""

    def __init__(self, given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        options = Options(given, WRITING, "writing")
        if overwrite:
            raise BadOption('mode("overwrite"): a topic can only be appended to; use mode("append")')
        self._publisher = RowPublisher.configured(options, schema)
        # Created once, in the driver: the same for every attempt of every task.
        self._prefix: str = options["idPrefix"] or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._publisher.publish(iterator, f"{self._prefix}/{_task().partitionId()}")


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: at least once, with ids by which readers recognise a replay."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        options = Options(given, WRITING, "writing")
        self._publisher = RowPublisher.configured(options, schema)
        self._prefix: str | None = options["idPrefix"]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _task()
        prefix = self._prefix or task.getLocalProperty(_QUERY)
        return self._publisher.publish(iterator, f"{prefix}/{task.getLocalProperty(_BATCH)}/{task.partitionId()}")


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "rows are written by tasks"
    return task


def _check_columns(schema: StructType, options: Options) -> None:
    for field in schema.fields:
        takes = _COLUMNS.get(field.name)
        if takes is None:
            raise BadOption(
                f'column "{field.name}": there is no such column to write; there are {", ".join(_COLUMNS)}.'
                f"{did_you_mean(field.name, _COLUMNS)} Drop or rename it"
            )
        if not isinstance(field.dataType, takes):
            kinds = " or ".join(one.typeName() for one in takes)
            raise BadOption(f'column "{field.name}": it is {field.dataType.simpleString()} and must be {kinds}')
    names = schema.fieldNames()
    if "value" not in names:
        raise BadOption('column "value": it must be there; key, headers, topic, lane, timestamp and id may be')
    if "headers" in names:
        _check_headers(schema["headers"].dataType)
    if "topic" not in names:
        options.require("topic", "unless the rows have a column of that name")


def _check_headers(kind: Any) -> None:
    pair = kind.elementType
    if not isinstance(pair, StructType) or pair.fieldNames() != ["name", "value"]:
        raise BadOption(
            f'column "headers": it is {kind.simpleString()} and must be array<struct<name:string,value:binary>>'
        )


def _rows(batches: Iterable[pa.RecordBatch], id_prefix: str, topic: str | None) -> Iterator[tuple[str, Message, int]]:
    """Topic, message and size of each row."""
    number = 0
    for batch in batches:
        columns = {name: _values(name, batch.column(name)) for name in batch.schema.names}
        nothing = [None] * batch.num_rows
        for value, key, headers, to, lane, at, id_ in zip(
            *(columns.get(name, nothing) for name in _COLUMNS), strict=True
        ):
            if (to := to or topic) is None:
                raise BadOption(
                    f"column topic: it is null in a row, and there is no option topic for those; row {number}"
                )
            # An id among the headers was given to the record that this row was made from.
            pairs = [(one["name"], one["value"]) for one in headers or () if one["name"] != ID_HEADER]
            pairs.append((ID_HEADER, id_ or f"{id_prefix}/{number}"))
            size = _OVERHEAD + len(value or b"") + len(key or b"")
            size += sum(_OVERHEAD + len(name.encode()) + len(held or b"") for name, held in pairs)
            yield to, Message(value, key, pairs, lane, at or 0), size
            number += 1


def _values(name: str, column: pa.Array) -> list[Any]:
    if name in ("value", "key") and not pa.types.is_binary(column.type):
        # Text is sent as bytes, and the limits count bytes.
        column = column.cast(pa.binary())
    if pa.types.is_timestamp(column.type):
        # Milliseconds since 1970, as messages have them.
        column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values

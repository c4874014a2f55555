"""`handle`: calls a function with batches as DataFrames, and settles them by how it ends.

No checkpoint and no ranges: the sidecar leases batches to this process, as to any other worker. At least once.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Unpack

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from offramp import Batch, Record, connect
from offramp._internal.handlers import settle_by_result
from offramp.channel import ProofOptions
from offramp.errors import Drained
from offramp.outcomes import describe
from offramp.v1 import record_pb2 as pb
from spark_bridge.columns import HANDLED_SCHEMA, RecordRows, arrow_schema, to_arrow
from spark_bridge.errors import BadOption, SparkGone

logger = logging.getLogger("offramp.spark")

#: batches that this process may hold: those of the current group, and those that wait for the next
_CREDIT = 256
#: seconds that a batch may wait here while the function works on others, before it is given back for other workers
_PATIENCE = 60.0


#: by these an error says that a server of Spark Connect does not know the session, since it is another one
_SERVER_RESTARTED = ("INVALID_HANDLE.SESSION_CHANGED", "incorrect server side session identifier")


class InHand:
    """The records that a function was called with. Those that it does not name are acked if it returns, and retried if
    it raises."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self.batches = batches
        self._by_position: dict[tuple[str, int, int], Record] | None = None

    def __len__(self) -> int:
        return sum(map(len, self.batches))

    @property
    def lost(self) -> bool:
        """Whether some of the records were given to another worker. A function that can stop early should."""
        return any(batch.lost for batch in self.batches)

    def nack(self, rows: DataFrame | Iterable[Any], reason: str = "", *, after: float | None = None) -> None:
        """Retries these records: rows with `topic`, `lane` and `position`, or a DataFrame of them."""
        for record in self._records_of(rows):
            record.nack(reason, after=after)

    def reject(self, rows: DataFrame | Iterable[Any], reason: str) -> None:
        """Dead-letters these records now, since they will never succeed."""
        for record in self._records_of(rows):
            record.reject(reason)

    def _records_of(self, rows: DataFrame | Iterable[Any]) -> list[Record]:
        if isinstance(rows, DataFrame):
            rows = rows.select("topic", "lane", "position").collect()
        if self._by_position is None:
            records = (record for batch in self.batches for record in batch)
            self._by_position = {(one.topic, one.lane, one.position): one for one in records}
        found = []
        for row in rows:
            at = (row["topic"], row["lane"], row["position"])
            if at not in self._by_position:
                raise BadOption(f"the row {at[0]}/{at[1]}/{at[2]} is not one of those in hand")
            found.append(self._by_position[at])
        return found


Function = Callable[[DataFrame, InHand], object]


class _JvmDied(BaseException):
    """Leaves the consumer as an interruption would, so that the records held count neither as untried nor as failed."""


def handle(
    spark: SparkSession,
    address: str | None,
    subscription: str,
    fn: Function,
    *,
    max_records: int = 50_000,
    max_bytes: int = 64 << 20,
    linger: float = 0.2,
    idle: float | None = None,
    name: str | None = None,
    max_message_bytes: int = 64 << 20,
    **proof: Unpack[ProofOptions],
) -> int:
    """Calls `fn(df, batch)` with batches of a subscription, until SIGTERM. Returns how many records were handled.

    `df` has the columns of the streaming source, and `possibly_processed`; `batch` lets `fn` name single rows that
    failed (`nack`, `reject`). When `fn` returns, the rest is acked. When it raises, the rest is retried with the
    exception as the reason; `offramp.Retry`, `Reject`, `Release` and `Overloaded` are more specific. Batches are
    combined up to `max_records` and `max_bytes`, waiting `linger` seconds for more; if `fn` fails for several, it is
    called again with each alone, so that no record is blamed for another's failure. Their rows are then marked
    `possibly_processed`.

    On SIGTERM, in the main thread, it finishes the current call, releases what waits, and returns; also if nothing
    arrived for `idle` seconds. `fn` runs in the calling thread. Raises `offramp.errors.Refused` if the sidecar refuses,
    and `SparkGone` if the session ends: its records go to other workers at once. If the session was stopped, no record
    is blamed for that; if its JVM died, nobody knows what was done, and it counts as if this process had died.
    """
    for option, value in (("max_records", max_records), ("max_bytes", max_bytes)):
        if value < 1:
            raise BadOption(f"{option}: {value} is less than 1")
    handled = 0
    gone: SparkGone | None = None
    limits = GroupLimits(max_records, max_bytes, linger, idle)
    consumer = connect(
        subscription,
        credit=_CREDIT,
        patience=_PATIENCE,
        address=address,
        name=name,
        max_message_bytes=max_message_bytes,
        **proof,
    )
    try:
        with consumer:
            for group in batch_groups(consumer, limits):
                try:
                    if not _call(spark, fn, group, first_rows):
                        for batch in group:
                            _call(spark, fn, [batch], repeated_rows)
                except SparkGone as error:
                    # Raised after the consumer has closed: left by an exception, it would nack what it holds.
                    gone = error
                    break
                handled += sum(map(len, group))
    except _JvmDied as died:
        gone = SparkGone(str(died))
        gone.__cause__ = died.__cause__
    if gone is not None:
        raise gone
    return handled


class BatchSource(Protocol):
    """The part of a consumer that `batch_groups` needs."""

    def take(self, timeout: float | None) -> Batch | None:
        """The next batch; None if none arrived in time. Raises `Drained` if none will."""


@dataclass(frozen=True)
class GroupLimits:
    #: records and bytes at which a group is full; one batch alone may exceed them
    records: int
    bytes: int
    #: seconds that a group waits for more batches, from its first one on
    linger: float
    #: seconds without any batch after which there are no more groups; None: never
    idle: float | None


def batch_groups(source: BatchSource, limits: GroupLimits) -> Iterator[list[Batch]]:
    """Batches in the order in which they arrived, combined, until the source has no more.

    A batch that is redelivered after a failure stays alone: together with others it would fail them too, and use up
    their attempts.
    """
    held: Batch | None = None
    while True:
        first, held = held or _take(source, limits.idle), None
        if first is None:
            return
        group = [first]
        records, size = len(first), first.message.ByteSize()
        ends = time.monotonic() + limits.linger
        while _may_be_combined(group[-1]) and records < limits.records and size < limits.bytes:
            batch = _take(source, max(0.0, ends - time.monotonic()))
            if batch is None:
                break
            records += len(batch)
            size += batch.message.ByteSize()
            if not _may_be_combined(batch) or records > limits.records or size > limits.bytes:
                held = batch
                break
            group.append(batch)
        yield group


def _take(source: BatchSource, timeout: float | None) -> Batch | None:
    with contextlib.suppress(Drained):
        return source.take(timeout)
    return None


def _may_be_combined(batch: Batch) -> bool:
    message = batch.message
    # Some brokers flag every record as possibly processed: that alone is no failure.
    failed = any(one.attempt > 1 for one in message.redeliveries)
    return not failed and message.closed_by not in (pb.CLOSED_BY_RETRY, pb.CLOSED_BY_PROBE)


#: how the records of a batch become rows
ToRows = Callable[[Batch], RecordRows]


def _call(spark: SparkSession, fn: Function, group: Sequence[Batch], rows: ToRows) -> bool:
    """Calls the function and settles the group. Returns False if nothing was settled, since the function failed for
    several batches at once. Raises `SparkGone` and `_JvmDied`; then nothing was settled either."""
    try:
        fn(to_dataframe(spark, group, rows), InHand(group))
    except Exception as error:
        stopped = is_stopped(spark, error)
        if stopped is not False:
            _unmark(group)
            end = SparkGone if stopped else _JvmDied
            raise end(f"the Spark session has ended: {describe(error)}") from error
        if len(group) > 1:
            _unmark(group)
            logger.warning("the function failed for %d batches at once, calling it with each alone", len(group))
            return False
        settle_by_result(group[0], error)
    else:
        for batch in group:
            settle_by_result(batch, None)
    return True


def is_stopped(spark: SparkSession, error: Exception) -> bool | None:
    """Whether the session was stopped, after an error that its end may have caused. None if its JVM, or the server that
    it is connected to, is gone."""
    try:
        if isinstance(spark, SparkSession):
            context = spark.sparkContext._jsc
            return context is None or bool(context.sc().isStopped())
        return _is_stopped_on_server(spark, error)
    except Exception:
        # Which exception a dead JVM causes depends on how it died.
        return None


def _is_stopped_on_server(spark: Any, error: Exception) -> bool | None:
    """The same with Spark Connect. Raises what a call raises if there is no server."""
    if any(words in str(error) for words in _SERVER_RESTARTED):
        # The client closes the session itself then.
        return None
    # Any call tells whether the server is there.
    return bool(spark.is_stopped or not spark.version)


def to_dataframe(spark: SparkSession, batches: Sequence[Batch], rows: ToRows) -> DataFrame:
    """The records of batches, with the columns of `HANDLED_SCHEMA`."""
    schema = arrow_schema(HANDLED_SCHEMA)
    table = pa.Table.from_batches([to_arrow(rows(batch), schema) for batch in batches], schema)
    return spark.createDataFrame(table, HANDLED_SCHEMA)


def first_rows(batch: Batch) -> RecordRows:
    """For the first call with this batch."""
    deliveries = None
    if batch.message.redeliveries:
        deliveries = [batch.redelivery(index) for index in range(len(batch))]
    return RecordRows(batch.message.records, batch.topic, deliveries)


def repeated_rows(batch: Batch) -> RecordRows:
    """After a call that failed, of which nobody knows what it has done."""
    deliveries = [(batch.redelivery(index)[0], True) for index in range(len(batch))]
    return RecordRows(batch.message.records, batch.topic, deliveries)


def _unmark(group: Sequence[Batch]) -> None:
    """Discards the outcomes that the function has set for single records."""
    for batch in group:
        batch.unmark()

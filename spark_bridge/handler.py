"""`handle`: a function gets batches as DataFrames; what it has done is acked.

No checkpoint and no ranges: the sidecar leases batches to this process, as to any other worker. At least once.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Unpack

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from offramp import Batch, Record, connect
from offramp._internal.handlers import settle_by_result
from offramp.channel import ProofOptions
from offramp.outcomes import describe
from spark_bridge.columns import HANDLED_SCHEMA, RecordRows, arrow_schema, to_arrow
from spark_bridge.errors import BadOption, SparkGone
from spark_bridge.grouping import Limits, groups

logger = logging.getLogger("offramp.spark")

#: batches that this process may hold: those of a group, and those that wait for the next
_CREDIT = 256


class InHand:
    """The records that a function has in hand. What it does not name fares as the function does: done if it returns,
    to be retried if it raises."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self.batches = batches
        self._by_place: dict[tuple[str, int, int], Record] | None = None

    def __len__(self) -> int:
        return sum(map(len, self.batches))

    @property
    def lost(self) -> bool:
        """Work on a part of it is in vain: it was given to another. A function that can stop early should."""
        return any(batch.lost for batch in self.batches)

    def nack(self, rows: DataFrame | Iterable[Any], reason: str = "", *, after: float | None = None) -> None:
        """These failed and are to be tried again: rows with `topic`, `lane` and `position`, or a DataFrame of them."""
        for record in self._named(rows):
            record.nack(reason, after=after)

    def reject(self, rows: DataFrame | Iterable[Any], reason: str) -> None:
        """These will never succeed: dead-letter them now."""
        for record in self._named(rows):
            record.reject(reason)

    def _named(self, rows: DataFrame | Iterable[Any]) -> list[Record]:
        if isinstance(rows, DataFrame):
            rows = rows.select("topic", "lane", "position").collect()
        if self._by_place is None:
            records = (record for batch in self.batches for record in batch)
            self._by_place = {(one.topic, one.lane, one.position): one for one in records}
        named = []
        for row in rows:
            place = (row["topic"], row["lane"], row["position"])
            if place not in self._by_place:
                raise BadOption(f"the row {place[0]}/{place[1]}/{place[2]} is not one of those in hand")
            named.append(self._by_place[place])
        return named


Function = Callable[[DataFrame, InHand], object]


class _JvmDied(BaseException):
    """Leaves a consumer as an interruption does: what is in hand is neither untried nor failed."""


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
    """Call `fn(df, batch)` with batches of a subscription, until SIGTERM. How many records were handled.

    `df` has the columns of the streaming source, and `possibly_processed`; `batch` lets `fn` name single rows that
    failed (`nack`, `reject`). When `fn` returns, the rest is acked. When it raises, the rest is retried with the
    exception as the reason; raise `offramp.Retry`, `Reject`, `Release` or `Overloaded` to say it more exactly. Batches
    are put together up to `max_records` and `max_bytes`, waiting `linger` seconds for more; if `fn` fails for several,
    it is called again with each alone, so that nobody is blamed for a neighbour.

    On SIGTERM, in the main thread, it finishes what is in hand, gives back what waits, and returns; also if nothing
    came for `idle` seconds. `fn` runs in the calling thread. Raises `offramp.errors.Refused` if the sidecar says no,
    and `SparkGone` if the session ends: what was in hand goes to others at once. If it was stopped, no record is blamed
    for that; if its JVM died, nobody knows what was done, and it is as if this process had died.
    """
    for option, value in (("max_records", max_records), ("max_bytes", max_bytes)):
        if value < 1:
            raise BadOption(f"{option}: {value} is less than 1")
    handled = 0
    gone: SparkGone | None = None
    limits = Limits(max_records, max_bytes, linger, idle)
    consumer = connect(
        subscription, credit=_CREDIT, address=address, name=name, max_message_bytes=max_message_bytes, **proof
    )
    try:
        with consumer:
            for group in groups(consumer, limits):
                try:
                    if not _call(spark, fn, group):
                        for batch in group:
                            _call(spark, fn, [batch])
                except SparkGone as error:
                    # Raised once the consumer is left in order: left by an exception, it would nack what it holds.
                    gone = error
                    break
                handled += sum(map(len, group))
    except _JvmDied as died:
        gone = SparkGone(str(died))
        gone.__cause__ = died.__cause__
    if gone is not None:
        raise gone
    return handled


def _call(spark: SparkSession, fn: Function, group: Sequence[Batch]) -> bool:
    """False if nothing was settled: the function failed for several batches at once. Raises `SparkGone` and `_JvmDied`;
    then nothing was settled either."""
    try:
        fn(to_dataframe(spark, group), InHand(group))
    except Exception as error:
        stopped = is_stopped(spark)
        if stopped is not False:
            _unmark(group)
            end = SparkGone if stopped else _JvmDied
            raise end(f"the Spark session has ended: {describe(error)}") from error
        if len(group) > 1:
            _unmark(group)
            logger.warning("the function failed for %d batches at once; calling it with each alone", len(group))
            return False
        settle_by_result(group[0], error)
    else:
        for batch in group:
            settle_by_result(batch, None)
    return True


def is_stopped(spark: SparkSession) -> bool | None:
    """Whether the session was stopped. Asks its JVM; None: that is gone."""
    if spark.sparkContext._jsc is None:
        return True
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())
    except Exception:
        # What is raised where nobody answers differs by how it died; none of it is an answer.
        return None


def to_dataframe(spark: SparkSession, batches: Sequence[Batch]) -> DataFrame:
    """The records of batches, with the columns of `HANDLED_SCHEMA`."""
    schema = arrow_schema(HANDLED_SCHEMA)
    table = pa.Table.from_batches([to_arrow(_rows(batch), schema) for batch in batches], schema)
    return spark.createDataFrame(table, HANDLED_SCHEMA)


def _unmark(group: Sequence[Batch]) -> None:
    """What the function has named does not count if it is called again with the same records."""
    for batch in group:
        batch.unmark()


def _rows(batch: Batch) -> RecordRows:
    deliveries = None
    if batch.message.redeliveries:
        deliveries = [batch.redelivery(index) for index in range(len(batch))]
    return RecordRows(batch.message.records, batch.topic, deliveries)

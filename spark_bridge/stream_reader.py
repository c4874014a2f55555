"""The source of a streaming query: `spark.readStream.format("offramp")`.

Spark creates one in a Python process of the driver, which plans, and sends copies to the executors, which read. Its
checkpoint is the truth, and commits at the sidecar follow it: after any crash the same range is read again.

Two drivers may run with one checkpoint for a while, say because the old one still works on its last batch. Spark lets
one of them write the next batch there, and ends the other. So a reader takes the subscription over only when the
checkpoint has a batch that it has planned itself: one that loses leaves the winner its right to plan and commit.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from offramp.errors import NotFound, Unavailable
from spark_bridge.errors import BadOption, DataLoss
from spark_bridge.log_client import LogClient, Plan
from spark_bridge.options import STREAMING, NamedPosition, Options
from spark_bridge.positions import Lane, Positions, from_offset, to_offset
from spark_bridge.range_reader import Range, RangeReader, split

logger = logging.getLogger("offramp.spark")

Offset = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads one subscription for one query."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        options = Options(given, STREAMING, "a stream")
        self._options = options
        # Connects with its first call, so only in the process that plans.
        self._client = LogClient.configured(options)
        self._subscription: str = options["subscription"]
        if isinstance(options["startingPosition"], dict):
            raise BadOption("option startingPosition: positions lane by lane are for bounded reads (spark.read)")
        self._reader = RangeReader.configured(options, schema, planned=True)
        #: lost records and lanes are skipped
        self._skip_missing: bool = not options["failOnDataLoss"]
        #: proves the right to plan and commit; 0: not attached yet
        self._token = 0
        #: where a query without a checkpoint begins
        self._start: Positions | None = None
        #: what was committed before this reader attached
        self._found: Positions = {}
        #: the end of the batch that was planned last
        self._planned: Offset | None = None
        #: where the lanes ended at the last plan
        self._ends: Positions = {}
        #: the last positions that this reader has committed
        self._committed: Positions | None = None
        #: where a run with the trigger availableNow ends
        self._run_ends: Positions | None = None

    # Planning, in the driver

    def initialOffset(self) -> Offset:  # noqa: N802
        """Spark calls this more than once and never stores the result, so the sidecar pins it before it answers."""
        if self._start is None:
            wanted: NamedPosition | datetime = self._options["startingPosition"]
            # Once: a broker that is starting up may miss a lane that it has reported before.
            self._start = self._committed = self._attached().resolve_start(self._token, wanted)
            if self._found and wanted is not NamedPosition.COMMITTED:
                self._warn_of_positions(wanted, self._start)
        return to_offset(self._subscription, self._start)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark takes one limit here. If both are set, `latestOffset` applies the other too."""
        if self._options["maxRecordsPerBatch"]:
            return ReadMaxRows(self._options["maxRecordsPerBatch"])
        if self._options["maxBytesPerBatch"]:
            return ReadMaxBytes(self._options["maxBytesPerBatch"])
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Where the next batch ends; `start` itself, unchanged, if there is nothing new.

        Everything before `start` is done and in Spark's log of commits. Usually it is committed here already, but not
        after a crash: the batch that Spark then repeats is in no progress that the listener could use, and Spark calls
        `commit` for it only when it builds the next batch, which may never come.
        """
        begins = from_offset(start, self._subscription)
        existing, plan = self._plan(begins, *self._limits(limit))
        self._ends = plan.ends
        # A lane that was recreated goes back to its beginning. One that is gone keeps its position: it may come back.
        until = begins | {
            lane: max(at, existing.get(lane, at)) for lane, at in plan.until.items() if self._is_open(lane)
        }
        enough = limit.min_rows if isinstance(limit, ReadMinRows) and self._run_ends is None else 0
        if until == begins or _distance(existing, until) < enough:
            self._commit(begins)
            return start
        if self._token:
            self._commit(begins)
        # Otherwise another driver may be writing this batch to the checkpoint: see `partitions`.
        self._planned = to_offset(self._subscription, until)
        return self._planned

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The run ends where the lanes end now; lanes that appear later are for the next run."""
        self._run_ends = self._client.ends()

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """For the query's progress, where the listener finds what it needs to commit (`spark_bridge.progress`)."""
        for_commits = {"token": self._token, "address": self._client.address, "skips": self._skip_missing}
        return to_offset(self._subscription, self._ends) | for_commits

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Spark may call it at any time, for any two offsets of the checkpoint, with the same result."""
        begins, ends = from_offset(start, self._subscription), from_offset(end, self._subscription)
        if end == self._planned:
            # Spark has written the batch to the checkpoint. Another driver that has planned the same one cannot.
            self._attached()
        return split(begins, ends, self._options["maxRecordsPerPartition"])

    def commit(self, end: Offset) -> None:
        """Spark has done everything before `end`. Raises `Replaced` if another query reads the subscription now."""
        self._commit(from_offset(end, self._subscription))

    def stop(self) -> None:
        self._client.close()

    # Reading, in the executors

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        return self._reader.read(partition)

    def _attached(self) -> LogClient:
        if not self._token:
            self._token, self._found = self._client.attach(self._options["name"])
        return self._client

    def _warn_of_positions(self, wanted: NamedPosition | datetime, start: Positions) -> None:
        if all(start.get(lane, at) == at for lane, at in self._client.locate(wanted).items()):
            return
        flag = {NamedPosition.EARLIEST: "--start", NamedPosition.LATEST: "--end"}
        where = flag[wanted] if isinstance(wanted, NamedPosition) else f"--time {wanted.isoformat()}"
        logger.warning(
            "option startingPosition has no effect: the subscription %s has positions already, and the query starts "
            "there: %s. To start elsewhere, stop the query, run `offramp seek %s %s`, and start it with a new "
            "checkpoint",
            self._subscription,
            ", ".join(f"{lane} {at}" for lane, at in sorted(start.items())),
            self._subscription,
            where,
        )

    def _plan(self, begins: Positions, records: int, size: int) -> tuple[Positions, Plan]:
        """The plan, and the part of `begins` that it starts from. With failOnDataLoss=false that leaves out lanes that
        are gone, or were recreated and are shorter; otherwise they raise `DataLoss` or `NotFound`."""
        client, ceiling = self._client, self._run_ends or {}
        try:
            return begins, client.plan(begins, records, size, ceiling, self._token)
        except (DataLoss, NotFound) as error:
            if not self._skip_missing:
                raise type(error)(f"{error}. With failOnDataLoss=false the query goes on with what is there") from error
            ends = client.ends()
            existing = client.without_missing(begins, ends)
            logger.warning("skipping what no longer exists, since failOnDataLoss is false: %s", error)
            known = {lane: at for lane, at in ceiling.items() if lane in ends}
            return existing, client.plan(existing, records, size, known, self._token)

    def _commit(self, positions: Positions) -> None:
        if positions == self._committed:
            return
        client = self._attached()
        try:
            client.commit(self._token, positions, skip_missing=self._skip_missing)
        except Unavailable as error:
            # The checkpoint has it, and the next commit covers it: no reason to end the query.
            logger.warning("cannot commit now: %s", error)
        else:
            self._committed = positions

    def _limits(self, limit: ReadLimit) -> tuple[int, int]:
        """Records and bytes, 0 where there is no limit."""
        records, size = self._options["maxRecordsPerBatch"], self._options["maxBytesPerBatch"]
        if isinstance(limit, ReadAllAvailable):
            return 0, 0
        if isinstance(limit, ReadMaxRows):
            return limit.max_rows, size
        if isinstance(limit, ReadMaxBytes):
            return records, limit.max_bytes
        return records, size

    def _is_open(self, lane: Lane) -> bool:
        return self._run_ends is None or lane in self._run_ends


def _distance(start: Positions, until: Positions) -> int:
    return sum(at - start.get(lane, at) for lane, at in until.items())

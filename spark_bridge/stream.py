"""The source of a streaming query: `spark.readStream.format("offramp")`.

Spark makes one of these in a Python process of the driver, which plans, and sends copies to the executors, which read.
Its checkpoint is the truth; what is committed at the sidecar follows it. So a crash of anybody at any point reads the
same range again.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
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
from spark_bridge.control import Control, Planned
from spark_bridge.errors import BadOption, DataLoss
from spark_bridge.options import STREAMING, Named, Options
from spark_bridge.positions import Lane, Positions, from_offset, to_offset
from spark_bridge.reading import Range, RangeReader, split

logger = logging.getLogger("offramp.spark")

Offset = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's view of one subscription."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        options = Options(given, STREAMING, "a stream")
        self._options = options
        self._subscription = options.require("subscription", "as in the sidecar's configuration")
        self._access = options.access()
        if isinstance(options["startingPosition"], dict):
            raise BadOption("option startingPosition: positions lane by lane are for bounded reads (spark.read)")
        self._reader = RangeReader.configured(options, schema, planned=True)
        #: what was lost is passed over
        self._skips: bool = not options["failOnDataLoss"]
        # Made by the first call that needs it, and so only in the process that plans.
        self._control: Control | None = None
        self._token = 0
        #: where a query without a checkpoint begins
        self._start: Positions | None = None
        #: where the lanes ended when Spark asked last
        self._ends: Positions = {}
        #: what the sidecar has from here
        self._committed: Positions | None = None
        #: where a run with the trigger availableNow ends
        self._frozen: Positions | None = None

    # Planning, in the driver

    def initialOffset(self) -> Offset:  # noqa: N802
        """Asked more than once and never written down by Spark, so the sidecar pins the answer before it gives it."""
        start: Named = self._options["startingPosition"]
        if self._start is None:
            # Once: a broker that is just starting may not know of a lane that it has told of before.
            self._start = self._committed = self._attached().resolve_start(self._token, start)
        return to_offset(self._subscription, self._start)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark takes one limit here. Where both are set, `latestOffset` knows the other."""
        if self._options["maxRecordsPerBatch"]:
            return ReadMaxRows(self._options["maxRecordsPerBatch"])
        if self._options["maxBytesPerBatch"]:
            return ReadMaxBytes(self._options["maxBytesPerBatch"])
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """How far the next batch goes; `start` itself, to the letter, if there is nothing new.

        Everything before `start` is done and in Spark's log of commits. Mostly that is committed here already, but not
        after a crash: the batch that Spark then runs again is in no progress that the listener could use, and `commit`
        is for the batch before the next one, which may never come.
        """
        begins = from_offset(start, self._subscription)
        there, planned = self._plan(begins, *self._limits(limit))
        self._commit(begins)
        self._ends = planned.ends
        # A lane that was made anew goes back to its beginning. One that is gone keeps its place, should it come back.
        until = begins | {
            lane: max(at, there.get(lane, at)) for lane, at in planned.until.items() if self._is_open(lane)
        }
        if isinstance(limit, ReadMinRows) and self._frozen is None and _distance(there, until) < limit.min_rows:
            return start
        return start if until == begins else to_offset(self._subscription, until)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The run ends where the lanes end now; lanes that come later are for the next run."""
        self._frozen = self._attached().plan({}, 0, 0, {}).ends

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """For the query's progress, in which the listener finds what it needs to commit (`spark_bridge.listener`)."""
        proof = {"token": self._token, "address": self._access.target, "skips": self._skips}
        return to_offset(self._subscription, self._ends) | proof

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Pure: Spark may ask at any time, for any two offsets of the checkpoint."""
        begins, ends = from_offset(start, self._subscription), from_offset(end, self._subscription)
        return split(begins, ends, self._options["maxRecordsPerPartition"])

    def commit(self, end: Offset) -> None:
        """Spark has done everything before `end`. Raises `Replaced` if another query reads the subscription now."""
        self._commit(from_offset(end, self._subscription))

    def stop(self) -> None:
        if self._control is not None:
            self._control.close()

    # Reading, in the executors

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        return self._reader.read(partition)

    def _attached(self) -> Control:
        if self._control is None:
            control = Control(self._access, self._subscription, self._options["timeout"])
            self._token = control.attach(self._options["name"])
            self._control = control
        return self._control

    def _plan(self, begins: Positions, records: int, size: int) -> tuple[Positions, Planned]:
        """The plan, and what of `begins` it is made from: not the lanes that are gone, or that were made anew and are
        shorter, if those are to be skipped. Raises `DataLoss` or `NotFound` for them otherwise."""
        control, ceiling = self._attached(), self._frozen or {}
        try:
            return begins, control.plan(begins, records, size, ceiling)
        except (DataLoss, NotFound) as error:
            if not self._skips:
                raise type(error)(f"{error}. With failOnDataLoss=false the query goes on with what is there") from error
            ends = control.plan({}, 0, 0, {}).ends
            there = control.what_is_there(begins, ends)
            logger.warning("what is not there is skipped, since failOnDataLoss is false: %s", error)
            return there, control.plan(there, records, size, {lane: at for lane, at in ceiling.items() if lane in ends})

    def _commit(self, positions: Positions) -> None:
        if positions == self._committed:
            return
        control = self._attached()
        try:
            (control.commit_what_is_there if self._skips else control.commit)(self._token, positions)
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
        return self._frozen is None or lane in self._frozen


def _distance(start: Positions, until: Positions) -> int:
    return sum(at - start.get(lane, at) for lane, at in until.items())

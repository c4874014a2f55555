"""Reads a range of a lane, on an executor: stateless, repeatable, without acks."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from offramp.channel import Access
from offramp.errors import Failure, Incompatible, Refused, with_reason
from offramp.v1 import log_pb2 as pb
from offramp.v1 import log_pb2_grpc
from spark_bridge.columns import RecordRows, Records, Rows, arrow_schema, to_arrow
from spark_bridge.errors import DataLoss, from_rpc_error
from spark_bridge.log_client import RetryDeadline
from spark_bridge.options import Options
from spark_bridge.positions import Lane, Positions

logger = logging.getLogger("offramp.spark")

#: trailing metadata: where the lane begins and ends
_FIRST, _END = "offramp-first-position", "offramp-end-position"
#: the most tasks for one lane: where positions do not count records (Pulsar), their distance means little
_MAX_TASKS_PER_LANE = 100


class Range(InputPartition):
    """The records of one lane with start <= position < until."""

    def __init__(self, lane: Lane, start: int, until: int) -> None:
        super().__init__(None)
        self.lane = lane
        self.start = start
        self.until = until


def split(start: Positions, until: Positions, records: int) -> list[Range]:
    """The ranges between two offsets, ordered by lane: one for each lane that has moved, or several of about `records`
    records. Pure. A lane that is missing in `start` begins where `until` has it, so it has no range yet."""
    ranges: list[Range] = []
    for lane in sorted(until):
        first, stop = start.get(lane, until[lane]), until[lane]
        if first >= stop:
            continue
        step = stop - first if not records else max(records, -(-(stop - first) // _MAX_TASKS_PER_LANE))
        ranges.extend(Range(lane, at, min(at + step, stop)) for at in range(first, stop, step))
    return ranges


@dataclass(frozen=True)
class RangeReader:
    """Reads ranges. Spark sends it to executors, so it holds no connection."""

    access: Access
    subscription: str
    schema: StructType
    max_message_bytes: int
    fail_on_data_loss: bool
    timeout: float
    #: ranges were planned within their lanes, so a lane that ends before its range has lost records
    planned: bool = True

    @classmethod
    def configured(cls, options: Options, schema: StructType, *, planned: bool) -> "RangeReader":
        return cls(
            access=options.access("readAddress"),
            subscription=options["subscription"],
            schema=schema,
            max_message_bytes=options["maxMessageBytes"],
            fail_on_data_loss=options["failOnDataLoss"],
            timeout=options["timeout"],
            planned=planned,
        )

    def read(self, wanted: Range, rows: Callable[[Records], Rows] | None = None) -> Iterator[pa.RecordBatch]:
        """The records in order, each once. If the sidecar goes away, waits for it and continues after the last record.

        `rows` converts the records of a message; the default is plain records.
        """
        rows = rows or (lambda records: RecordRows(records, wanted.lane.topic))
        schema = arrow_schema(self.schema)
        deadline = RetryDeadline(self.timeout)
        position = wanted.start
        while position < wanted.until:
            try:
                with self.access.open(self.max_message_bytes) as channel:
                    call = self._call(channel, wanted, position)
                    for message in call:
                        if message.records:
                            yield to_arrow(rows(message.records), schema)
                            position = message.records[-1].position + 1
                            deadline.progressed()
                    self._check_end(wanted, _trailing_metadata(call))
                return
            except grpc.RpcError as error:
                failure = Failure.of(error)
                match failure.reason:
                    case "OUT_OF_RANGE":
                        position = self._skip(wanted, position, error)
                    case "RECORD_TOO_LARGE":
                        text = f"{wanted.lane}: {failure.text}. Set maxMessageBytes to more than that"
                        raise with_reason(Refused(text), failure) from error
                    case "UNREAD_STREAM":
                        # This task was slow, and the sidecar ends a call whose messages stay unread for longer than
                        # `listen.unread`.
                        continue
                    case _:
                        deadline.wait_or_raise(error, self.access.target)

    def _call(self, channel: grpc.Channel, wanted: Range, position: int) -> Any:
        """An iterator over the messages, which has the call's trailing metadata once it has ended."""
        request = pb.ReadRangeRequest(
            subscription=self.subscription,
            topic=wanted.lane.topic,
            lane=wanted.lane.number,
            start=position,
            until=wanted.until,
            max_message_bytes=self.max_message_bytes,
        )
        stub = log_pb2_grpc.LogServiceStub(channel)  # type: ignore[no-untyped-call]
        return stub.ReadRange(request)

    def _check_end(self, wanted: Range, metadata: Mapping[str, str]) -> None:
        """Raises `DataLoss` if the lane has become shorter than what was planned.

        By its end and not by the last record: the last positions may have no record (compaction, markers).
        """
        if _END not in metadata:
            raise Incompatible(
                f"{self.access.target}: the sidecar there is older than this bridge and does not say where a range "
                "ended. Use a sidecar of the bridge's version, or a newer one"
            )
        end = int(metadata[_END])
        if not self.planned or end >= wanted.until:
            return
        lost = f"{wanted.lane} ends at {end} by now, and was to be read to {wanted.until - 1}"
        if self.fail_on_data_loss:
            raise DataLoss(
                f"{lost}: the topic was recreated, its broker has lost records, or {self.access.target} has another "
                "broker. Set failOnDataLoss to false to go on without them"
            )
        logger.warning("%s: the rest is lost, and failOnDataLoss is false", lost)

    def _skip(self, wanted: Range, position: int, error: grpc.RpcError) -> int:
        """Where to continue after records that are gone; raises `DataLoss` if they must not be skipped."""
        metadata = _trailing_metadata(error)
        if _FIRST not in metadata or _END not in metadata:
            raise from_rpc_error(error, self.access.target) from error
        first, end = int(metadata[_FIRST]), int(metadata[_END])
        if end < position:
            # Nothing of the range exists. The recreated lane is planned from its first position, see `StreamReader`.
            lost = (
                f"{wanted.lane} was recreated: it ends at {end}, and {position} to {wanted.until - 1} were to be read"
            )
            continue_at = wanted.until
        elif first <= position:
            # Lost before what is read already, or at the lane's end since this read began.
            lost = f"{wanted.lane}: a part is gone"
            continue_at = position
        else:
            lost = f"{wanted.lane}: positions {position} to {min(first, wanted.until) - 1} are gone"
            continue_at = first
        lost = f"{lost}: {from_rpc_error(error, self.access.target)}"
        if self.fail_on_data_loss:
            raise DataLoss(f"{lost}. Set failOnDataLoss to false to go on without them") from error
        logger.warning("%s. They are skipped, since failOnDataLoss is false", lost)
        return continue_at


def _trailing_metadata(call: Any) -> dict[str, str]:
    return {one.key: one.value for one in call.trailing_metadata() or ()}

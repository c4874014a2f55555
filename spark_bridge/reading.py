"""Reading a range on an executor: stateless, repeatable, without an ack."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from offramp.channel import Access
from offramp.errors import Incompatible, Refused, status
from offramp.v1 import log_pb2 as pb
from offramp.v1 import log_pb2_grpc
from spark_bridge.columns import RecordRows, Records, Rows, arrow_schema, to_arrow
from spark_bridge.control import Attempts
from spark_bridge.errors import DataLoss, translated
from spark_bridge.options import Options
from spark_bridge.positions import Lane, Positions

logger = logging.getLogger("offramp.spark")

#: the trailing metadata in which the sidecar says where a lane begins and ends
_FIRST, _END = "offramp-first-position", "offramp-end-position"
#: no lane is split into more tasks: where positions do not count records (Pulsar), their distance says little
_MOST_PIECES = 100


class Range(InputPartition):
    """The records of one lane with start <= position < until."""

    def __init__(self, lane: Lane, start: int, until: int) -> None:
        super().__init__(None)
        self.lane = lane
        self.start = start
        self.until = until


def split(start: Positions, until: Positions, records: int) -> list[Range]:
    """The ranges between two offsets, in the order of their lanes: one for each lane that has moved, or pieces of about
    so many records. Pure. A lane that `start` does not know begins where `until` has it, and so has nothing yet."""
    out: list[Range] = []
    for lane in sorted(until):
        first, stop = start.get(lane, until[lane]), until[lane]
        if first >= stop:
            continue
        step = stop - first if not records else max(records, -(-(stop - first) // _MOST_PIECES))
        out.extend(Range(lane, at, min(at + step, stop)) for at in range(first, stop, step))
    return out


@dataclass(frozen=True)
class RangeReader:
    """Reads ranges. Is sent to executors, and holds nothing open."""

    access: Access
    subscription: str
    schema: StructType
    max_message_bytes: int
    fail_on_data_loss: bool
    timeout: float
    #: ranges were planned within their lanes, so that a lane that ends before its range has lost something
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
        """The records in order, each once. A sidecar that goes away is waited for, and read on from where it was.

        `rows` says what becomes of the records of a message, if they are not to be shown as what they are.
        """
        rows = rows or (lambda records: RecordRows(records, wanted.lane.topic))
        schema = arrow_schema(self.schema)
        attempts = Attempts(self.timeout)
        position = wanted.start
        while position < wanted.until:
            began = position
            try:
                with self.access.open(self.max_message_bytes) as channel:
                    answers = self._ask(channel, wanted, position)
                    for message in answers:
                        if message.records:
                            yield to_arrow(rows(message.records), schema)
                            position = message.records[-1].position + 1
                            attempts.progressed()
                    self._check_end(wanted, _said(answers))
                return
            except grpc.RpcError as error:
                code, details = status(error)
                if code is grpc.StatusCode.OUT_OF_RANGE:
                    position = self._skip(wanted, position, error)
                elif code is grpc.StatusCode.RESOURCE_EXHAUSTED and position == began:
                    raise Refused(f"{wanted.lane}: {details}. Set maxMessageBytes to more than that") from error
                elif code is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    attempts.again_after(error, self.access.target)
                # Else records came, so that it was not the size of one: this task was slow, and the sidecar keeps
                # nothing waiting for longer than `listen.unread`.

    def _ask(self, channel: grpc.Channel, wanted: Range, position: int) -> Any:
        """The messages, one by one, of a call that can be asked how it ended."""
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

    def _check_end(self, wanted: Range, said: Mapping[str, str]) -> None:
        """Raises `DataLoss` if the lane has become shorter than what was planned of it.

        By its end and not by the last record: there may be none at the last positions (compaction, markers).
        """
        if _END not in said:
            raise Incompatible(
                f"{self.access.target}: the sidecar there is older than this bridge and does not say where a range "
                "ended. Use a sidecar of the bridge's version, or a newer one"
            )
        end = int(said[_END])
        if not self.planned or end >= wanted.until:
            return
        lost = f"{wanted.lane} ends at {end} by now, and was to be read to {wanted.until - 1}"
        if self.fail_on_data_loss:
            raise DataLoss(
                f"{lost}: the topic was made anew, its broker has lost records, or {self.access.target} has another "
                "broker. Set failOnDataLoss to false to go on without them"
            )
        logger.warning("%s: the rest is lost, and failOnDataLoss is false", lost)

    def _skip(self, wanted: Range, position: int, error: grpc.RpcError) -> int:
        """Where to go on after what is not there; raises `DataLoss` if that is not to be skipped."""
        said = _said(error)
        if _FIRST not in said or _END not in said:
            raise translated(error, self.access.target) from error
        first, end = int(said[_FIRST]), int(said[_END])
        if end < position:
            # None of it is there. What the new lane has is planned from its first position on, see `StreamReader`.
            lost = (
                f"{wanted.lane} was made anew: it ends at {end}, and {position} to {wanted.until - 1} were to be read"
            )
            goes_on = wanted.until
        elif first <= position:
            # It was before what is read already, or is what the lane had at its end when this read began.
            lost = f"{wanted.lane}: a part is gone"
            goes_on = position
        else:
            lost = f"{wanted.lane}: positions {position} to {min(first, wanted.until) - 1} are gone"
            goes_on = first
        lost = f"{lost}: {translated(error, self.access.target)}"
        if self.fail_on_data_loss:
            raise DataLoss(f"{lost}. Set failOnDataLoss to false to go on without them") from error
        logger.warning("%s. They are skipped, since failOnDataLoss is false", lost)
        return goes_on


def _said(call: Any) -> dict[str, str]:
    """The trailing metadata of a call that has ended."""
    return {one.key: one.value for one in call.trailing_metadata() or ()}

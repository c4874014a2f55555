"""Bounded reads: `spark.read.format("offramp")`, over a range, a time span, or the dead letters."""

from collections.abc import Iterator, Mapping, Sequence

import grpc
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from offramp.v1 import admin_pb2, admin_pb2_grpc
from spark_bridge.columns import DeadLetterRows, arrow_schema, to_arrow
from spark_bridge.control import Attempts, Control
from spark_bridge.errors import BadOption
from spark_bridge.options import Named, Options, Position
from spark_bridge.positions import Lane, Positions
from spark_bridge.reading import Range, RangeReader, split

#: all of them
_LIMIT = 2**32 - 1


class BoundedReader(DataSourceReader):
    """A range of each lane, fixed when the query is planned. Nothing is committed, pinned or leased."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._subscription = options.require("subscription", "as in the sidecar's configuration")
        self._access = options.access()
        for name, never in (("startingPosition", Named.COMMITTED), ("endingPosition", Named.COMMITTED)):
            if options[name] is never:
                raise BadOption(f'option {name}: "{never.value}" is for streams; a bounded read has no memory')
        self._reader = RangeReader.configured(options, schema, planned=not isinstance(options["endingPosition"], dict))

    def partitions(self) -> Sequence[InputPartition]:
        with Control(self._access, self._subscription, self._options["timeout"]) as control:
            first = control.locate(Named.EARLIEST)
            start = _positions("startingPosition", self._options["startingPosition"], control, first)
            end = _positions("endingPosition", self._options["endingPosition"], control, first)
        return split(start, end, self._options["maxRecordsPerPartition"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark plans one empty partition where there is none.
        return self._reader.read(partition) if isinstance(partition, Range) else iter(())


def _positions(option: str, wanted: Position, control: Control, lanes: Positions) -> Positions:
    if not isinstance(wanted, dict):
        return control.locate(wanted)
    unknown = [str(lane) for lane in wanted if lane not in lanes]
    if unknown:
        raise BadOption(f"option {option}: there is no lane {', '.join(unknown)}; there are {_names(lanes)}")
    # What is not named is not read.
    return wanted


def _names(lanes: Mapping[Lane, int]) -> str:
    return ", ".join(map(str, sorted(lanes)))


class DeadLetterReader(DataSourceReader):
    """The dead letters of a subscription, oldest first, by one task."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._subscription = options.require("subscription", "as in the sidecar's configuration")
        self._access = options.access("readAddress")
        self._max_message_bytes: int = options["maxMessageBytes"]
        self._timeout: float = options["timeout"]
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self._schema)
        request = admin_pb2.ListDeadLettersRequest(subscription=self._subscription, limit=_LIMIT)
        attempts = Attempts(self._timeout)
        read = 0
        while True:
            seen = 0
            try:
                with self._access.open(self._max_message_bytes) as channel:
                    stub = admin_pb2_grpc.AdminServiceStub(channel)  # type: ignore[no-untyped-call]
                    for message in stub.ListDeadLetters(request):
                        # Dead letters keep their order, so that those given out before a restart can be passed over.
                        letters = message.dead_letters[max(0, read - seen) :]
                        seen += len(message.dead_letters)
                        if letters:
                            yield to_arrow(DeadLetterRows(letters), schema)
                            read = seen
                            attempts.progressed()
                return
            except grpc.RpcError as error:
                attempts.again_after(error, self._access.target)

"""Bounded reads: `spark.read.format("offramp")`, over a range, a time span, or the dead letters."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_bridge.columns import DeadLetterRows
from spark_bridge.control import Control
from spark_bridge.errors import BadOption
from spark_bridge.letters import letters
from spark_bridge.options import Named, Options, Position
from spark_bridge.positions import Lane, Positions
from spark_bridge.reading import Range, RangeReader, split


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


class Letters(Range):
    """A range of the dead-letter topic of a group."""

    def __init__(self, group: str, wanted: Range) -> None:
        super().__init__(wanted.lane, wanted.start, wanted.until)
        self.group = group


class DeadLetterReader(DataSourceReader):
    """The dead letters of a subscription that are there when the query is planned. In no order, as a DataFrame is; one
    that was written twice, because its write and the commit behind it are not one step, is there twice."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        options.refuse(
            "startingPosition",
            "endingPosition",
            why="dead letters are read as a whole; choose among them by their columns, as dead_lettered",
        )
        self._subscription = options.require("subscription", "as in the sidecar's configuration")
        self._access = options.access()
        self._reader = RangeReader.configured(options, schema, planned=True)

    def partitions(self) -> Sequence[InputPartition]:
        with Control(self._access, self._subscription, self._options["timeout"]) as control:
            start, group = control.locate_dead_letters(Named.EARLIEST)
            end, _ = control.locate_dead_letters(Named.LATEST)
        ranges = split(start, end, self._options["maxRecordsPerPartition"])
        return [Letters(group, one) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Letters):
            # Spark plans one empty partition where there is none.
            return iter(())
        group = partition.group
        return self._reader.read(partition, lambda records: DeadLetterRows(letters(records, group)))

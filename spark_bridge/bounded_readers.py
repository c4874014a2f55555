"""Bounded reads, `spark.read.format("offramp")`: a range, a time span, or the dead letters. Run in the driver."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_bridge.columns import DeadLetterRows
from spark_bridge.dead_letters import parse_dead_letters
from spark_bridge.errors import BadOption
from spark_bridge.log_client import LogClient
from spark_bridge.options import NamedPosition, Options, Position
from spark_bridge.positions import Positions
from spark_bridge.range_reader import Range, RangeReader, split


class BoundedReader(DataSourceReader):
    """Reads one range of each lane, fixed when the query is planned. Commits, pins and leases nothing."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._client = LogClient.configured(options)
        for name in ("startingPosition", "endingPosition"):
            if options[name] is NamedPosition.COMMITTED:
                raise BadOption(f'option {name}: "committed" is for streams; a bounded read keeps no position')
        self._reader = RangeReader.configured(options, schema, planned=not isinstance(options["endingPosition"], dict))

    def partitions(self) -> Sequence[InputPartition]:
        with self._client as client:
            known = client.locate(NamedPosition.EARLIEST)
            start = _positions("startingPosition", self._options["startingPosition"], client, known)
            end = _positions("endingPosition", self._options["endingPosition"], client, known)
        return split(start, end, self._options["maxRecordsPerPartition"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark plans one empty partition where there is none.
        return self._reader.read(partition) if isinstance(partition, Range) else iter(())


def _positions(option: str, wanted: Position, client: LogClient, known: Positions) -> Positions:
    """The positions that an option names. Lanes that it does not name are not read."""
    if not isinstance(wanted, dict):
        return client.locate(wanted)
    if unknown := [str(lane) for lane in wanted if lane not in known]:
        names = ", ".join(map(str, sorted(known)))
        raise BadOption(f"option {option}: there is no lane {', '.join(unknown)}; there are {names}")
    return wanted


class DeadLetterRange(Range):
    """A range of a dead-letter topic, of which only the dead letters of `group` are wanted."""

    def __init__(self, group: str, wanted: Range) -> None:
        super().__init__(wanted.lane, wanted.start, wanted.until)
        self.group = group


class DeadLetterReader(DataSourceReader):
    """Reads the dead letters of a subscription that exist when the query is planned, in no particular order. One may
    appear twice: writing it and committing its record are not one step."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        options.refuse(
            "startingPosition",
            "endingPosition",
            why="dead letters are read as a whole; choose among them by their columns, as dead_lettered",
        )
        self._client = LogClient.configured(options)
        self._reader = RangeReader.configured(options, schema, planned=True)

    def partitions(self) -> Sequence[InputPartition]:
        with self._client as client:
            start, group = client.locate_dead_letters(NamedPosition.EARLIEST)
            end, _ = client.locate_dead_letters(NamedPosition.LATEST)
        ranges = split(start, end, self._options["maxRecordsPerPartition"])
        return [DeadLetterRange(group, one) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, DeadLetterRange):
            # Spark plans one empty partition where there is none.
            return iter(())
        group = partition.group
        return self._reader.read(partition, lambda records: DeadLetterRows(parse_dead_letters(records, group)))

"""`format("offramp")`: the data source that is registered with Spark."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spark_bridge.bounded_readers import BoundedReader, DeadLetterReader
from spark_bridge.columns import DEAD_LETTER_SCHEMA, SCHEMA, select_columns
from spark_bridge.options import BOUNDED, STREAMING, Options
from spark_bridge.stream_reader import StreamReader
from spark_bridge.writers import BatchWriter, StreamWriter


class OfframpDataSource(DataSource):
    """Reads subscriptions, bounded or as streams, and writes to topics. Each reader and writer checks its options."""

    @classmethod
    def name(cls) -> str:
        return "offramp"

    def schema(self) -> StructType:
        # Called by `load()` for both kinds of reads: misspelt options are found here.
        options = Options(self.options, BOUNDED | STREAMING, "reading")
        return DEAD_LETTER_SCHEMA if options["deadLetters"] else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        options = Options(self.options, BOUNDED, "a bounded read")
        if options["deadLetters"]:
            return DeadLetterReader(options, select_columns(schema, DEAD_LETTER_SCHEMA))
        return BoundedReader(options, select_columns(schema, SCHEMA))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return StreamReader(self.options, select_columns(schema, SCHEMA))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return StreamWriter(self.options, schema)

"""`format("offramp")`: what Spark is told of the bridge."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spark_bridge.bounded import BoundedReader, DeadLetterReader
from spark_bridge.columns import DEAD_LETTER_SCHEMA, SCHEMA, chosen
from spark_bridge.options import BOUNDED, STREAMING, Options
from spark_bridge.sink import BatchWriter, StreamWriter
from spark_bridge.stream import StreamReader


class OfframpDataSource(DataSource):
    """Reads subscriptions, bounded or as streams, and writes to topics. Options are checked by whoever uses them."""

    @classmethod
    def name(cls) -> str:
        return "offramp"

    def schema(self) -> StructType:
        # Asked for both kinds of reads, before either: misspelt names are found here, at `load()`.
        options = Options(self.options, BOUNDED | STREAMING, "reading")
        return DEAD_LETTER_SCHEMA if options["deadLetters"] else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        options = Options(self.options, BOUNDED, "a bounded read")
        if options["deadLetters"]:
            return DeadLetterReader(options, chosen(schema, DEAD_LETTER_SCHEMA))
        return BoundedReader(options, chosen(schema, SCHEMA))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return StreamReader(self.options, chosen(schema, SCHEMA))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return StreamWriter(self.options, schema)

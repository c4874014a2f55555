"""Offramp for Apache Spark: subscriptions as DataFrames, and PySpark jobs as handlers.

    import spark_bridge

    spark_bridge.install(spark)
    clicks = spark.readStream.format("offramp").option("address", "...").option("subscription", "clicks").load()

`install` registers `format("offramp")` where Spark has not found it by itself, and commits as queries progress;
`flush` commits what a query has done once it has ended; `handle` calls a function with DataFrames of batches and acks
them. `python -m spark_bridge` is a ready job. What this module exports is the public interface of the package.

| module | what it is for |
|---|---|
| `datasource` | `format("offramp")`: chooses the reader or writer that Spark asks for |
| `pyspark_offramp` | where Spark finds the data source by itself; a package beside this one once installed |
| `stream_reader` | plans the micro-batches of `readStream`, in the driver |
| `bounded_readers` | plan `spark.read`: ranges of lanes, or dead letters |
| `range_reader` | reads one range, on an executor |
| `writers` | `write` and `writeStream`: publish rows, on executors |
| `commit_listener` | `install`, `flush`, and commits as queries progress |
| `handler` | `handle`: a function as the handler of a leased subscription |
| `job` | the ready job: its command line, the query, its output |
| `log_client` | the driver's calls of `LogService`, with retries |
| `columns` | the schemas, and records as Arrow columns |
| `dead_letters` | dead letters as they are stored in their topic |
| `options` | all options with their documentation |
| `positions` | lanes, positions, and the offset in Spark's checkpoint |
| `progress` | what a query's progress says about our sources |
| `errors` | the error tree |
"""

from spark_bridge.commit_listener import Committer, flush, install
from spark_bridge.datasource import OfframpDataSource
from spark_bridge.errors import BadOption, DataLoss, Replaced, SparkGone, WrongCheckpoint
from spark_bridge.handler import InHand, handle

__all__ = [
    "BadOption",
    "Committer",
    "DataLoss",
    "InHand",
    "OfframpDataSource",
    "Replaced",
    "SparkGone",
    "WrongCheckpoint",
    "flush",
    "handle",
    "install",
]

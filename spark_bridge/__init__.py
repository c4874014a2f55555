"""Offramp for Apache Spark: subscriptions as DataFrames, and PySpark jobs as handlers.

    import spark_bridge

    spark_bridge.install(spark)
    clicks = spark.readStream.format("offramp").option("address", "...").option("subscription", "clicks").load()

`install` makes `format("offramp")` known to a session, for reading and for writing, and commits as queries progress;
`flush` commits what a query has done once it has ended; `handle` calls a function with DataFrames of batches, and acks
what it has done. `python -m spark_bridge` is a ready job. What this module exports is the interface of the package.
"""

from spark_bridge.datasource import OfframpDataSource
from spark_bridge.errors import BadOption, DataLoss, Replaced, SparkGone, WrongCheckpoint
from spark_bridge.handler import InHand, handle
from spark_bridge.listener import Committer, flush, install

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

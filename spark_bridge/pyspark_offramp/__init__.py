"""Where Spark finds the data source by itself: it looks for `DefaultSource` in packages named `pyspark_...`."""

from spark_bridge.datasource import OfframpDataSource as DefaultSource

__all__ = ["DefaultSource"]

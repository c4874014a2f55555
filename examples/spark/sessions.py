"""Clicks into sessions, sessions into counts per minute. Nothing here knows of Offramp."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

#: of a click, as JSON in the value of a record
CLICK = "user string, page string, at timestamp"
#: a user who clicks nothing for so long has left: the session is over
GAP = "30 seconds"
#: clicks may come so late; a minute is done when no such click can change it
LATE = "10 seconds"


def per_minute(records: DataFrame) -> DataFrame:
    """Sessions by the minute in which they ended: how many, and their clicks. A minute comes once, when it is done."""
    clicks = records.select(f.from_json(f.col("value").cast("string"), CLICK).alias("click")).select("click.*")
    sessions = (
        clicks.where("user IS NOT NULL AND at IS NOT NULL")
        .withWatermark("at", LATE)
        .groupBy(f.session_window("at", GAP).alias("session"), "user")
        .agg(f.count("*").alias("clicks"))
    )
    minutes = sessions.groupBy(f.window(f.window_time("session"), "1 minute").alias("minute")).agg(
        f.count("*").alias("sessions"), f.sum("clicks").alias("clicks")
    )
    return minutes.select(f.col("minute.start").alias("minute"), "sessions", "clicks")


def as_messages(minutes: DataFrame) -> DataFrame:
    """The same as messages for a topic: the minute is the key."""
    value = f.to_json(f.struct("minute", "sessions", "clicks"))
    return minutes.select(f.col("minute").cast("string").alias("key"), value.alias("value"))

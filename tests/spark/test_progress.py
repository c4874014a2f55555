"""What the bridge reads from a query's progress."""

import json
from typing import Any

from spark_bridge.errors import root_cause
from spark_bridge.job import batch_line
from spark_bridge.positions import Lane, to_offset
from spark_bridge.progress import SourceProgress, source_progress

LANE = Lane("orders", 0)


def source(at: int, end: int, **more: Any) -> dict[str, Any]:
    reported = to_offset("orders", {LANE: end}) | {"token": 9, "address": "127.0.0.1:4770"}
    return {"endOffset": json.dumps(to_offset("orders", {LANE: at})), "latestOffset": json.dumps(reported), **more}


def test_a_source_of_ours_says_what_is_done_and_who_may_commit_it() -> None:
    assert source_progress([source(5, 8)]) == [SourceProgress("127.0.0.1:4770", "orders", 9, {LANE: 5}, {LANE: 8})]


def test_other_sources_and_those_without_an_offset_are_skipped() -> None:
    others: list[dict[str, Any]] = [
        {"endOffset": "17", "latestOffset": "18"},
        {"endOffset": "null", "latestOffset": None},
        {},
    ]
    assert source_progress(others) == []
    assert source_progress([source(5, 8, latestOffset="null")]) == []


def test_the_line_of_a_batch_has_the_rate_and_the_lag() -> None:
    progress = {"batchId": 3, "numInputRows": 5_000, "batchDuration": 2_000, "sources": [source(5, 1_008)]}
    assert batch_line(progress) == "batch 3: 5,000 records in 2.0 s (2,500/s), 1,003 behind"


def test_the_root_cause_is_found_among_the_stack_traces_of_two_languages() -> None:
    text = """[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):
  File "range_reader.py", line 80, in read
spark_bridge.errors.DataLoss: orders/0: positions 3 to 7 are gone
 SQLSTATE: XXKST

JVM stacktrace:
org.apache.spark.SparkException: x"""
    assert root_cause(RuntimeError(text)) == "orders/0: positions 3 to 7 are gone"
    assert root_cause(RuntimeError("plain\n\nJVM stacktrace:\nx.y.Z: w")) == "plain"

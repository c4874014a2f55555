"""What is read from a query's progress."""

import json
from typing import Any

from spark_bridge.positions import Lane, to_offset
from spark_bridge.progress import Done, done
from spark_bridge.terminal import behind, cause, line

LANE = Lane("orders", 0)


def source(at: int, end: int, **more: Any) -> dict[str, Any]:
    reported = to_offset("orders", {LANE: end}) | {"token": 9, "address": "127.0.0.1:4770"}
    return {"endOffset": json.dumps(to_offset("orders", {LANE: at})), "latestOffset": json.dumps(reported), **more}


def test_a_source_of_ours_says_what_is_done_and_who_may_commit_it() -> None:
    assert done([source(5, 8)]) == [Done("127.0.0.1:4770", "orders", 9, {LANE: 5})]


def test_other_sources_and_those_without_an_offset_are_passed_over() -> None:
    assert done([{"endOffset": "17", "latestOffset": "18"}, {"endOffset": "null", "latestOffset": None}, {}]) == []
    assert done([source(5, 8, latestOffset="null")]) == []


def test_a_line_for_people_has_the_rate_and_what_is_left() -> None:
    progress = {"batchId": 3, "numInputRows": 5_000, "batchDuration": 2_000, "sources": [source(5, 1_008)]}
    assert behind(progress) == 1_003
    assert line(progress) == "batch 3: 5,000 records in 2.0 s (2,500/s), 1,003 behind"


def test_the_cause_is_found_among_the_stacks_of_two_languages() -> None:
    text = """[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):
  File "reading.py", line 80, in read
spark_bridge.errors.DataLoss: orders/0: positions 3 to 7 are gone
 SQLSTATE: XXKST

JVM stacktrace:
org.apache.spark.SparkException: x"""
    assert cause(RuntimeError(text)) == "orders/0: positions 3 to 7 are gone"
    assert cause(RuntimeError("plain\n\nJVM stacktrace:\nx.y.Z: w")) == "plain"

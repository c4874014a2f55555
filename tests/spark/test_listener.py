"""Committing what a query's progress says, with a real sidecar and without Spark."""

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from spark_bridge.columns import SCHEMA
from spark_bridge.errors import Replaced
from spark_bridge.listener import Committer, flush
from spark_bridge.stream import StreamReader
from tests.e2e.harness import eventually
from tests.spark.stage import Stage

OTHER = {"endOffset": "17", "latestOffset": "18"}


def source(reader: StreamReader, end: dict[str, Any]) -> dict[str, Any]:
    """As Spark puts it into a progress."""
    return {"endOffset": json.dumps(end), "latestOffset": json.dumps(reader.reportLatestOffset())}


def event(*sources: dict[str, Any]) -> Any:
    return SimpleNamespace(progress=SimpleNamespace(sources=sources))


def query(*progresses: list[dict[str, Any]]) -> Any:
    return SimpleNamespace(recentProgress=[{"sources": sources} for sources in progresses])


@pytest.fixture
def reader(stage: Stage) -> StreamReader:
    stage.numbers(0, 20)
    return StreamReader(stage.options(), SCHEMA)


def test_progress_is_committed_and_the_newest_wins(stage: Stage, reader: StreamReader) -> None:
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(6))
    last = reader.latestOffset(first, ReadAllAvailable())
    committer = Committer()
    committer.onQueryProgress(event(OTHER, source(reader, first)))
    committer.onQueryProgress(event(source(reader, last)))
    eventually(lambda: stage.committed() == last["lanes"], "it is committed")
    committer.close()


def test_a_flush_has_committed_when_it_returns(stage: Stage, reader: StreamReader) -> None:
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(6))
    last = reader.latestOffset(first, ReadAllAvailable())
    flush(query())
    flush(query([OTHER], [source(reader, first)], [source(reader, last)], [OTHER]))
    eventually(lambda: stage.committed() == last["lanes"], "the status shows it")


def test_a_query_that_was_replaced_commits_nothing(
    stage: Stage, reader: StreamReader, caplog: pytest.LogCaptureFixture
) -> None:
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    StreamReader(stage.options(), SCHEMA).latestOffset(start, ReadAllAvailable())
    with pytest.raises(Replaced):
        flush(query([source(reader, end)]))
    committer = Committer()
    with caplog.at_level(logging.WARNING, "offramp.spark"):
        committer.onQueryProgress(event(source(reader, end)))
        eventually(lambda: "a query that was replaced has not committed" in caplog.text, "it is told")
    committer.close()
    assert stage.committed() == start["lanes"]

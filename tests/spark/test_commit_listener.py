"""Commits from a query's progress, with a real sidecar and without Spark."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from spark_bridge.columns import SCHEMA
from spark_bridge.commit_listener import Committer, flush, install
from spark_bridge.errors import BadOption, Replaced
from spark_bridge.log_client import LogClient
from spark_bridge.positions import Positions
from spark_bridge.stream_reader import StreamReader
from tests.e2e.harness import eventually
from tests.spark.environment import SparkEnvironment
from tests.spark.queries import finished_query, source_progress

OTHER = {"endOffset": "17", "latestOffset": "18"}


def event(*sources: dict[str, Any]) -> Any:
    return SimpleNamespace(progress=SimpleNamespace(sources=sources))


@pytest.fixture
def reader(environment: SparkEnvironment) -> StreamReader:
    environment.numbers(0, 20)
    return StreamReader(environment.options(), SCHEMA)


def test_progress_is_committed_and_the_newest_wins(environment: SparkEnvironment, reader: StreamReader) -> None:
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(6))
    last = reader.latestOffset(first, ReadAllAvailable())
    committer = Committer()
    committer.onQueryProgress(event(OTHER, source_progress(reader, first)))
    committer.onQueryProgress(event(source_progress(reader, last)))
    eventually(lambda: environment.committed() == last["lanes"], "it is committed")
    committer.close()


def test_a_flush_has_committed_when_it_returns(environment: SparkEnvironment, reader: StreamReader) -> None:
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(6))
    last = reader.latestOffset(first, ReadAllAvailable())
    flush(finished_query())
    flush(finished_query([OTHER], [source_progress(reader, first)], [source_progress(reader, last)], [OTHER]))
    eventually(lambda: environment.committed() == last["lanes"], "the status shows it")


def test_a_proof_that_cannot_be_used_now_is_used_later(
    environment: SparkEnvironment, reader: StreamReader, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    token = tmp_path / "token"
    committer = Committer(token_file=str(token))
    with caplog.at_level(logging.WARNING, "offramp.spark"):
        committer.onQueryProgress(event(source_progress(reader, end)))
        eventually(lambda: "cannot commit now" in caplog.text, "it is told")
    token.write_text("some-token\n")
    committer.onQueryProgress(event(source_progress(reader, end)))
    eventually(lambda: environment.committed() == end["lanes"], "it is committed")
    committer.close()


def test_a_sidecar_that_is_down_does_not_starve_the_others(
    environment: SparkEnvironment, reader: StreamReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked again with every progress of its query, and there is always one."""
    down, order = "127.0.0.1:1", list[str]()
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    ours, theirs = source_progress(reader, end), source_progress(reader, end)
    theirs["latestOffset"] = json.dumps({**reader.reportLatestOffset(), "address": down})

    def commit(client: LogClient, token: int, positions: Positions, *, skip_missing: bool) -> None:
        order.append(client.address)
        if len(order) < 6:
            committer.onQueryProgress(event(theirs))
            committer.onQueryProgress(event(ours))

    monkeypatch.setattr(LogClient, "commit", commit)
    committer = Committer()
    committer.onQueryProgress(event(theirs))
    eventually(lambda: len(order) >= 6, "both are asked")
    committer.close()
    assert min(order.count(down), order.count(environment.address)) >= 2


def test_a_proof_that_is_none_is_refused_before_anything_is_installed(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="token_file"):
        install(None, token_file=str(tmp_path / "missing"))  # type: ignore[arg-type]


def test_a_query_that_was_replaced_commits_nothing(
    environment: SparkEnvironment, reader: StreamReader, caplog: pytest.LogCaptureFixture
) -> None:
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    StreamReader(environment.options(), SCHEMA).initialOffset()
    with pytest.raises(Replaced):
        flush(finished_query([source_progress(reader, end)]))
    committer = Committer()
    with caplog.at_level(logging.WARNING, "offramp.spark"):
        committer.onQueryProgress(event(source_progress(reader, end)))
        eventually(lambda: "not committed, the query was replaced" in caplog.text, "it is told")
    committer.close()
    assert environment.committed() == start["lanes"]

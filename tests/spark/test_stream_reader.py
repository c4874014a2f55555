"""The reader of a stream, called as Spark calls it, with a real sidecar and without Spark."""

import json
import logging
import pickle
import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from offramp import Message
from offramp.errors import Forbidden, Incompatible, NotFound, Refused, Unavailable
from spark_bridge.columns import SCHEMA
from spark_bridge.commit_listener import flush
from spark_bridge.errors import BadOption, DataLoss, Replaced, WrongCheckpoint
from spark_bridge.stream_reader import StreamReader
from tests.e2e.harness import eventually
from tests.spark.environment import CLICKS, ORDERS, SparkEnvironment
from tests.spark.fake_log_service import serving
from tests.spark.queries import finished_query, source_progress

NO_LIMIT = ReadAllAvailable()


def reader(environment: SparkEnvironment, subscription: str = CLICKS, **more: str) -> StreamReader:
    return StreamReader(environment.options(subscription, **more), SCHEMA)


def read(source: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    """As executors do, each with a copy that was sent to it."""
    rows: list[dict[str, Any]] = []
    for partition in source.partitions(start, end):
        copy, wanted = pickle.loads(pickle.dumps((source._reader, partition)))
        for batch in copy.read(wanted):
            rows.extend(batch.to_pylist())
    return rows


def batches(source: StreamReader, at: dict[str, Any], limit: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Plans until there is nothing new: the start and the end of each batch."""
    while (end := source.latestOffset(at, limit)) is not at:
        yield at, end
        at = end


def values(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["value"]) for row in rows)


def through_json(offset: dict[str, Any]) -> dict[str, Any]:
    """As it comes back from a checkpoint."""
    again: dict[str, Any] = json.loads(json.dumps(offset))
    return again


def test_a_range_has_every_record_once_and_again_the_same(environment: SparkEnvironment) -> None:
    environment.numbers(0, 50)
    source = reader(environment)
    start = source.initialOffset()
    end = through_json(source.latestOffset(start, NO_LIMIT))
    rows = read(source, start, end)
    assert values(rows) == list(range(50))
    environment.numbers(50, 60)
    assert read(source, start, end) == rows


def test_nothing_new_gives_back_the_start_to_the_letter(environment: SparkEnvironment) -> None:
    environment.numbers(0, 3)
    source = reader(environment)
    end = source.latestOffset(source.initialOffset(), NO_LIMIT)
    assert source.latestOffset(end, NO_LIMIT) is end
    assert source.partitions(end, end) == []


def test_the_start_is_the_same_however_often_it_is_asked(environment: SparkEnvironment) -> None:
    environment.numbers(0, 5)
    first = reader(environment, startingPosition="latest").initialOffset()
    environment.numbers(5, 9)
    assert reader(environment, startingPosition="latest").initialOffset() == first
    source = reader(environment)
    assert values(read(source, first, source.latestOffset(first, NO_LIMIT))) == [5, 6, 7, 8]


def test_a_time_is_where_a_query_can_start(environment: SparkEnvironment) -> None:
    environment.publish([Message(b"%d" % n, lane=0, timestamp_ms=1_000 * n) for n in range(1, 9)])
    source = reader(environment, startingPosition="1970-01-01T00:00:05Z")
    start = source.initialOffset()
    assert values(read(source, start, source.latestOffset(start, NO_LIMIT))) == [5, 6, 7, 8]


def test_a_start_that_has_no_effect_is_said_with_the_command_that_has_one(
    environment: SparkEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    environment.numbers(0, 8)
    first = reader(environment)
    start = first.initialOffset()
    with caplog.at_level(logging.WARNING, "offramp.spark"):
        # They start where the group is in any case.
        reader(environment, startingPosition="committed").initialOffset()
        reader(environment, startingPosition="earliest").initialOffset()
        assert not caplog.messages
        assert reader(environment, startingPosition="latest").initialOffset() == start
        assert reader(environment, startingPosition="2030-01-01T00:00:00Z").initialOffset() == start
    latest, time = caplog.messages
    assert "startingPosition has no effect: the subscription clicks has positions already" in latest
    assert "clicks/0 0, clicks/1 0" in latest
    assert "run `offramp seek clicks --end`" in latest
    assert "run `offramp seek clicks --time 2030-01-01T00:00:00+00:00`" in time


@pytest.mark.parametrize(
    ("options", "limit", "most"),
    [
        ({"maxRecordsPerBatch": "10"}, ReadMaxRows(10), 10),
        ({}, ReadMaxRows(4), 4),
        ({"maxBytesPerBatch": "200"}, ReadMaxRows(1_000), 40),
        ({"maxRecordsPerBatch": "0", "maxBytesPerBatch": "200"}, ReadMaxBytes(200), 40),
    ],
)
def test_a_backlog_is_no_flood(environment: SparkEnvironment, options: dict[str, str], limit: Any, most: int) -> None:
    environment.numbers(100, 200)
    source = reader(environment, **options)
    seen = [read(source, *batch) for batch in batches(source, source.initialOffset(), limit)]
    assert all(0 < len(rows) <= most for rows in seen)
    assert values([row for rows in seen for row in rows]) == list(range(100, 200))


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadMaxRows(1_000_000)),
        ({"maxRecordsPerBatch": "5"}, ReadMaxRows(5)),
        ({"maxRecordsPerBatch": "0", "maxBytesPerBatch": "1m"}, ReadMaxBytes(1 << 20)),
        ({"maxRecordsPerBatch": "0", "maxBytesPerBatch": "0"}, ReadAllAvailable()),
    ],
)
def test_spark_is_told_the_limit(environment: SparkEnvironment, options: dict[str, str], limit: Any) -> None:
    assert reader(environment, **options).getDefaultReadLimit() == limit


def test_read_all_available_ignores_the_limits_of_options(environment: SparkEnvironment) -> None:
    environment.numbers(0, 40)
    source = reader(environment, maxRecordsPerBatch="3", maxBytesPerBatch="10")
    start = source.initialOffset()
    assert len(read(source, start, source.latestOffset(start, NO_LIMIT))) == 40


def test_read_min_rows_waits_for_more(environment: SparkEnvironment) -> None:
    environment.numbers(0, 5)
    source = reader(environment)
    start = source.initialOffset()
    assert source.latestOffset(start, ReadMinRows(6)) is start
    environment.numbers(5, 6)
    assert len(read(source, start, source.latestOffset(start, ReadMinRows(6)))) == 6


def test_an_available_now_run_ends_where_the_lanes_ended_when_it_began(environment: SparkEnvironment) -> None:
    environment.numbers(0, 30)
    source = reader(environment, "both")
    source.prepareForTriggerAvailableNow()
    environment.numbers(30, 40)
    environment.numbers(40, 50, topic="later")
    seen = []
    for at, end in batches(source, source.initialOffset(), ReadMaxRows(7)):
        seen += read(source, at, end)
    assert values(seen) == list(range(30))
    # The next run has what came meanwhile.
    source = reader(environment, "both")
    source.prepareForTriggerAvailableNow()
    for batch in batches(source, end, ReadMaxRows(7)):
        seen += read(source, *batch)
    assert values(seen) == list(range(50))


def test_lanes_that_come_while_it_runs_are_read_from_their_first_record(environment: SparkEnvironment) -> None:
    environment.numbers(0, 10)
    source = reader(environment, "both")
    at = source.initialOffset()
    end = source.latestOffset(at, NO_LIMIT)
    seen = read(source, at, end)
    environment.numbers(10, 20, topic="later")
    eventually(lambda: "later/0" in source.latestOffset(end, NO_LIMIT)["lanes"], "the new lanes are seen")
    for batch in batches(source, end, NO_LIMIT):
        seen += read(source, *batch)
    assert values(seen) == list(range(20))


def test_a_lane_is_read_by_several_tasks_if_told_so(environment: SparkEnvironment) -> None:
    environment.numbers(0, 40)
    source = reader(environment, maxRecordsPerPartition="7")
    start = source.initialOffset()
    end = source.latestOffset(start, NO_LIMIT)
    assert len(source.partitions(start, end)) == 6
    assert values(read(source, start, end)) == list(range(40))


def test_a_commit_reaches_the_broker_and_never_goes_back(environment: SparkEnvironment) -> None:
    environment.numbers(0, 10)
    source = reader(environment)
    start = source.initialOffset()
    end = source.latestOffset(start, NO_LIMIT)
    source.commit(end)
    source.commit(start)
    eventually(lambda: environment.committed() == end["lanes"], "the status shows it")


def test_a_driver_that_was_replaced_can_neither_start_nor_commit(environment: SparkEnvironment) -> None:
    environment.numbers(0, 10)
    old = reader(environment, name="the old one")
    start = old.initialOffset()
    end = old.latestOffset(start, NO_LIMIT)
    new = reader(environment, name="the new one")
    new.partitions(start, new.latestOffset(start, NO_LIMIT))
    for late in (lambda: old.commit(end), lambda: old.latestOffset(end, NO_LIMIT)):
        with pytest.raises(Replaced, match="Two queries must not read one subscription"):
            late()
    new.commit(end)


class Lost(Exception):
    """Somebody else has written this to the checkpoint."""


def driver(source: StreamReader, offsets: list[dict[str, Any]], commits: list[int]) -> Iterator[None]:
    """What Spark does with a checkpoint that others may write to at any `yield`."""

    def write(log: list[Any], number: int, entry: Any) -> None:
        if len(log) > number:
            raise Lost
        log.append(entry)

    number, at = len(commits), offsets[len(commits) - 1]
    yield
    if len(offsets) > number:
        # The batch was planned and is not done.
        source.partitions(at, offsets[number])
        yield
        write(commits, number, number)
        number, at = number + 1, offsets[number]
    while True:
        yield
        end = source.latestOffset(at, ReadMaxRows(2))
        yield
        write(offsets, number, end)
        source.commit(at)
        source.partitions(at, end)
        yield
        write(commits, number, number)
        number, at = number + 1, end


def test_of_two_drivers_with_one_checkpoint_one_goes_on_whoever_is_faster(environment: SparkEnvironment) -> None:
    environment.numbers(0, 2_000)
    for seed in range(20):
        chance = random.Random(seed)
        old = reader(environment)
        offsets, commits = [old.initialOffset()], [0]
        alive = [driver(old, offsets, commits)]
        for step in range(60):
            if step == 7:
                alive.append(driver(reader(environment), offsets, commits))
            one = chance.choice(alive)
            try:
                next(one)
            except (Lost, Replaced):
                alive.remove(one)
                assert alive, f"seed {seed}: both have ended"
        assert len(alive) == 1, f"seed {seed}: both go on"


def test_a_topic_that_was_recreated_ends_a_query_or_is_read_from_its_first_record(
    environment: SparkEnvironment,
) -> None:
    environment.numbers(0, 20)
    before = reader(environment)
    checkpoint = before.latestOffset(before.initialOffset(), NO_LIMIT)
    environment.sidecar.kill()
    shutil.rmtree(environment.folder / "data")
    environment.sidecar.start()
    environment.numbers(100, 106)
    with pytest.raises(DataLoss, match=r"ends at 3: .* recreated. With failOnDataLoss=false the query goes on"):
        reader(environment).latestOffset(checkpoint, NO_LIMIT)
    source = reader(environment, failOnDataLoss="false")
    source.prepareForTriggerAvailableNow()
    seen = []
    for at, end in batches(source, checkpoint, ReadMaxRows(4)):
        seen += read(source, at, end)
        flush(finished_query([source_progress(source, checkpoint)]))
    source.commit(end)
    assert values(seen) == list(range(100, 106))
    eventually(lambda: environment.committed() == end["lanes"], "the status shows it")


def test_a_lane_that_is_gone_keeps_its_place(environment: SparkEnvironment) -> None:
    environment.numbers(0, 6)
    offset = reader(environment).initialOffset()
    offset = {**offset, "lanes": {**offset["lanes"], "clicks/7": 3}}
    with pytest.raises(NotFound, match="no lane clicks/7"):
        reader(environment).latestOffset(offset, NO_LIMIT)
    source = reader(environment, failOnDataLoss="false")
    end = source.latestOffset(offset, NO_LIMIT)
    assert end["lanes"] == {"clicks/0": 3, "clicks/1": 3, "clicks/7": 3}
    assert values(read(source, offset, end)) == list(range(6))


def test_a_reader_reports_what_the_listener_needs(environment: SparkEnvironment) -> None:
    environment.numbers(0, 4)
    source = reader(environment)
    end = source.latestOffset(source.initialOffset(), NO_LIMIT)
    reported = source.reportLatestOffset()
    assert reported["lanes"] == end["lanes"]
    assert reported["token"] > 0
    assert reported["address"] == environment.address


def test_a_sidecar_that_restarts_is_waited_for(environment: SparkEnvironment) -> None:
    environment.numbers(0, 20)
    source = reader(environment, timeout="120s")
    start = source.initialOffset()
    end = source.latestOffset(start, NO_LIMIT)
    environment.sidecar.kill()
    with ThreadPoolExecutor(2) as threads:
        rows = threads.submit(read, source, start, end)
        again = threads.submit(source.latestOffset, end, NO_LIMIT)
        environment.sidecar.start()
        assert values(rows.result()) == list(range(20))
        assert again.result() is end
    source.commit(end)


def test_a_checkpoint_of_another_subscription_is_refused(environment: SparkEnvironment) -> None:
    offset = reader(environment, "other").initialOffset()
    source = reader(environment)
    for call in (
        lambda: source.latestOffset(offset, NO_LIMIT),
        lambda: source.partitions(offset, offset),
        lambda: source.commit(offset),
    ):
        with pytest.raises(WrongCheckpoint, match='belongs to the subscription "other"'):
            call()


def test_an_unknown_subscription_is_named_with_those_there_are(environment: SparkEnvironment) -> None:
    with pytest.raises(NotFound, match=r"clikcs.*clicks"):
        reader(environment, "clikcs").initialOffset()


def test_a_leased_subscription_is_refused(environment: SparkEnvironment) -> None:
    with pytest.raises(Refused, match="mode: ranges"):
        reader(environment, ORDERS).initialOffset()


def test_nobody_at_the_address_is_said_within_the_time(
    environment: SparkEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    # There is no time for a second attempt, so that the first refusal is the last word.
    monkeypatch.setattr("spark_bridge.log_client.Backoff.next", lambda self: 60.0)
    source = StreamReader({"address": "127.0.0.1:1", "subscription": CLICKS, "timeout": "30s"}, SCHEMA)
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1: .*refused"):
        source.initialOffset()


def test_positions_lane_by_lane_are_no_start_of_a_stream(environment: SparkEnvironment) -> None:
    with pytest.raises(BadOption, match="option startingPosition: positions lane by lane are for bounded reads"):
        reader(environment, startingPosition='{"clicks/0": 3}')


def test_a_sidecar_that_is_older_than_the_bridge_is_named_as_such() -> None:
    with serving() as address, pytest.raises(Incompatible, match="older than this bridge"):
        StreamReader({"address": address, "subscription": CLICKS}, SCHEMA).initialOffset()


def test_a_refused_token_is_said_at_once() -> None:
    def refuse(request: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is not known here")

    with serving(Attach=grpc.unary_unary_rpc_method_handler(refuse)) as address:
        options = {"address": address, "subscription": CLICKS, "token": "wrong"}
        with pytest.raises(Forbidden, match="the token is not known here"):
            StreamReader(options, SCHEMA).initialOffset()


def test_a_record_that_is_larger_than_allowed_is_named(environment: SparkEnvironment) -> None:
    environment.publish([Message(b"1"), Message(b"x" * 20_000, lane=0)])
    source = reader(environment, maxMessageBytes="10k")
    start = source.initialOffset()
    with pytest.raises(Refused, match=r"clicks/0: .*Set maxMessageBytes to more"):
        read(source, start, source.latestOffset(start, NO_LIMIT))

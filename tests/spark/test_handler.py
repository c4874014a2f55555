"""`handle` on a real Spark: a function gets batches as DataFrames."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import spark_bridge
from offramp import Message, Reject, connect
from offramp.errors import NotFound
from offramp.v1 import admin_pb2, admin_pb2_grpc
from spark_bridge import BadOption, InHand
from spark_bridge.columns import HANDLED_SCHEMA
from tests.e2e.harness import eventually
from tests.spark.environment import ORDERS, SparkEnvironment

ROOT = Path(__file__).parents[2]
#: seconds for a Spark of its own
SPARK_TIMEOUT = 240.0


def dead(environment: SparkEnvironment) -> dict[str, str]:
    """Values and reasons of the dead letters."""
    request = admin_pb2.ListDeadLettersRequest(subscription=ORDERS)
    with environment.sidecar.channel() as channel:
        answers = list(admin_pb2_grpc.AdminServiceStub(channel).ListDeadLetters(request))
    return {one.record.value.decode(): one.reason for answer in answers for one in answer.dead_letters}


def settled(environment: SparkEnvironment) -> bool:
    status = environment.sidecar.status(ORDERS)
    return all(lane.lag == 0 for lane in status.lanes if not lane.parked)


def finish() -> None:
    """As somebody does who stops the job: what is in hand is finished, and no more is taken."""
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def finished_after(look: Callable[[], bool], what: str) -> Iterator[None]:
    """`handle` in the block is stopped once this is so."""

    def watch() -> None:
        try:
            eventually(look, what)
        finally:
            finish()

    watcher = threading.Thread(target=watch)
    watcher.start()
    yield
    watcher.join()


def test_batches_become_dataframes_and_are_acked(spark: SparkSession, environment: SparkEnvironment) -> None:
    environment.numbers(0, 2_000, topic=ORDERS)
    seen: list[int] = []
    sizes: list[int] = []

    def fn(df: DataFrame, batch: InHand) -> None:
        assert df.schema == HANDLED_SCHEMA
        rows = df.collect()
        assert len(rows) == len(batch)
        sizes.append(len(batch))
        seen.extend(int(row.value) for row in rows)
        if len(seen) == 2_000:
            finish()

    assert spark_bridge.handle(spark, environment.address, ORDERS, fn, max_records=1_500) == 2_000
    assert sorted(seen) == list(range(2_000))
    assert max(sizes) > 500, "several batches of the sidecar make one DataFrame"
    eventually(lambda: settled(environment), "all is committed")


def test_a_slow_function_gets_as_many_records_a_call_as_a_fast_one(
    spark: SparkSession, environment: SparkEnvironment
) -> None:
    environment.numbers(0, 6_000, topic=ORDERS)
    sizes: list[int] = []

    def fn(df: DataFrame, batch: InHand) -> None:
        sizes.append(len(batch))
        if len(sizes) == 1:
            # As a write to a slow store: the other batches wait here meanwhile.
            time.sleep(2.0)
        if sum(sizes) == 6_000:
            finish()

    assert spark_bridge.handle(spark, environment.address, ORDERS, fn, max_records=1_500, linger=1.0) == 6_000
    assert min(sizes[:-1]) > 1_000, "another batch of the sidecar would have been too much"
    assert environment.sidecar.status(ORDERS).counters.released == 0


def test_records_that_a_worker_gave_back_untried_are_combined_again(
    spark: SparkSession, environment: SparkEnvironment
) -> None:
    environment.numbers(0, 2_000, topic=ORDERS)
    with connect(ORDERS, address=environment.address, credit=4) as consumer:
        given_back = [next(consumer) for _ in range(4)]
    assert sum(map(len, given_back)) == 2_000
    sizes: list[int] = []

    def fn(df: DataFrame, batch: InHand) -> None:
        sizes.append(len(batch))
        if sum(sizes) == 2_000:
            finish()

    spark_bridge.handle(spark, environment.address, ORDERS, fn, max_records=2_000, linger=5.0)
    assert sizes == [2_000]


def test_a_poisoned_record_ends_in_the_dead_letters_and_the_rest_is_acked(
    spark: SparkSession, environment: SparkEnvironment
) -> None:
    environment.numbers(0, 300, topic=ORDERS)
    done: set[int] = set()

    def fn(df: DataFrame, batch: InHand) -> None:
        values = [int(row.value) for row in df.collect()]
        if 137 in values:
            raise ValueError("137 is poison")
        done.update(values)

    with finished_after(lambda: dead(environment) and settled(environment), "all is committed"):
        spark_bridge.handle(spark, environment.address, ORDERS, fn)
    assert done == set(range(300)) - {137}
    assert dead(environment) == {"137": "ValueError: 137 is poison"}


def test_only_the_rows_that_the_function_names_fail(spark: SparkSession, environment: SparkEnvironment) -> None:
    environment.numbers(0, 100, topic=ORDERS)
    attempts: dict[int, list[int]] = {}

    def fn(df: DataFrame, batch: InHand) -> None:
        for row in df.collect():
            attempts.setdefault(int(row.value), []).append(row.attempt)
        batch.reject(df.where("CAST(CAST(value AS string) AS int) % 50 = 7"), "ends in 7")
        batch.nack([row for row in df.collect() if int(row.value) == 20 and row.attempt == 1], "once more")
        if len(attempts) == 100 and 2 in attempts[20]:
            finish()

    spark_bridge.handle(spark, environment.address, ORDERS, fn)
    eventually(lambda: dead(environment) == {"7": "REJECTED: ends in 7", "57": "REJECTED: ends in 7"})
    assert attempts.pop(20) == [1, 2]
    assert set(map(tuple, attempts.values())) == {(1,)}


def test_what_was_in_hand_when_the_sidecar_died_says_that_it_may_have_been_processed(
    spark: SparkSession, environment: SparkEnvironment
) -> None:
    environment.numbers(0, 20, topic=ORDERS)
    seen: dict[int, list[tuple[int, bool]]] = {}

    def fn(df: DataFrame, batch: InHand) -> None:
        first = not seen
        for row in df.collect():
            seen.setdefault(int(row.value), []).append((row.attempt, row.possibly_processed))
        if first:
            environment.sidecar.kill()
            environment.sidecar.start()
        elif len(seen) == 20 and any(len(told) > 1 for told in seen.values()):
            finish()

    spark_bridge.handle(spark, environment.address, ORDERS, fn, linger=1.0)
    assert set(seen) == set(range(20))
    assert [(1, False), (1, True)] in seen.values()
    assert all(told[-1] == (1, True) for told in seen.values() if len(told) > 1), "attempt does not survive the sidecar"


def test_a_function_can_say_it_more_exactly(spark: SparkSession, environment: SparkEnvironment) -> None:
    environment.publish([Message(b"x")], ORDERS)

    def fn(df: DataFrame, batch: InHand) -> None:
        finish()
        raise Reject("never")

    spark_bridge.handle(spark, environment.address, ORDERS, fn)
    eventually(lambda: dead(environment) == {"x": "REJECTED: never"})


def test_a_signal_lets_it_finish_what_is_in_hand(spark: SparkSession, environment: SparkEnvironment) -> None:
    environment.numbers(0, 50, topic=ORDERS)
    finished = []

    def fn(df: DataFrame, batch: InHand) -> None:
        finish()
        finished.append(df.count())

    assert threading.current_thread() is threading.main_thread()
    assert spark_bridge.handle(spark, environment.address, ORDERS, fn) == sum(finished)
    assert finished
    eventually(lambda: not environment.sidecar.status(ORDERS).sessions, "it has left")
    assert environment.sidecar.status(ORDERS).counters.acked == sum(finished)


def test_a_failed_call_is_repeated_batch_by_batch_with_a_flag_and_what_it_had_named_does_not_count(
    spark: SparkSession, environment: SparkEnvironment
) -> None:
    environment.numbers(0, 600, topic=ORDERS)
    calls: list[int] = []
    done: list[int] = []
    flagged: list[set[bool]] = []

    def fn(df: DataFrame, batch: InHand) -> None:
        calls.append(len(batch.batches))
        flagged.append({row.possibly_processed for row in df.collect()})
        if len(batch.batches) > 1:
            batch.reject(df, "by mistake")
            raise ValueError("too many at once")
        done.append(len(batch))
        if sum(done) == 600:
            finish()

    assert spark_bridge.handle(spark, environment.address, ORDERS, fn, max_records=600, linger=30.0) == 600
    assert calls[0] > 1
    assert set(calls[1:]) == {1}
    assert flagged[0] == {False}
    assert set().union(*flagged[1:]) == {True}, "the first call may have written something before it failed"
    assert dead(environment) == {}
    eventually(lambda: settled(environment), "all is committed")


#: ends its session in every way, while records are in hand
ENDING = """
import os, signal, sys
from pyspark.sql import SparkSession
import spark_bridge

def stopping(df, batch):
    spark.stop()
    batch.reject([], "nothing")
    df.count()

def killing(df, batch):
    print("again:", {(record.attempt, record.possibly_processed) for one in batch.batches for record in one})
    os.kill(spark._sc._gateway.proc.pid, signal.SIGKILL)
    batch.reject([], "nothing")
    df.count()

for fn in (stopping, killing):
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        spark_bridge.handle(spark, sys.argv[1], "orders", fn, linger=5.0, max_records=50)
    except spark_bridge.SparkGone as error:
        print("said:", error)
"""
#: the same with Spark Connect, and all else that the bridge does
CONNECTED = """
import os, signal, sys
from pyspark import SparkContext
from pyspark.sql import SparkSession
import offramp
import spark_bridge

address, folder = sys.argv[1:]
server = SparkSession.builder.remote("local[1]").getOrCreate()
assert server.read.format("offramp").options(address=address, subscription="clicks").load().count() == 50
print("found by itself")
# As if it had been started elsewhere: otherwise it ends with the first session that is stopped.
del os.environ["SPARK_LOCAL_REMOTE"]
spark_bridge.install(server)
clicks = server.readStream.format("offramp").option("address", address).option("subscription", "clicks").load()
to = clicks.writeStream.format("parquet").option("path", f"{folder}/out").option("checkpointLocation", f"{folder}/log")
query = to.trigger(availableNow=True).start()
query.awaitTermination()
spark_bridge.flush(query)
print("streamed:", server.read.parquet(f"{folder}/out").count())

def naming(df, batch):
    batch.reject(df.where("CAST(CAST(value AS string) AS int) = 7"), "it is 7")
    os.kill(os.getpid(), signal.SIGTERM)
    raise offramp.Release

def stopping(df, batch):
    spark.stop()
    df.count()

def killing(df, batch):
    print("again:", {(record.attempt, record.possibly_processed) for one in batch.batches for record in one})
    spark.client.set_retry_policies([])
    os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
    df.count()

for fn in (naming, stopping, killing):
    spark = server.cloneSession()
    try:
        spark_bridge.handle(spark, address, "orders", fn, linger=2.0, max_records=50)
    except spark_bridge.SparkGone as error:
        print("said:", error)
# Not by sys.exit: sessions would wait for minutes for the server to come back.
sys.stdout.flush()
os._exit(0)
"""


def run_program(program: str, *arguments: str, **environ: str) -> str:
    """What it prints. A process of its own: other tests still need the session of this one."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        # With this, a server of Spark Connect takes any port that is free.
        env={**os.environ, "SPARK_TESTING": "1", **environ},
        capture_output=True,
        text=True,
        timeout=SPARK_TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def told(environment: SparkEnvironment, records: int) -> set[tuple[int, bool]]:
    """What the next worker is told of these records: the attempt, and whether they may have been processed."""
    seen: dict[int, tuple[int, bool]] = {}
    with connect(ORDERS, address=environment.address) as consumer:
        while len(seen) < records:
            batch = next(consumer)
            seen |= {int(record.value or b""): (record.attempt, record.possibly_processed) for record in batch}
            batch.ack()
    return set(seen.values())


def test_a_session_that_is_stopped_is_held_against_no_record_and_one_that_dies_is(
    environment: SparkEnvironment,
) -> None:
    environment.numbers(0, 50, topic=ORDERS)
    said = run_program(ENDING, environment.address)
    assert said.count("said: the Spark session has ended") == 2, said
    assert "again: {(1, False)}" in said
    counters = environment.sidecar.status(ORDERS).counters
    assert (counters.nacked, counters.acked) == (0, 0)
    assert told(environment, 50) == {(2, True)}, "nobody knows how far a dead one came"


def test_spark_connect_finds_the_source_by_itself_and_does_all_of_it(
    environment: SparkEnvironment, tmp_path: Path
) -> None:
    environment.numbers(0, 50)
    environment.numbers(0, 50, topic=ORDERS)
    # As installed by pip.
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / "pyspark_offramp").symlink_to(ROOT / "spark_bridge" / "pyspark_offramp")
    said = run_program(CONNECTED, environment.address, str(tmp_path), PYTHONPATH=str(installed))
    assert "found by itself" in said
    assert "streamed: 50" in said
    eventually(lambda: environment.done() == 50, "what was streamed is committed")
    assert dead(environment) == {"7": "REJECTED: it is 7"}
    assert said.count("said: the Spark session has ended") == 2, said
    assert "again: {(1, False)}" in said
    assert told(environment, 49) == {(2, True)}


def test_what_cannot_be_is_said(spark: SparkSession, environment: SparkEnvironment) -> None:
    def fn(df: DataFrame, batch: InHand) -> None:
        raise AssertionError

    with pytest.raises(NotFound, match="ordres"):
        spark_bridge.handle(spark, environment.address, "ordres", fn)
    with pytest.raises(BadOption, match="max_records: 0 is less than 1"):
        spark_bridge.handle(spark, environment.address, ORDERS, fn, max_records=0)


def test_a_row_that_is_not_in_hand_is_refused(spark: SparkSession, environment: SparkEnvironment) -> None:
    environment.publish([Message(b"x")], ORDERS)
    said = []

    def fn(df: DataFrame, batch: InHand) -> None:
        with pytest.raises(BadOption, match="the row other/0/1 is not one of those in hand") as caught:
            batch.nack([{"topic": "other", "lane": 0, "position": 1}])
        said.append(caught)
        finish()

    spark_bridge.handle(spark, environment.address, ORDERS, fn)
    assert said

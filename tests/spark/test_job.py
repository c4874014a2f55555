"""The ready job and the example pipeline, as people start them."""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet
import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from offramp import Message
from spark_bridge.errors import BadOption
from spark_bridge.job import argument_parser, collect_credentials, finish_batch, load_transform, main, pairs
from spark_bridge.job import run as run_job
from tests.e2e.harness import eventually
from tests.security.kit import Secured, tcp_address
from tests.spark.crashes import log_of
from tests.spark.environment import SparkEnvironment

ROOT = Path(__file__).parents[2]
JOB_TIMEOUT = 240.0
NOWHERE = ("--address", "x", "--subscription", "s", "--checkpoint", "c")
LONG = bool(os.environ.get("OFFRAMP_TEST_LONG"))


def job(environment: SparkEnvironment, folder: Path, *more: str, start: Sequence[str] = ()) -> list[str]:
    """The command of a job on two cores, with a checkpoint in the folder."""
    return [
        *(start or (sys.executable, "-m", "spark_bridge")),
        *("--address", environment.address, "--subscription", "clicks", "--checkpoint", str(folder / "checkpoint")),
        *("--master", "local[2]", "--conf", "spark.ui.enabled=false", *more),
    ]


def run(command: list[str], folder: Path) -> str:
    """What a job says that does what is there and ends."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=JOB_TIMEOUT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def values_in(environment: SparkEnvironment, topic: str) -> list[bytes]:
    return sorted(value for where, _, _, value in log_of(environment.sidecar, "both") if where == topic)


def run_here(
    spark: SparkSession, environment: SparkEnvironment, folder: Path, *sink: str, capsys: pytest.CaptureFixture[str]
) -> str:
    """The same job in this process and its session, since a Spark of its own is dear. Returns what it prints."""
    given = argument_parser().parse_args(
        [
            *("--address", environment.address, "--subscription", "clicks", "--checkpoint", str(folder / "checkpoint")),
            *("--available-now", *sink),
        ]
    )
    assert run_job(spark, given, None, {}, threading.Event()) == 0
    return capsys.readouterr().out


def test_the_job_copies_a_subscription_into_a_topic(
    environment: SparkEnvironment, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.publish([Message(b"%d" % n, key=b"k", headers={"h": b"x"}) for n in range(30)])
    said = run_here(spark, environment, tmp_path, "offramp", "later", capsys=capsys)
    assert "30 records in 1 batches; all that was done is committed" in said
    assert values_in(environment, "later") == sorted(b"%d" % n for n in range(30))
    eventually(lambda: sum(environment.committed().values()) == 30, "the status shows it")


def test_the_job_writes_a_subscription_into_a_table(
    environment: SparkEnvironment, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.publish([Message(b"%d" % n, key=b"k", headers={"h": b"x"}) for n in range(30)])
    # The database that comes with Spark.
    spark._jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))  # type: ignore[union-attr]
    url = f"jdbc:derby:{tmp_path / 'shop'}"
    table = ("jdbc", f"{url};create=true", "clicks", "--driver", "org.apache.derby.jdbc.EmbeddedDriver")
    said = run_here(spark, environment, tmp_path, *table, capsys=capsys)
    assert "30 records in 1 batches; all that was done is committed" in said
    rows = spark.read.jdbc(url, "clicks").collect()
    assert sorted(int(row["value"]) for row in rows) == [*range(30)]
    assert {(row["batch_id"], bytes(row["key"]), row["headers"]) for row in rows} == {
        (0, b"k", '[{"name":"h","value":"eA=="}]')
    }


@pytest.mark.usefixtures("java")
@pytest.mark.timeout(JOB_TIMEOUT * 2)
def test_the_job_runs_by_spark_submit_and_shows_a_subscription_in_the_terminal(
    environment: SparkEnvironment, tmp_path: Path
) -> None:
    environment.numbers(0, 5)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    start = [str(submit), "--master", "local[2]", str(ROOT / "spark_bridge" / "__main__.py")]
    said = run(job(environment, tmp_path, "--available-now", "console", "--rows", "3", start=start), tmp_path)
    assert "only showing top 3 rows" in said
    assert "5 records in 1 batches; all that was done is committed" in said


@pytest.mark.usefixtures("java")
@pytest.mark.timeout(JOB_TIMEOUT * 2)
def test_the_job_transforms_a_subscription_into_files_and_stops_in_order(
    environment: SparkEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "twice.py").write_text(
        "def twice(df):\n    return df.selectExpr('CAST(CAST(value AS string) AS int) * 2 AS doubled')\n"
    )
    environment.numbers(0, 100)
    sink = ("parquet", str(tmp_path / "out"))
    command = job(environment, tmp_path, "--transform", "twice:twice", "--option", "maxRecordsPerBatch=60", *sink)
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as running:

        def has_done_all() -> bool:
            assert running.poll() is None, f"the job ended with {running.returncode}"
            return sum(environment.committed().values()) == 100

        try:
            eventually(has_done_all, "the job has done and committed all", JOB_TIMEOUT)
            running.send_signal(signal.SIGTERM)
            said, _ = running.communicate(timeout=JOB_TIMEOUT)
        finally:
            running.kill()
    assert running.returncode == 0, said
    assert "batch 0: 60 records" in said
    assert "100 records in 2 batches; all that was done is committed" in said
    rows = [row["doubled"] for row in pyarrow.parquet.read_table(tmp_path / "out").to_pylist()]
    assert sorted(rows) == list(range(0, 200, 2))


@pytest.mark.usefixtures("java")
@pytest.mark.timeout(JOB_TIMEOUT * 2)
@pytest.mark.parametrize("number", [signal.SIGINT, *([signal.SIGTERM] if LONG else [])])
def test_a_signal_in_the_middle_of_a_batch_lets_it_finish(
    environment: SparkEnvironment, tmp_path: Path, number: signal.Signals
) -> None:
    # Each task says that it began, and then waits for the test.
    (tmp_path / "slow.py").write_text(
        "import pathlib, time\n"
        "from pyspark.sql.functions import udf\n"
        f"here = pathlib.Path({str(tmp_path)!r})\n"
        "@udf\n"
        "def wait(value):\n"
        "    (here / 'began').touch()\n"
        "    while not (here / 'go').exists():\n"
        "        time.sleep(0.01)\n"
        "    return value.decode()\n"
        "def slow(df):\n"
        "    return df.select(wait('value').alias('value'))\n"
    )
    environment.numbers(0, 10)
    limit = ("--option", "maxRecordsPerBatch=4", "--every", "0 seconds", "--grace", "200")
    command = job(environment, tmp_path, "--transform", "slow:slow", *limit, "parquet", str(tmp_path / "out"))
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=env) as running:
        try:
            eventually((tmp_path / "began").exists, "the batch is at work", JOB_TIMEOUT)
            running.send_signal(number)
            with pytest.raises(subprocess.TimeoutExpired):
                running.wait(3)
            (tmp_path / "go").touch()
            said, _ = running.communicate(timeout=JOB_TIMEOUT)
        finally:
            running.kill()
    assert running.returncode == 0, said
    assert "batch 0: 4 records" in said
    assert "all that was done is committed" in said
    assert pyarrow.parquet.read_table(tmp_path / "out").num_rows >= 4
    eventually(lambda: sum(environment.committed().values()) >= 4, "the status shows it")


class QueryAtWork:
    """A query in the middle of a batch, which ends when its status has been read so often."""

    def __init__(self, reads: int) -> None:
        self.isActive = True
        self.lastProgress = None
        self.reads_left = reads
        self.stopped = False

    @property
    def status(self) -> dict[str, bool]:
        self.reads_left -= 1
        return {"isTriggerActive": self.reads_left > 0}

    def stop(self) -> None:
        self.stopped = True


def test_a_batch_at_work_is_waited_for_and_the_query_is_not_stopped() -> None:
    query = QueryAtWork(reads=3)
    finish_batch(cast(Any, query), math.inf)
    assert (query.reads_left, query.stopped) == (0, False)


def test_a_batch_that_takes_too_long_is_not_waited_for() -> None:
    query = QueryAtWork(reads=3)
    finish_batch(cast(Any, query), time.monotonic() - 1)
    assert (query.reads_left, query.stopped) == (2, False)


def test_credentials_apply_to_source_listener_and_sink() -> None:
    given = argument_parser().parse_args([*NOWHERE, "--token", "argument", "console"])
    proof = {"key": "k", "certificate": "c"}
    options = {"SERVERNAME": "offramp.shop", "token": "option", "maxRecordsPerBatch": "1", **proof}
    assert collect_credentials(given, options) == {"serverName": "offramp.shop", "token": "argument", **proof}


@pytest.mark.usefixtures("java")
@pytest.mark.timeout(JOB_TIMEOUT * 2)
def test_the_job_proves_who_it_is_wherever_it_calls(tmp_path: Path) -> None:
    rights = {"spark": {"ranges": ["orders"], "publish": ["orders"]}}
    secured = Secured(tmp_path, **rights)
    with secured.sidecar(subscriptions={"orders": {"topics": ["orders"], "mode": "ranges"}}) as sidecar:
        sidecar.publish("orders", [b"%d" % n for n in range(8)])
        token = secured.token_file("spark")
        command = [
            *(sys.executable, "-m", "spark_bridge", "--address", tcp_address(sidecar), "--subscription", "orders"),
            *("--checkpoint", str(tmp_path / "checkpoint"), "--master", "local[2]", "--conf", "spark.ui.enabled=false"),
            *("--ca", str(secured.authority.certificate), "--token-file", str(token)),
            *("--option", "serverName=localhost", "--available-now", "offramp", "copies"),
        ]
        assert "8 records in 1 batches; all that was done is committed" in run(command, tmp_path)
        eventually(lambda: sum(lane.committed for lane in sidecar.status().lanes) == 8, "the status shows it")


@pytest.mark.usefixtures("java")
@pytest.mark.timeout(JOB_TIMEOUT * 2)
def test_the_example_pipeline_agrees_with_a_count_in_plain_python() -> None:
    said = run([sys.executable, "examples/spark/demo.py"], ROOT)
    assert "files, topic and a count in plain Python agree" in said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", '"nothing" is not module:function'),
        ("no_such_module:f", 'there is no module "no_such_module"'),
        ("json:lods", 'json has no function "lods". Did you mean "loads"?'),
    ],
)
def test_a_transformation_that_is_not_there_is_named(name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadOption, match="--transform") as caught:
        load_transform(name)
    assert said in str(caught.value)
    given = [*NOWHERE, "--transform", name, "console"]
    assert main(given) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--conf", "--option"])
def test_settings_are_pairs_and_what_is_none_is_named(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert pairs(flag, ["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    given = [*NOWHERE, flag, "a=b", flag, "foo", "console"]
    assert main(given) == 2
    assert capsys.readouterr().err == f'spark_bridge: {flag}: "foo" is not name=value\n'


def test_a_spark_that_does_not_start_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def session(*_: object) -> None:
        raise PySparkException("Java gateway process exited")

    monkeypatch.setattr("spark_bridge.job.session", session)
    assert main([*NOWHERE, "console"]) == 1
    assert capsys.readouterr().err == "spark_bridge: Java gateway process exited\n"


def test_help_names_the_sinks() -> None:
    text = argument_parser().format_help()
    assert all(sink in text for sink in ("parquet", "console", "jdbc", "offramp"))

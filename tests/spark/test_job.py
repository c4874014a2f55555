"""The ready job and the example pipeline, as people start them."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet
import pyspark
import pytest

from offramp import Message
from spark_bridge.errors import BadOption
from spark_bridge.job import load, main, pair, parser
from tests.e2e.harness import eventually
from tests.servers.tools import Missing, give_up, tool
from tests.spark.crashes import log_of
from tests.spark.stage import Stage

ROOT = Path(__file__).parents[2]
PATIENCE = 240.0


@pytest.fixture
def _java() -> None:
    try:
        tool("java")
    except Missing as missing:
        give_up(missing)


def job(stage: Stage, folder: Path, *more: str, start: Sequence[str] = ()) -> list[str]:
    """The command of a job on two cores, with a checkpoint in the folder."""
    return [
        *(start or (sys.executable, "-m", "spark_bridge")),
        *("--address", stage.address, "--subscription", "clicks", "--checkpoint", str(folder / "checkpoint")),
        *("--master", "local[2]", "--conf", "spark.ui.enabled=false", *more),
    ]


def run(command: list[str], folder: Path) -> str:
    """What a job says that does what is there and ends."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False, env={**os.environ}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def values_in(stage: Stage, topic: str) -> list[bytes]:
    return sorted(value for where, _, _, value in log_of(stage.sidecar, "both") if where == topic)


@pytest.mark.usefixtures("_java")
@pytest.mark.timeout(PATIENCE * 2)
def test_the_job_copies_a_subscription_into_a_topic(stage: Stage, tmp_path: Path) -> None:
    stage.publish([Message(b"%d" % n, key=b"k", headers={"h": b"x"}) for n in range(30)])
    said = run(job(stage, tmp_path, "--available-now", "offramp", "later"), tmp_path)
    assert "30 records in 1 batches; all that was done is committed" in said
    assert values_in(stage, "later") == sorted(b"%d" % n for n in range(30))
    eventually(lambda: sum(stage.committed().values()) == 30, "the status shows it")


@pytest.mark.usefixtures("_java")
@pytest.mark.timeout(PATIENCE * 2)
def test_the_job_shows_a_subscription_in_the_terminal(stage: Stage, tmp_path: Path) -> None:
    stage.numbers(0, 5)
    said = run(job(stage, tmp_path, "--available-now", "console", "--rows", "3"), tmp_path)
    assert "only showing top 3 rows" in said
    assert "5 records in 1 batches; all that was done is committed" in said


@pytest.mark.usefixtures("_java")
@pytest.mark.timeout(PATIENCE * 2)
def test_the_job_runs_by_spark_submit(stage: Stage, tmp_path: Path) -> None:
    stage.numbers(0, 20)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    start = [str(submit), "--master", "local[2]", str(ROOT / "spark_bridge" / "__main__.py")]
    said = run(job(stage, tmp_path, "--available-now", "parquet", str(tmp_path / "out"), start=start), tmp_path)
    assert "20 records in 1 batches; all that was done is committed" in said
    rows = pyarrow.parquet.read_table(tmp_path / "out").to_pylist()
    assert sorted(int(row["value"]) for row in rows) == list(range(20))


@pytest.mark.usefixtures("_java")
@pytest.mark.timeout(PATIENCE * 2)
def test_the_job_transforms_a_subscription_into_files_and_stops_in_order(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text(
        "def twice(df):\n    return df.selectExpr('CAST(CAST(value AS string) AS int) * 2 AS doubled')\n"
    )
    stage.numbers(0, 100)
    sink = ("parquet", str(tmp_path / "out"))
    command = job(stage, tmp_path, "--transform", "twice:twice", "--option", "maxRecordsPerBatch=60", *sink)
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env={**os.environ}) as running:

        def has_done_all() -> bool:
            assert running.poll() is None, f"the job ended with {running.returncode}"
            return sum(stage.committed().values()) == 100

        try:
            eventually(has_done_all, "the job has done and committed all", PATIENCE)
            running.send_signal(signal.SIGTERM)
            said, _ = running.communicate(timeout=PATIENCE)
        finally:
            running.kill()
    assert running.returncode == 0, said
    assert "batch 0: 60 records" in said
    assert "100 records in 2 batches; all that was done is committed" in said
    rows = [row["doubled"] for row in pyarrow.parquet.read_table(tmp_path / "out").to_pylist()]
    assert sorted(rows) == list(range(0, 200, 2))


@pytest.mark.usefixtures("_java")
@pytest.mark.timeout(PATIENCE * 2)
def test_the_example_pipeline_agrees_with_a_count_in_plain_python() -> None:
    done = subprocess.run(
        [sys.executable, "examples/spark/demo.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "files, topic and a count in plain Python agree" in done.stdout


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
        load(name)
    assert said in str(caught.value)
    given = ["--address", "x", "--subscription", "s", "--checkpoint", "c", "--transform", name, "console"]
    assert main(given) == 2
    assert said in capsys.readouterr().err


def test_settings_are_pairs() -> None:
    assert pair("a=b=c") == ("a", "b=c")
    with pytest.raises(BadOption, match='"a" is not name=value'):
        pair("a")


def test_help_names_the_sinks() -> None:
    text = parser().format_help()
    assert all(sink in text for sink in ("parquet", "console", "jdbc", "offramp"))

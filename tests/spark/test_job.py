"""The ready job and the example pipeline, as people start them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spark_bridge.errors import BadOption
from spark_bridge.job import load, main, pair, parser
from tests.e2e.harness import eventually
from tests.servers.tools import Missing, give_up, tool
from tests.spark.stage import Stage

ROOT = Path(__file__).parents[2]
PATIENCE = 240.0


@pytest.fixture
def _java() -> None:
    try:
        tool("java")
    except Missing as missing:
        give_up(missing)


@pytest.mark.usefixtures("_java")
@pytest.mark.timeout(PATIENCE * 2)
def test_the_job_transforms_a_subscription_into_files_and_stops_in_order(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text(
        "def twice(df):\n    return df.selectExpr('CAST(CAST(value AS string) AS int) * 2 AS doubled')\n"
    )
    stage.numbers(0, 100)
    command = [
        *(sys.executable, "-m", "spark_bridge", "--address", stage.address, "--subscription", "clicks"),
        *("--checkpoint", str(tmp_path / "checkpoint"), "--transform", "twice:twice", "--master", "local[2]"),
        *("--conf", "spark.ui.enabled=false", "--option", "maxRecordsPerBatch=60", "parquet", str(tmp_path / "out")),
    ]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env={**os.environ}) as job:

        def has_done_all() -> bool:
            assert job.poll() is None, f"the job ended with {job.returncode}"
            return sum(stage.committed().values()) == 100

        try:
            eventually(has_done_all, "the job has done and committed all", PATIENCE)
            job.send_signal(signal.SIGTERM)
            said, _ = job.communicate(timeout=PATIENCE)
        finally:
            job.kill()
    assert job.returncode == 0, said
    assert "batch 0: 60 records" in said
    assert "100 records in 2 batches; all that was done is committed" in said
    files = list((tmp_path / "out").glob("*.parquet"))
    import pyarrow.parquet

    rows = [row["doubled"] for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]
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

"""Spark sessions and a sidecar for tests. Starting Spark is dear: one session serves as many tests as can be."""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_bridge
from tests.servers.tools import Missing, give_up, tool
from tests.spark.environment import SparkEnvironment


@pytest.fixture(scope="session", autouse=True)
def _environment(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("spark-workers")
    # Without the first, executors dial an address that does not answer; without the second, Spark writes beside itself.
    # Most of these JVMs live for seconds, in which the second compiler costs more than it gains.
    os.environ.update(
        SPARK_LOCAL_IP="127.0.0.1",
        SPARK_WORKER_DIR=str(folder),
        PYSPARK_PYTHON=sys.executable,
        JDK_JAVA_OPTIONS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    )


@pytest.fixture(scope="session")
def _warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark-warehouse")


@pytest.fixture
def java() -> None:
    """For tests that start a Spark in a process of its own."""
    try:
        tool("java")
    except Missing as missing:
        give_up(missing)


def start_spark(master: str, warehouse: Path) -> SparkSession:
    try:
        tool("java")
    except Missing as missing:
        give_up(missing)
    spark = (
        SparkSession.builder.master(master)
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.minBatchesToRetain", "10")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


@pytest.fixture(scope="module")
def spark(_warehouse: Path) -> Iterator[SparkSession]:
    """In this process, with two cores. A task that fails is tried again."""
    spark = start_spark("local[2,4]", _warehouse)
    spark_bridge.install(spark)
    yield spark
    for query in spark.streams.active:
        query.stop()


@pytest.fixture(scope="session", autouse=True)
def _stop_spark() -> Iterator[None]:
    yield
    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[SparkEnvironment]:
    environment = SparkEnvironment(tmp_path / "environment")
    with environment.sidecar:
        yield environment
    with contextlib.suppress(OSError):
        shutil.rmtree(environment.folder)

"""The benchmarks with Spark run, tiny. The figures are not judged."""

import os

import pytest

from benchmarks.suites import spark
from tests.e2e.test_benchmarks import SharedServers
from tests.servers.tools import Missing, give_up

pytestmark = pytest.mark.usefixtures("java")


def measures_its_rows(name: str) -> None:
    (benchmark,) = (one for one in spark.BENCHMARKS if one.name == name)
    with SharedServers(quick=True) as environment:
        try:
            found = benchmark.measure(environment)
        except Missing as missing:
            give_up(missing)
    assert set(found) == {row.name for row in benchmark.rows}


def test_the_source_is_measured_beside_tasks_with_a_consumer_of_their_own() -> None:
    measures_its_rows("spark")


@pytest.mark.skipif(not os.environ.get("OFFRAMP_TEST_LONG"), reason="fetches 500 MB: in the long form only")
def test_the_source_is_measured_beside_spark_s_own() -> None:
    measures_its_rows("spark-beside-own")

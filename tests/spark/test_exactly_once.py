"""Exactly once into an idempotent sink, whoever is killed: a round of three kills, twenty in the long form.

A cluster of its own is dear to start: that is in the long form.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from offramp import Publisher
from tests.brokers.harness import new_topic
from tests.e2e.harness import eventually
from tests.servers.kafka import KafkaServer
from tests.spark.cluster import Cluster
from tests.spark.crashes import Driver, Rounds
from tests.spark.environment import CLICKS, LANES, SparkEnvironment, on_kafka

LONG = bool(os.environ.get("OFFRAMP_TEST_LONG"))
ROUNDS = 20 if LONG else 1
pytestmark = pytest.mark.usefixtures("java")


def play(environment: SparkEnvironment, master: str, broker: str, workers: Sequence[int] = ()) -> None:
    driver = Driver(environment.folder / "driver", master, environment.address, CLICKS, workers)
    seed = int(os.environ.get("OFFRAMP_TEST_SEED", time.time_ns() % 1_000_000))
    print(f"OFFRAMP_TEST_SEED={seed}")
    with environment.sidecar, Publisher(broker=broker, address=environment.address, timeout=60) as publisher:
        rounds = Rounds(driver, environment.sidecar, publisher, environment.topic, seed=seed, rounds=ROUNDS)
        try:
            rounds.play()
            rounds.check()
        finally:
            driver.kill()


@pytest.mark.timeout(900)
def test_a_batch_that_was_run_again_after_a_crash_is_committed_though_nothing_new_came(tmp_path: Path) -> None:
    environment = SparkEnvironment(tmp_path / "environment")
    with environment.sidecar:
        environment.numbers(0, 10)
        driver = Driver(environment.folder / "driver", "local[2]", environment.address, CLICKS)
        try:
            driver.die()
            assert sum(max(0, at) for at in environment.committed().values()) == 0
            driver.finish()
        finally:
            driver.kill()
        assert [line["batch"] for line in driver.journal()] == [0, 0], "the batch was run again, and no other"
        eventually(lambda: sum(environment.committed().values()) == 10, "all of it is committed")


@pytest.mark.timeout(7_200 if LONG else 1_800)
def test_on_the_embedded_broker_with_tasks_in_the_driver(tmp_path: Path) -> None:
    play(SparkEnvironment(tmp_path / "environment"), "local[2,4]", "local")


@pytest.mark.timeout(7_200 if LONG else 1_800)
def test_on_kafka_with_executors_of_their_own(tmp_path: Path, kafka: KafkaServer) -> None:
    play(on_kafka(tmp_path, kafka, new_topic(kafka, LANES)), "local-cluster[2,1,1024]", "kafka")


@pytest.mark.timeout(7_200)
@pytest.mark.skipif(not LONG, reason="a cluster of its own; in the long form")
def test_on_a_standalone_cluster(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster") as cluster:
        play(SparkEnvironment(tmp_path / "environment"), cluster.master, "local", cluster.workers)

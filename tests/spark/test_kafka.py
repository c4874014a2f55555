"""Queries on a real Spark over topics of a real Kafka that change meanwhile: what fails is told in the driver."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.cimpl import NewPartitions
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import spark_bridge
from spark_bridge.errors import root_cause
from tests.brokers.harness import new_topic
from tests.brokers.kafka.harness import recreate_topic
from tests.e2e.harness import Sidecar, eventually
from tests.security.kit import TOKENS, Secured, tcp_address
from tests.servers.kafka import KafkaServer
from tests.spark.environment import CLICKS, SparkEnvironment, on_kafka, secured_options
from tests.spark.queries import BATCH_TIMEOUT, Batches, run, start

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def topic(kafka: KafkaServer) -> str:
    return new_topic(kafka)


@pytest.fixture
def environment(tmp_path: Path, kafka: KafkaServer, topic: str) -> Iterator[SparkEnvironment]:
    environment = on_kafka(tmp_path, kafka, topic)
    with environment.sidecar:
        yield environment


def publish(kafka: KafkaServer, topic: str, first: int, stop: int, lane: int = 0) -> None:
    """Messages whose values are numbers."""
    kafka.publish(topic, *(b"%d" % n for n in range(first, stop)), lane=lane)


def test_a_lane_that_is_added_under_a_running_query_is_read_from_its_first_record(
    spark: SparkSession, environment: SparkEnvironment, tmp_path: Path, kafka: KafkaServer, topic: str
) -> None:
    publish(kafka, topic, 0, 5)
    sink = Batches()
    query = start(spark, environment.options(), tmp_path, sink)
    try:
        eventually(lambda: len(sink.values) == 5, "the first lane is read", BATCH_TIMEOUT)
        kafka.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
        eventually(
            lambda: len(environment.sidecar.status(CLICKS).lanes) == 2, "the sidecar sees the new lane", BATCH_TIMEOUT
        )
        publish(kafka, topic, 5, 9, lane=1)
        eventually(lambda: len(sink.values) == 9, "the new lane is read", BATCH_TIMEOUT)
    finally:
        query.stop()
    assert sink.values == list(range(9))


def test_what_retention_removed_ends_a_query_or_is_skipped(
    spark: SparkSession, environment: SparkEnvironment, tmp_path: Path, kafka: KafkaServer, topic: str
) -> None:
    publish(kafka, topic, 0, 5)
    sink = Batches()
    run(spark, environment.options(), tmp_path, sink)
    publish(kafka, topic, 5, 10)
    # Planned, and removed before anybody reads it: what a batch that is run again after a long stop may meet.
    sink.failing = {1}
    with pytest.raises(StreamingQueryException, match="the sink failed"):
        run(spark, environment.options(), tmp_path, sink)
    del sink.rows[1]
    (done,) = kafka.admin.delete_records([TopicPartition(topic, 0, 8)]).values()
    assert done.result(30).low_watermark == 8
    with pytest.raises(StreamingQueryException) as caught:
        run(spark, environment.options(), tmp_path, sink)
    assert f"{topic}/0: positions 5 to 7 are gone" in root_cause(caught.value)
    run(spark, environment.options(failOnDataLoss="false"), tmp_path, sink)
    assert sink.values == [0, 1, 2, 3, 4, 8, 9]


def test_a_topic_that_was_recreated_ends_a_query_or_is_read_from_its_first_record(
    spark: SparkSession, environment: SparkEnvironment, tmp_path: Path, kafka: KafkaServer, topic: str
) -> None:
    publish(kafka, topic, 0, 10)
    sink = Batches()
    run(spark, environment.options(), tmp_path, sink)
    recreate_topic(kafka, topic)
    publish(kafka, topic, 20, 24)
    with pytest.raises(StreamingQueryException) as caught:
        run(spark, environment.options(), tmp_path, sink)
    assert f"{topic}/0 ends at 4" in root_cause(caught.value)
    assert "recreated" in root_cause(caught.value)
    run(spark, environment.options(failOnDataLoss="false"), tmp_path, sink)
    assert sink.values == [*range(10), *range(20, 24)]


def sidecars(folder: Path, kafka: KafkaServer, topic: str) -> tuple[Secured, Sidecar, Sidecar]:
    """One to plan with and one to read from, on one topic, each beyond loopback, with TLS and tokens."""
    secured = Secured(folder, spark={"ranges": [CLICKS]}, app={"consume": [CLICKS]})
    settings = {
        "brokers": {"kafka": {"type": "kafka", "servers": [kafka.bootstrap]}},
        "subscriptions": {CLICKS: {"broker": "kafka", "topics": [topic], "group": topic, "mode": "ranges"}},
    }
    first, second = (
        Sidecar(folder, name=name, listen=secured.listen(), clients=secured.clients, **settings)
        for name in ("plans", "reads")
    )
    return secured, first, second


def test_with_tls_and_a_token_tasks_read_from_another_sidecar_than_the_one_that_plans(
    spark: SparkSession, tmp_path: Path, kafka: KafkaServer, topic: str
) -> None:
    publish(kafka, topic, 0, 20)
    secured, plans, reads = sidecars(tmp_path, kafka, topic)
    with plans, reads:
        options = secured_options(secured, plans, CLICKS, token=TOKENS["spark"], readAddress=tcp_address(reads))
        sink = Batches()
        proof = {"ca": options["ca"], "server_name": "localhost", "token": TOKENS["spark"]}
        spark_bridge.install(spark, **proof)  # type: ignore[arg-type]
        try:
            query = start(spark, options, tmp_path, sink)
            try:
                eventually(lambda: len(sink.values) == 20, "all is read", BATCH_TIMEOUT)
                eventually(lambda: plans.status(CLICKS).lanes[0].committed == 20, "it is committed", BATCH_TIMEOUT)
            finally:
                query.stop()
        finally:
            spark_bridge.install(spark)
        assert sink.values == list(range(20))
        assert plans.status(CLICKS).counters.delivered == 0
        assert reads.status(CLICKS).counters.delivered == 20
        assert reads.status(CLICKS).counters.commits == 0


@pytest.mark.parametrize("token", ["app", "stranger"])
def test_a_refused_token_is_told_in_the_driver(
    spark: SparkSession, tmp_path: Path, kafka: KafkaServer, topic: str, token: str
) -> None:
    secured, plans, _ = sidecars(tmp_path, kafka, topic)
    with plans:
        options = secured_options(secured, plans, CLICKS, token=TOKENS.get(token, uuid.uuid4().hex))
        with pytest.raises(StreamingQueryException) as caught:
            run(spark, options, tmp_path, Batches())
    said = {"app": "lacks the right ranges", "stranger": "token"}[token]
    assert "Forbidden" in str(caught.value)
    assert said in root_cause(caught.value)
    assert options["token"] not in str(caught.value)

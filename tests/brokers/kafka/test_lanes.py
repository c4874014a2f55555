"""Topics of patterns, and topics and lanes that are added after the group, on a real Kafka."""

from typing import Any

import pytest
from confluent_kafka.cimpl import NewPartitions

from sidecar.brokers.kafka.options import GroupProtocol
from sidecar.model.records import Lane, Start
from tests.brokers.harness import consuming, name, new_topic
from tests.brokers.kafka.harness import BOTH, running
from tests.event_loop import on_event_loop
from tests.servers.kafka import KafkaServer
from tests.servers.process import await_

QUICK = {"topic.metadata.refresh.interval.ms": "500"}


@BOTH
@pytest.mark.parametrize("start", Start)
@on_event_loop
async def test_topics_by_pattern_and_new_ones_are_picked_up_from_their_start(
    kafka: KafkaServer, protocol: GroupProtocol, start: Start
) -> None:
    prefix = name("pattern")
    kafka.make_topic(f"{prefix}.a", 2)
    kafka.make_topic(f"other.{prefix}", 1)
    async with (
        running(kafka, group_protocol=protocol, properties=QUICK) as broker,
        consuming(broker, f"^{prefix}\\..*", group=name("group"), start=start) as consumer,
    ):
        await consumer.until(lambda: len(consumer.assigned()) == 2)
        kafka.make_topic(f"{prefix}.b", 1)
        kafka.publish(f"{prefix}.b", b"value")
        await consumer.take(1)
        lanes = {Lane(f"{prefix}.a", 0), Lane(f"{prefix}.a", 1), Lane(f"{prefix}.b", 0)}
        assert set(consumer.assigned()) == lanes


@BOTH
@pytest.mark.parametrize("start", Start)
@on_event_loop
async def test_new_lanes_of_a_topic_are_picked_up_from_their_start(
    kafka: KafkaServer, protocol: GroupProtocol, start: Start
) -> None:
    topic = new_topic(kafka, 1)
    async with (
        running(kafka, group_protocol=protocol, properties=QUICK) as broker,
        consuming(broker, topic, group=name("group"), start=start) as consumer,
    ):
        await consumer.until(consumer.assigned)
        kafka.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20)
        await_(lambda: len(kafka.admin.list_topics(topic, 20).topics[topic].partitions) == 3, "the lanes exist")
        for lane in (1, 2):
            kafka.publish(topic, b"%d" % lane, lane=lane)
        await consumer.take_values([b"1", b"2"])
        assert set(consumer.assigned()) == {Lane(topic, lane) for lane in range(3)}


@on_event_loop
async def test_a_topic_of_a_pattern_that_was_created_while_no_sidecar_ran_is_read_from_its_start(
    kafka: KafkaServer,
) -> None:
    prefix, group = name("pattern"), name("group")
    kafka.make_topic(f"{prefix}.a")
    kafka.publish(f"{prefix}.a", b"old")
    spec: dict[str, Any] = {"group": group, "start": Start.LATEST}
    async with running(kafka) as broker, consuming(broker, f"^{prefix}\\..*", **spec) as consumer:
        await consumer.until(consumer.assigned)
    kafka.make_topic(f"{prefix}.b")
    kafka.publish(f"{prefix}.b", b"new")
    async with running(kafka) as broker, consuming(broker, f"^{prefix}\\..*", **spec) as consumer:
        assert await consumer.take(1) == [b"new"]

"""Messages of other clients that pulsar-client cannot decode."""

import _pulsar
import pytest

from sidecar.brokers.base import Lost
from sidecar.brokers.pulsar.options import SubscriptionType
from sidecar.model.records import Commit, Header, Lane
from tests.brokers.harness import consuming, name, new_topic
from tests.brokers.pulsar.harness import await_no_backlog, running
from tests.e2e.pulsar.snapshot import client_of
from tests.event_loop import on_event_loop
from tests.servers.pulsar import PulsarServer


def publish(server: PulsarServer, topic: str) -> None:
    """Publishes five messages: the key of one and a property of another are not UTF-8."""
    with client_of(server) as client:
        producer = client.create_producer(f"{topic}-partition-0", batching_enabled=False)._producer
        for value in (b"0", b"key", b"1", b"property", b"2"):
            builder = _pulsar.MessageBuilder()
            builder.content(value)
            if value == b"key":
                builder.partition_key(b"\xff\xfe")
            if value == b"property":
                builder.property("name", b"\xff")
            producer.send(builder.build())


@pytest.mark.parametrize("kind", [SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED])
@on_event_loop
async def test_messages_that_are_not_utf_8_hold_nothing_up(pulsar: PulsarServer, kind: SubscriptionType) -> None:
    topic, group = new_topic(pulsar), name("group")
    publish(pulsar, topic)
    async with running(pulsar, subscription_type=kind) as broker, consuming(broker, topic, group=group) as consumer:
        assert await consumer.take(5) == [b"0", b"key", b"1", b"property", b"2"]
        assert not any(isinstance(event, Lost) for event in consumer.events)
        found = {record.value: record for record in consumer.records}
        assert found[b"key"].key == b"\xff\xfe"
        assert found[b"property"].headers == (Header("offramp-unreadable", b"properties"),)
        at = [record.position for record in consumer.records]
        await consumer.commit(Lane(topic, 0), Commit(at[-1] + 1))
    await_no_backlog(pulsar, topic, group)

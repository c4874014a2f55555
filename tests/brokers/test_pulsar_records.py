"""Messages on Pulsar that other clients may write, and the library cannot read."""

import asyncio

import _pulsar
import pytest

from sidecar.brokers.base import Lost
from sidecar.brokers.pulsar.options import SubscriptionType
from sidecar.model.records import Commit, Header, Lane
from tests.brokers.pulsar import await_no_backlog, consuming, name, running
from tests.e2e.pulsar.stock import client_of
from tests.servers.pulsar import PulsarServer


def publish(server: PulsarServer, topic: str) -> None:
    """One whose key is no UTF-8, and one with such a property, among others."""
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
def test_what_is_no_utf_8_is_delivered_and_holds_nothing_up(pulsar: PulsarServer, kind: SubscriptionType) -> None:
    topic, group = name("topic"), name("group")
    pulsar.make_topic(topic)
    publish(pulsar, topic)

    async def body() -> None:
        async with running(pulsar, subscription_type=kind) as broker, consuming(broker, topic, group=group) as consumer:
            assert await consumer.take(5) == [b"0", b"key", b"1", b"property", b"2"]
            assert not any(isinstance(event, Lost) for event in consumer.events)
            found = {record.value: record for record in consumer.records}
            assert found[b"key"].key == b"\xff\xfe"
            assert found[b"property"].headers == (Header("offramp-unreadable", b"properties"),)
            at = [record.position for record in consumer.records]
            await consumer.commit(Lane(topic, 0), Commit(at[-1] + 1))

    asyncio.run(body())
    await_no_backlog(pulsar, topic, group)

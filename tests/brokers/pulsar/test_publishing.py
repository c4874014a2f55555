"""A publish of which Pulsar takes some messages and refuses others."""

from sidecar.model.errors import TooLarge
from sidecar.model.records import Message, Place
from tests.brokers.harness import consuming, name, new_topic
from tests.brokers.pulsar.harness import running
from tests.event_loop import on_event_loop
from tests.servers.pulsar import PulsarServer


@on_event_loop
async def test_a_message_that_is_too_large_is_refused_alone(pulsar: PulsarServer) -> None:
    topic, group = new_topic(pulsar), name("group")
    messages = [Message(b"k", value) for value in (b"first", bytes(6 << 20), b"last")]
    async with running(pulsar) as broker, consuming(broker, topic, group=group) as consumer:
        first, large, last = await broker.publish_each(topic, messages)
        assert isinstance(large, TooLarge)
        assert isinstance(first, Place)
        assert isinstance(last, Place)
        assert await consumer.take(2) == [b"first", b"last"]

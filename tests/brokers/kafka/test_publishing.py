"""A publish of which Kafka takes some messages and refuses others."""

from sidecar.model.errors import TooLarge
from sidecar.model.records import Message, Place
from tests.brokers.harness import consuming, name
from tests.brokers.kafka.harness import running
from tests.event_loop import on_event_loop
from tests.servers.kafka import KafkaServer


@on_event_loop
async def test_a_message_that_is_too_large_is_refused_alone(kafka: KafkaServer) -> None:
    topic, group = name("topic"), name("group")
    kafka.make_topic(topic)
    messages = [Message(b"k", value) for value in (b"first", bytes(2 << 20), b"last")]
    async with running(kafka) as broker, consuming(broker, topic, group=group) as consumer:
        first, large, last = await broker.publish_each(topic, messages)
        assert isinstance(large, TooLarge)
        assert isinstance(first, Place)
        assert isinstance(last, Place)
        assert await consumer.take(2) == [b"first", b"last"]

"""A right to one topic that is taken away while several topics are consumed."""

import asyncio

from confluent_kafka.admin import ResourceType

from sidecar.brokers.kafka.options import Sasl
from sidecar.model.errors import LaneGone
from sidecar.model.records import Assigned, Commit, Lane
from tests.brokers.harness import WAIT_TIMEOUT, consuming, name, numbered
from tests.brokers.kafka.harness import grant, revoke, right, running
from tests.event_loop import on_event_loop
from tests.servers.kafka import READER, KafkaServer


@on_event_loop
async def test_the_other_topics_are_committed_and_it_starts_again_when_the_right_is_back(kafka: KafkaServer) -> None:
    kept, taken, group = name("topic"), name("topic"), name("group")
    for topic in (kept, taken):
        kafka.make_topic(topic)
        kafka.publish(topic, *numbered(5, f"{topic}-"))
        grant(kafka, right(ResourceType.TOPIC, topic))
    grant(kafka, right(ResourceType.GROUP, group))
    async with (
        running(
            kafka,
            servers=(kafka.addresses.sasl,),
            sasl=Sasl.PLAIN,
            username=READER.name,
            password=READER.password,
            create_topics=False,
        ) as broker,
        consuming(broker, kept, taken, group=group) as consumer,
    ):
        await consumer.take(10)
        revoke(kafka, right(ResourceType.TOPIC, taken))
        # It takes effect a moment later.
        gone: frozenset[Lane] = frozenset()
        position = taken_at = 0
        async with asyncio.timeout(WAIT_TIMEOUT):
            while not gone:
                position = min(position + 1, 4)
                try:
                    await consumer.source.commit({Lane(topic, 0): Commit(position) for topic in (kept, taken)})
                    taken_at = position
                except LaneGone as error:
                    gone = error.lanes
        assert gone == {Lane(taken, 0)}
        assert kafka.committed(group, kept, [0])[0][0] == position
        consumer.forget()
        grant(kafka, right(ResourceType.TOPIC, taken))
        await consumer.take_values(numbered(5, f"{taken}-")[taken_at:])
        assigned = [event for event in consumer.events if isinstance(event, Assigned)]
        assert assigned == [Assigned(Lane(taken, 0), taken_at)]

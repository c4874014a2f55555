"""A topic that is deleted and recreated under its name while it is consumed."""

import asyncio
import contextlib

import pytest

from sidecar.brokers.base import Revoked
from sidecar.brokers.kafka.options import GroupProtocol
from sidecar.model.errors import BrokerError
from sidecar.model.records import Assigned, Commit, Lane
from tests.brokers.harness import WAIT_TIMEOUT, Consumer, consuming, name, new_topic, numbered
from tests.brokers.kafka.harness import BOTH, recreate_topic, running
from tests.event_loop import on_event_loop
from tests.servers.kafka import KafkaServer


#: milliseconds after which the library notices: soon, and so late that it continues in the new topic by itself
@pytest.mark.parametrize("refresh", ["500", "30000"])
@BOTH
@on_event_loop
async def test_all_of_the_new_topic_is_delivered_however_far_the_group_was_in_the_old_one(
    kafka: KafkaServer, protocol: GroupProtocol, refresh: str
) -> None:
    topic, group = new_topic(kafka), name("group")
    kafka.publish(topic, *numbered(150))
    given = {"topic.metadata.refresh.interval.ms": refresh}
    async with (
        running(kafka, group_protocol=protocol, properties=given) as broker,
        consuming(broker, topic, group=group) as consumer,
    ):
        await consumer.take(150)
        await consumer.commit(Lane(topic, 0), Commit(100))
        recreate_topic(kafka, topic)
        kafka.publish(topic, *numbered(400, "new-"))
        # As the core does for records of the old topic.
        with contextlib.suppress(BrokerError):
            await consumer.commit(Lane(topic, 0), Commit(150))
        async with asyncio.timeout(WAIT_TIMEOUT):
            while not {*numbered(400, "new-")} <= {*consumer.values}:
                await _poll(consumer)
        ids = [event.topic_id for event in consumer.events if isinstance(event, Assigned)]
        assert all(ids)
        assert ids[0] != ids[-1], "records of the new topic have another identity"


async def _poll(consumer: Consumer) -> None:
    """Settles and releases lanes that are revoked."""
    before = len(consumer.events)
    try:
        await consumer.poll(timeout=0.2)
    except BrokerError:
        await asyncio.sleep(0.1)
    for event in consumer.events[before:]:
        if isinstance(event, Revoked):
            with contextlib.suppress(BrokerError):
                for lane in event.lanes:
                    await consumer.commit(lane, Commit(150))
            await consumer.source.release(event.lanes)

"""Batches of producers with more messages than positions have room for."""

import pytest

from sidecar.brokers.base import AtTime, SeekTo
from sidecar.brokers.pulsar.options import SubscriptionType
from sidecar.model.errors import Refused
from sidecar.model.records import Lane, Message, Run
from tests.brokers.harness import consuming, new_topic, numbered, publish, read
from tests.brokers.pulsar.harness import publish_batches, running
from tests.event_loop import on_event_loop
from tests.servers.pulsar import PulsarServer

COUNT = 2_060


@pytest.fixture
def topic(pulsar: PulsarServer) -> str:
    """With all values in one entry."""
    topic = new_topic(pulsar)
    publish_batches(pulsar, topic, *numbered(COUNT))
    return topic


@on_event_loop
async def test_a_range_with_a_message_that_has_no_position_is_refused_and_not_cut_short(
    pulsar: PulsarServer, topic: str
) -> None:
    lane = Lane(topic, 0)
    async with running(pulsar) as broker:
        end = (await broker.lane_ends(topic))[lane]
        with pytest.raises(Refused, match=r"message \d+:0:2048 of .* 2,048 messages in a batch"):
            await read(broker, lane, Run(end.start, end.end))
        assert await read(broker, lane, Run(end.start, end.start + 2_047)) == numbered(2_047)


@on_event_loop
async def test_the_end_of_a_lane_lies_after_such_a_batch(pulsar: PulsarServer, topic: str) -> None:
    lane = Lane(topic, 0)
    async with running(pulsar) as broker:
        end = (await broker.lane_ends(topic))[lane].end
        (place,) = await broker.publish(topic, [Message(None, b"next", lane=0, timestamp_ms=1 << 42)])
        assert place.position >= end
        assert await read(broker, lane, Run(end, place.position + 1)) == [b"next"]
        assert await broker.locate(topic, AtTime(1 << 42)) == {lane: place.position}


@on_event_loop
async def test_a_lane_with_such_a_batch_is_consumed_and_sought(pulsar: PulsarServer, topic: str) -> None:
    lane = Lane(topic, 0)
    async with (
        running(pulsar, subscription_type=SubscriptionType.EXCLUSIVE) as broker,
        consuming(broker, topic) as consumer,
    ):
        assert await consumer.take(COUNT) == numbered(COUNT)
        await consumer.source.seek({lane: SeekTo.END})
        consumer.forget()
        await publish(broker, topic, b"next")
        assert await consumer.take(1) == [b"next"]
        consumer.forget()
        await consumer.source.seek({lane: SeekTo.START})
        assert await consumer.take(COUNT + 1) == [*numbered(COUNT), b"next"]

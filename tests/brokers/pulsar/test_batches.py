"""Batches of producers with more messages than positions have room for."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sidecar.brokers.base import AtTime, SeekTo
from sidecar.brokers.pulsar import PulsarBroker
from sidecar.brokers.pulsar.options import SubscriptionType
from sidecar.model.errors import Refused
from sidecar.model.records import Lane, Message, Run
from sidecar.model.wire import decode_frame
from tests.brokers.harness import numbered
from tests.brokers.pulsar import consuming, name, running
from tests.e2e.pulsar.snapshot import client_of
from tests.servers.pulsar import PulsarServer

COUNT = 2_060


def play(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(body())


def publish(server: PulsarServer, topic: str) -> None:
    """Publishes all values in one entry."""
    settings: dict[str, Any] = {
        "batching_enabled": True,
        "batching_max_messages": COUNT,
        "batching_max_allowed_size_in_bytes": 1 << 20,
        "batching_max_publish_delay_ms": 60_000,
        "max_pending_messages": COUNT,
    }
    with client_of(server) as client:
        producer = client.create_producer(f"{topic}-partition-0", **settings)
        for value in numbered(COUNT):
            producer.send_async(value, None)
        producer.flush()


async def read(broker: PulsarBroker, lane: Lane, run: Run) -> list[bytes | None]:
    return [decode_frame(frame).value async for chunk in broker.read(lane, run, 1 << 20) for frame in chunk.frames]


def test_a_range_with_a_message_that_has_no_position_is_refused_and_not_cut_short(pulsar: PulsarServer) -> None:
    topic = name("topic")
    pulsar.make_topic(topic)
    publish(pulsar, topic)
    lane = Lane(topic, 0)

    @play
    async def _() -> None:
        async with running(pulsar) as broker:
            end = (await broker.lane_ends(topic))[lane]
            with pytest.raises(Refused, match=r"message \d+:0:2048 of .* 2,048 messages in a batch"):
                await read(broker, lane, Run(end.start, end.end))
            assert await read(broker, lane, Run(end.start, end.start + 2_047)) == numbered(2_047)


def test_the_end_of_a_lane_lies_after_such_a_batch(pulsar: PulsarServer) -> None:
    topic = name("topic")
    pulsar.make_topic(topic)
    publish(pulsar, topic)
    lane = Lane(topic, 0)

    @play
    async def _() -> None:
        async with running(pulsar) as broker:
            end = (await broker.lane_ends(topic))[lane].end
            (place,) = await broker.publish(topic, [Message(None, b"next", lane=0, timestamp_ms=1 << 42)])
            assert place.position >= end
            assert await read(broker, lane, Run(end, place.position + 1)) == [b"next"]
            assert await broker.locate(topic, AtTime(1 << 42)) == {lane: place.position}


def test_a_lane_with_such_a_batch_is_consumed_and_sought(pulsar: PulsarServer) -> None:
    topic, group = name("topic"), name("group")
    pulsar.make_topic(topic)
    publish(pulsar, topic)
    lane = Lane(topic, 0)

    @play
    async def _() -> None:
        async with (
            running(pulsar, subscription_type=SubscriptionType.EXCLUSIVE) as broker,
            consuming(broker, topic, group=group) as consumer,
        ):
            assert await consumer.take(COUNT) == numbered(COUNT)
            await consumer.source.seek({lane: SeekTo.END})
            consumer.forget()
            await broker.publish(topic, [Message(None, b"next", lane=0)])
            assert await consumer.take(1) == [b"next"]
            consumer.forget()
            await consumer.source.seek({lane: SeekTo.START})
            assert await consumer.take(COUNT + 1) == [*numbered(COUNT), b"next"]

"""Streams as NATS has them: subjects, headers, sizes, limits, where to start."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from sidecar.model.errors import NotFound, OutOfRoom, Refused, TooLarge
from sidecar.model.records import Commit, Header, Lane, Message, Run, Start
from sidecar.model.wire import decode_frame
from tests.brokers.harness import EVERYTHING, consuming, name, new_topic, numbered, publish, read
from tests.brokers.nats.harness import receiving, running
from tests.servers.nats import NatsServer


def test_the_subject_of_a_message_is_a_header_and_it_goes_there_again(nats: NatsServer) -> None:
    async def run() -> None:
        stream = name("orders")
        nats.make_stream(stream, [f"{stream}.>"])
        async with running(nats) as broker, consuming(broker, stream, group=name("group")) as consumer:
            there = Header("Nats-Subject", f"{stream}.eu.1".encode())
            await broker.publish(stream, [Message(None, b"1", (there, Header("A", b"1")))])
            await consumer.take(1)
            (record,) = consumer.records
            assert record.headers == (there, Header("A", b"1"))
            # As a dead letter is sent back.
            await broker.publish(stream, [Message(record.key, record.value, record.headers)])
            await consumer.take(2)
            assert consumer.records[1].headers == record.headers
            with pytest.raises(Refused, match="say which one in the header Nats-Subject"):
                await broker.publish(stream, [Message(None, b"nowhere")])

    asyncio.run(run())


def test_headers_of_the_same_name_stay_in_order(nats: NatsServer) -> None:
    async def run() -> None:
        topic = new_topic(nats)
        headers = (Header("A", b"1"), Header("B", b"2"), Header("A", b"3"), Header("a", None), Header("Status", b"503"))
        async with running(nats) as broker, consuming(broker, topic, group=name("group")) as consumer:
            await broker.publish(topic, [Message(b"\x00key", None, headers, timestamp_ms=1_700_000_000_000)])
            await consumer.take(1)
            (record,) = consumer.records
            assert (record.key, record.value, record.headers) == (b"\x00key", None, headers)
            assert record.timestamp_ms == 1_700_000_000_000

    asyncio.run(run())


def test_one_message_of_an_id_is_written_once_and_its_copy_elsewhere_is_no_duplicate(nats: NatsServer) -> None:
    async def run() -> None:
        topic = new_topic(nats)
        async with running(nats) as broker:
            once = Message(None, b"once", deduplication_id="7")
            (first,) = await broker.publish(topic, [once])
            assert await broker.publish(topic, [once]) == [first]
            (chunk,) = [chunk async for chunk in broker.read(Lane(topic, 0), EVERYTHING, 1 << 20)]
            record = decode_frame(chunk.frames[0])
            assert Header("Nats-Msg-Id", b"7") in record.headers
            # Sent back with all of its headers it is written, though the server still remembers the id.
            (again,) = await broker.publish(topic, [Message(None, record.value, record.headers)])
            assert again.position == first.position + 1

    asyncio.run(run())


def test_messages_that_grow_are_bounded_by_size(nats: NatsServer) -> None:
    async def run() -> None:
        topic, group = new_topic(nats), name("group")
        async with running(nats) as broker, receiving(broker, topic, group) as receiver:
            await publish(broker, topic, *[bytes(100)] * 20, *[bytes(600_000)] * 4)
            sizes: list[list[int]] = []
            while sum(map(len, sizes)) < 24:
                found = await receiver.receive(500, 500_000, 1.0)
                sizes.append([len(one.value or b"") for one in found])
            assert sizes == [[100] * 20, *[[600_000]] * 4]

    asyncio.run(run())


@pytest.mark.parametrize("large", [Message(None, bytes(2 << 20)), Message(None, b"", (Header("A", b"x" * (2 << 20)),))])
def test_a_message_that_is_too_large_is_refused_and_the_connection_goes_on(nats: NatsServer, large: Message) -> None:
    async def run() -> None:
        topic = new_topic(nats)
        async with running(nats) as broker:
            link = await broker.driver._connection.link()
            with pytest.raises(TooLarge, match="the server takes 1048576"):
                await broker.publish(topic, [large])
            await publish(broker, topic, b"small")
            assert await broker.driver._connection.link() is link

    asyncio.run(run())


def test_a_stream_that_is_full_is_out_of_room(nats: NatsServer) -> None:
    async def run() -> None:
        stream = name("full")
        nats.make_stream(stream, [stream], max_msgs=2, discard="new")
        async with running(nats) as broker:
            await publish(broker, stream, *numbered(2))
            with pytest.raises(OutOfRoom, match="maximum messages exceeded"):
                await publish(broker, stream, b"more")

    asyncio.run(run())


def test_a_message_larger_than_the_stream_takes_is_too_large(nats: NatsServer) -> None:
    async def run() -> None:
        stream = name("small")
        nats.make_stream(stream, [stream], max_msg_size=1000)
        async with running(nats) as broker:
            with pytest.raises(TooLarge, match="size exceeds"):
                await publish(broker, stream, bytes(2000))

    asyncio.run(run())


def test_what_a_stream_removed_unread_is_counted_once(nats: NatsServer) -> None:
    async def run() -> None:
        stream, group = name("limited"), name("group")
        nats.make_stream(stream, [stream], max_msgs=10)
        async with (
            running(nats) as one,
            running(nats) as other,
            receiving(one, stream, group) as first,
            receiving(other, stream, group) as second,
        ):
            await publish(one, stream, *numbered(3))
            assert len(await first.receive(3, 1 << 20, 1.0)) == 3
            await publish(one, stream, *numbered(25, "later"))
            found = await first.receive(10, 1 << 20, 1.0)
            assert [message.value for message in found] == numbered(25, "later")[15:]
            assert (first.lost, second.lost) == (15, 0)

    asyncio.run(run())


def test_a_stream_that_is_about_to_remove_what_is_unread_is_a_trouble(nats: NatsServer) -> None:
    async def run() -> None:
        stream, group = name("limited"), name("group")
        nats.make_stream(stream, [stream], max_msgs=10)
        async with running(nats) as broker, receiving(broker, stream, group) as receiver:
            await publish(broker, stream, *numbered(9))
            await receiver.receive(1, 1 << 20, 1.0)
            assert "near its max_msgs" in receiver.troubles["retention"]

    asyncio.run(run())


def test_the_most_deliveries_of_a_consumer_are_heeded(nats: NatsServer) -> None:
    async def run() -> None:
        topic, group = new_topic(nats), name("group")
        async with running(nats) as broker:
            link = await broker.driver._connection.link()
            config = {"durable_name": group, "ack_policy": "explicit", "max_deliver": 4, "ack_wait": 3_000_000_000}
            body = {"stream_name": topic, "config": config}
            await link.api("make it", f"CONSUMER.DURABLE.CREATE.{topic}.{group}", body)
            async with receiving(broker, topic, group) as receiver:
                assert (receiver.limits.deliveries, receiver.renew_every) == (4, 1.0)

    asyncio.run(run())


def test_what_a_group_has_settled_in_its_retry_topic_is_deleted(nats: NatsServer) -> None:
    async def run() -> None:
        topic, own = new_topic(nats), name("group.offramp.retry")
        async with running(nats) as broker:
            async with consuming(broker, topic, group=name("group"), own_topics={own: 2}) as consumer:
                await publish(broker, own, *numbered(10), lane=1)
                await publish(broker, topic, *numbered(10))
                await consumer.take(20)
                for lane in (Lane(own, 1), Lane(topic, 0)):
                    end = max(at for chunk in consumer.chunks if chunk.lane == lane for at in chunk.positions) + 1
                    await consumer.commit(lane, Commit(end))
            assert await read(broker, Lane(own, 1)) == []
            assert await read(broker, Lane(topic, 0)) == numbered(10)

    asyncio.run(run())


@pytest.mark.parametrize("by", ["sequence", "time"])
def test_a_new_group_may_start_at_a_sequence_or_a_time(nats: NatsServer, by: str) -> None:
    async def run() -> None:
        topic = new_topic(nats)
        async with running(nats) as broker:
            await publish(broker, topic, *numbered(5))
            moment = datetime.now(UTC).isoformat()
            await publish(broker, topic, b"5", b"6")
        start: dict[str, Any] = {"start_at": "6" if by == "sequence" else moment}
        async with running(nats, **start) as broker, consuming(broker, topic, group=name("group")) as consumer:
            assert await consumer.take(2) == [b"5", b"6"]

    asyncio.run(run())


def test_dead_letters_are_read_without_consuming_them_in_pieces(nats: NatsServer) -> None:
    async def run() -> None:
        topic = new_topic(nats, 2)
        async with running(nats) as broker:
            await publish(broker, topic, *numbered(5), lane=1)
            await publish(broker, topic, b"other", lane=0)
            chunks = [chunk async for chunk in broker.read(Lane(topic, 1), Run(0, 1 << 60), 1)]
            assert [decode_frame(chunk.frames[0]).value for chunk in chunks] == numbered(5)
            assert await read(broker, Lane(topic, 0)) == [b"other"]

    asyncio.run(run())


def test_a_missing_stream_is_an_error_that_says_how_to_add_it(nats: NatsServer) -> None:
    async def run() -> None:
        topic = name("missing.topic")
        async with running(nats, create_streams=False) as broker:
            with pytest.raises(
                Refused, match=f"nats stream add {topic.replace('.', '_')} --subjects={topic},{topic}.1 "
            ):
                await broker.ensure_topic(topic, 2)
            with pytest.raises(NotFound, match="stream not found"):
                await broker.publish(topic, [Message(None, b"")])

    asyncio.run(run())


def test_two_topics_that_would_be_one_stream_are_told_apart(nats: NatsServer) -> None:
    async def run() -> None:
        one = name("a_b")
        nats.make_topic(one)
        async with running(nats) as broker:
            with pytest.raises(Refused, match="does not take subject"):
                await broker.publish(one.replace("_", "."), [Message(None, b"")])

    asyncio.run(run())


def test_two_groups_that_would_be_one_consumer_are_told_apart(nats: NatsServer) -> None:
    async def run() -> None:
        topic, group = new_topic(nats), name("a_b")
        async with running(nats) as broker, receiving(broker, topic, group):
            with pytest.raises(Refused, match="rename the group"):
                await broker.driver.receiver(Lane(topic, 0), group.replace("_", "."), Start.EARLIEST)

    asyncio.run(run())

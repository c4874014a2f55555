"""Acks, and what comes back: connections that are cut, consumers that are deleted, servers that are killed."""

import asyncio

import pytest

from sidecar.brokers.queue.driver import HandlesLost
from sidecar.model.errors import Refused, Unavailable
from sidecar.model.records import Commit, Lane, Message, Start
from tests.brokers.harness import consuming, name, new_topic, numbered, publish
from tests.brokers.nats.harness import receiving, running
from tests.servers.nats import NatsServer


def test_acks_that_a_cut_connection_swallowed_are_not_believed(nats: NatsServer) -> None:
    async def run() -> None:
        topic, group = new_topic(nats), name("group")
        async with running(nats) as broker, receiving(broker, topic, group) as receiver:
            await publish(broker, topic, *numbered(20))
            handles = [one.handle for one in await receiver.receive(20, 1 << 20, 1.0)]
            link = await broker.driver._connection.link()
            # All but the last is on its way when the connection ends.
            asking, link.ask = link.ask, None

            async def cut(*arguments: object) -> object:
                link._client._transport.close()
                return await asking(*arguments)

            link.ask = cut
            with pytest.raises(Unavailable):
                await receiver.ack(handles, 20)
            depth = await broker.driver.depth(Lane(topic, 0), group)
            assert depth.waiting == 0
            # Once more, on another connection, with the same handles.
            assert await receiver.ack(handles, 20) == ()
            assert (await broker.driver.depth(Lane(topic, 0), group)).held == 0

    asyncio.run(run())


def test_what_a_silent_sidecar_held_goes_to_another_one(nats: NatsServer) -> None:
    async def run() -> None:
        topic, group = new_topic(nats), name("group")
        async with running(nats, ack_wait=1.0) as one, running(nats) as other:
            await publish(one, topic, *numbered(5))
            async with receiving(one, topic, group) as silent, receiving(other, topic, group) as receiver:
                assert len(await silent.receive(3, 1 << 20, 1.0)) == 3
                found = []
                while {message.value for message in found} != {*numbered(5)}:
                    found += await receiver.receive(10, 1 << 20, 1.0)
                again = {message.value: message for message in found if message.delivered_before}
                assert {*numbered(3)} <= again.keys()
                assert all(message.possibly_processed for message in again.values())

    asyncio.run(run())


def test_what_is_renewed_stays_where_it_is(nats: NatsServer) -> None:
    async def run() -> None:
        topic, group = new_topic(nats), name("group")
        async with running(nats, ack_wait=3.0) as one, running(nats) as other:
            await publish(one, topic, *numbered(3))
            async with receiving(one, topic, group) as holder, receiving(other, topic, group) as receiver:
                handles = [message.handle for message in await holder.receive(3, 1 << 20, 1.0)]
                for _ in range(8):
                    assert await receiver.receive(10, 1 << 20, 0.5) == []
                    await holder.renew(handles)
                await holder.ack(handles, 3)

    asyncio.run(run())


def test_a_consumer_that_is_deleted_is_made_anew_where_it_was(nats: NatsServer) -> None:
    async def run() -> None:
        topic, group = new_topic(nats), name("group")
        async with running(nats) as broker, consuming(broker, topic, group=group, start=Start.LATEST) as consumer:
            await consumer.until(consumer.assigned)
            await publish(broker, topic, *numbered(10))
            await consumer.take(10)
            await consumer.commit(Lane(topic, 0), Commit(consumer.positions[4]))
            # So that the receiver has seen what is settled.
            receiver = consumer.source._lanes[Lane(topic, 0)]._receiver
            await receiver._look()
            link = await broker.driver._connection.link()
            await link.api("delete it", f"CONSUMER.DELETE.{topic}.{group}")
            consumer.forget()
            await consumer.take_values(numbered(10)[4:])
            assert set(consumer.values) == set(numbered(10)[4:])

    asyncio.run(run())


def test_the_handles_of_a_consumer_that_is_gone_are_void(nats: NatsServer) -> None:
    async def run() -> None:
        topic, group = new_topic(nats), name("group")
        async with running(nats) as broker, receiving(broker, topic, group) as receiver:
            await publish(broker, topic, *numbered(3))
            handles = [one.handle for one in await receiver.receive(3, 1 << 20, 1.0)]
            link = await broker.driver._connection.link()
            await link.api("delete it", f"CONSUMER.DELETE.{topic}.{group}")
            with pytest.raises(HandlesLost):
                await receiver.ack(handles, 3)

    asyncio.run(run())


def test_handles_outlive_a_server_that_is_killed(own_nats: NatsServer) -> None:
    async def run() -> None:
        topic, group = new_topic(own_nats), name("group")
        async with running(own_nats, ack_wait=2.0, timeout=5.0) as broker:
            async with consuming(broker, topic, group=group) as consumer:
                await publish(broker, topic, *numbered(50))
                await consumer.take(50)
                await consumer.commit(Lane(topic, 0), Commit(consumer.positions[20]))
                await asyncio.to_thread(own_nats.restart)
                await publish(broker, topic, b"later")
                # What was acked shortly before may come, too: the server forgets acks. What is held is still held.
                await consumer.take_values([b"later"])
                await consumer.commit(Lane(topic, 0), Commit(max(consumer.positions) + 1))
                assert set(consumer.values) == {*numbered(50), b"later"}
            async with consuming(broker, topic, group=group) as consumer:
                await publish(broker, topic, b"last")
                await consumer.take_values([b"last"])

    asyncio.run(run())


def test_a_server_that_is_frozen_is_noticed_and_goes_on(own_nats: NatsServer) -> None:
    async def run() -> None:
        topic, group = new_topic(own_nats), name("group")
        async with running(own_nats, timeout=1.0) as broker, receiving(broker, topic, group) as receiver:
            await publish(broker, topic, *numbered(3))
            handles = [one.handle for one in await receiver.receive(3, 1 << 20, 1.0)]
            own_nats.freeze()
            try:
                with pytest.raises(Unavailable):
                    await receiver.ack(handles, 3)
                with pytest.raises(Unavailable):
                    await broker.publish(topic, [Message(None, b"given up")])
            finally:
                own_nats.thaw()
            await receiver.ack(handles, 3)
            assert (await broker.driver.depth(Lane(topic, 0), group)).held == 0

    asyncio.run(run())


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"ack_policy": "all"}, "ack policy all"), ({"deliver_subject": "push"}, "push consumer")],
)
def test_a_consumer_that_somebody_made_otherwise_is_refused(
    nats: NatsServer, settings: dict[str, str], said: str
) -> None:
    async def run() -> None:
        topic, group = new_topic(nats), name("group")
        async with running(nats) as broker:
            link = await broker.driver._connection.link()
            config = {"durable_name": group, "ack_policy": "explicit", **settings}
            body = {"stream_name": topic, "config": config}
            await link.api("make it", f"CONSUMER.DURABLE.CREATE.{topic}.{group}", body)
            with pytest.raises(Refused, match=said):
                await broker.driver.receiver(Lane(topic, 0), group, Start.EARLIEST)

    asyncio.run(run())


def test_acks_never_reach_the_messages_of_a_stream_that_was_made_anew(nats: NatsServer) -> None:
    async def run() -> None:
        topic, group = new_topic(nats), name("group")
        async with running(nats) as broker, running(nats) as other, receiving(broker, topic, group) as receiver:
            await publish(broker, topic, *numbered(3))
            handles = [one.handle for one in await receiver.receive(3, 1 << 20, 1.0)]
            link = await broker.driver._connection.link()
            await link.api("delete it", f"STREAM.DELETE.{topic}")
            nats.make_topic(topic)
            async with receiving(other, topic, group) as theirs:
                # They have the sequences of those that are gone.
                await publish(other, topic, *numbered(3, "new"))
                assert len(await theirs.receive(3, 1 << 20, 1.0)) == 3
                with pytest.raises(HandlesLost):
                    await receiver.ack(handles, 3)
                assert (await other.driver.depth(Lane(topic, 0), group)).held == 3

    asyncio.run(run())

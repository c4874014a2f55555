"""What Redis removes by itself is counted, once; and what nobody needs any more is deleted only where that is safe."""

import asyncio

from sidecar.model.records import Commit, Lane, Start
from tests.brokers.harness import consuming, name, new_topic, numbered, publish
from tests.brokers.redis.harness import running
from tests.brokers.redis.test_pending import leave_pending, receiving
from tests.servers.redis import RedisServer


def test_what_was_trimmed_unread_is_counted_once_by_all_sidecars_together(redis: RedisServer) -> None:
    async def run() -> None:
        topic, group = new_topic(redis), name("group")
        async with (
            running(redis) as one,
            running(redis) as other,
            receiving(one, topic, group) as first,
            receiving(other, topic, group) as second,
        ):
            await publish(one, topic, *numbered(10))
            assert len(await first.receive(3, 1 << 20, 1.0)) == 3
            with redis.client() as client:
                client.xtrim(topic, maxlen=5, approximate=False)
            found = [*await second.receive(2, 1 << 20, 1.0), *await first.receive(10, 1 << 20, 1.0)]
            assert [received.value for received in found] == numbered(10)[5:]
            assert first.lost + second.lost == 2
            depth = await one.driver.depth(Lane(topic, 0), group)
            assert (depth.waiting, depth.held) == (0, 8)
            # It goes on right after it.
            await publish(one, topic, b"later")
            with redis.client() as client:
                client.xtrim(topic, maxlen=1, approximate=False)
            assert [received.value for received in await second.receive(10, 1 << 20, 1.0)] == [b"later"]
            assert first.lost + second.lost == 2

    asyncio.run(run())


def test_what_was_trimmed_while_it_was_pending_is_counted(redis: RedisServer) -> None:
    async def run() -> None:
        topic, group = new_topic(redis), name("group")
        async with running(redis, consumer="pod-0") as broker:
            await leave_pending(broker, topic, group, numbered(10))
        with redis.client() as client:
            client.xtrim(topic, maxlen=4, approximate=False)
        async with running(redis, consumer="pod-0") as broker, receiving(broker, topic, group) as receiver:
            found = [received.value for received in await receiver.receive(100, 1 << 20, 1.0)]
            assert (found, receiver.lost) == (numbered(10)[6:], 6)

    asyncio.run(run())


def test_a_retry_topic_keeps_nothing_that_was_settled(redis: RedisServer) -> None:
    async def run() -> None:
        topic, own = new_topic(redis), name("group.offramp.retry")
        async with running(redis) as broker, consuming(broker, topic, group=name("group"), own_topics={own: 2}) as it:
            await publish(broker, own, *numbered(10), lane=1)
            await publish(broker, topic, *numbered(10))
            await it.take(20)
            ends = {
                lane: max(p for c in it.chunks if c.lane == lane for p in c.positions) + 1
                for lane in it.assigned()
                if any(c.lane == lane for c in it.chunks)
            }
            await it.source.commit({lane: Commit(end) for lane, end in ends.items()})
        with redis.client() as client:
            assert (client.xlen(f"{own}:1"), client.xlen(topic)) == (0, 10)

    asyncio.run(run())


def test_what_is_settled_is_deleted_once_every_group_has_settled_it(redis: RedisServer) -> None:
    async def run() -> None:
        topic, group, other = new_topic(redis), name("group"), name("other")
        with redis.client() as client:
            client.xgroup_create(topic, other, "0")
        async with running(redis, delete_settled=True) as broker, receiving(broker, topic, group) as receiver:
            await publish(broker, topic, *numbered(10))
            with redis.client() as client:
                # It has 4 of them, and is done with 3: the second is pending.
                read = client.xreadgroup(other, "somebody", {topic: ">"}, count=4)
                ids = [id_ for id_, _ in read[0][1]]
                client.xack(topic, other, ids[0], ids[2], ids[3])
            handles = [one.handle for one in await receiver.receive(10, 1 << 20, 1.0)]
            await receiver.ack(handles, 10)
            with redis.client() as client:
                assert client.xrange(topic)[0][0] == ids[1]
                client.xack(topic, other, ids[1])
                await receiver.ack(handles[:1], 1)
                assert client.xlen(topic) == 6
                client.xgroup_setid(topic, other, "$")
                await receiver.ack(handles[:1], 1)
                assert client.xlen(topic) == 0

    asyncio.run(run())


def test_a_server_that_forgot_the_group_delivers_all_that_it_has(redis: RedisServer) -> None:
    async def run() -> None:
        topic, group = new_topic(redis), name("group")
        async with (
            running(redis) as broker,
            consuming(broker, topic, group=group, start=Start.LATEST) as consumer,
        ):
            await consumer.until(consumer.assigned)
            with redis.client() as client:
                client.delete(topic)
                client.xadd(topic, {"value": "of the new one"})
            # A group that is known must not begin at the end again: nobody has seen this, or everybody has.
            assert await consumer.take(1) == [b"of the new one"]
            await publish(broker, topic, b"later")
            await consumer.take(2)
            assert [chunk.possibly_processed for chunk in consumer.chunks] == [True, False]

    asyncio.run(run())


def test_one_read_holds_no_more_than_its_size_whatever_messages_grow_to(redis: RedisServer) -> None:
    async def run() -> None:
        topic, group = new_topic(redis), name("group")
        async with running(redis) as broker, receiving(broker, topic, group) as receiver:
            await publish(broker, topic, *[bytes(100)] * 20, *[bytes(5 << 20)] * 6)
            found = await receiver.receive(500, 1 << 20, 1.0)
            assert [len(one.value or b"") for one in found] == [100] * 20 + [5 << 20]
        # What is taken over is no less.
        async with running(redis) as broker, receiving(broker, topic, group) as receiver:
            sizes = []
            while len(sizes) < 26:
                found = await receiver.receive(500, 1 << 20, 1.0)
                assert sum(len(one.value or b"") > 100 for one in found) <= 1
                sizes += [len(one.value or b"") for one in found]

    asyncio.run(run())


def test_a_stream_that_expires_and_a_server_that_evicts_are_troubles(new_redis: object) -> None:
    server: RedisServer = new_redis(settings={"maxmemory-policy": "allkeys-lru", "appendonly": "no"})  # type: ignore[operator]

    async def run() -> None:
        topic = new_topic(server)
        with server.client() as client:
            client.expire(topic, 3600)
        async with running(server) as broker, receiving(broker, topic, "group") as receiver:
            assert "allkeys-lru" in receiver.troubles["eviction"]
            assert f"PERSIST {topic}" in receiver.troubles["expiry"]
            assert broker.facts["durability"].startswith("no append-only file")

    asyncio.run(run())

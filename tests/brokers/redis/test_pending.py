"""What is pending: for this consumer, for others, and for nobody."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sidecar.brokers.base import Broker
from sidecar.brokers.redis.receiver import RedisReceiver
from sidecar.model.errors import Unavailable
from sidecar.model.records import Commit, Lane, Start
from sidecar.settings import Seconds
from tests.brokers.harness import consuming, name, new_topic, numbered, publish
from tests.brokers.redis.harness import running
from tests.e2e.harness import eventually
from tests.servers.redis import RedisServer

#: the server's clock counts how long something is idle, so these tests take as long
SOON = Seconds(1.0)


def pending(server: RedisServer, topic: str, group: str) -> dict[str, int]:
    """How much each consumer has."""
    with server.client() as client:
        told = client.xinfo_consumers(topic, group)
    return {one["name"].decode(): one["pending"] for one in told}


@asynccontextmanager
async def receiving(broker: Any, topic: str, group: str) -> AsyncIterator[RedisReceiver]:
    receiver = await broker.driver.receiver(Lane(topic, 0), group, Start.EARLIEST)
    try:
        yield receiver
    finally:
        await receiver.stop()
        await receiver.close()


async def leave_pending(broker: Broker, topic: str, group: str, values: list[bytes]) -> None:
    """As a sidecar that was killed: it has them, and nothing is given back."""
    await publish(broker, topic, *values)
    receiver = await broker.driver.receiver(Lane(topic, 0), group, Start.EARLIEST)  # type: ignore[attr-defined]
    got = 0
    while got < len(values):
        got += len(await receiver.receive(500, 1 << 20, 1.0))


def test_a_sidecar_that_comes_back_under_its_name_has_at_once_what_it_had(redis: RedisServer) -> None:
    async def run() -> None:
        topic, group = new_topic(redis), name("group")
        async with running(redis, consumer="pod-0") as broker:
            await leave_pending(broker, topic, group, numbered(1200))
        async with running(redis, consumer="pod-0") as broker, consuming(broker, topic, group=group) as consumer:
            await publish(broker, topic, b"new")
            await consumer.take(1201)
            assert consumer.values == [*numbered(1200), b"new"]
            flags = {value: chunk.possibly_processed for chunk in consumer.chunks for value in chunk.frames}
            assert [*flags.values()] == [True] * 1200 + [False]

    asyncio.run(run())


def test_what_a_dead_sidecar_had_goes_to_another_once_it_was_silent_for_long_enough(redis: RedisServer) -> None:
    async def run() -> None:
        topic, group = new_topic(redis), name("group")
        async with running(redis) as dead, running(redis, claim_idle=SOON) as other:
            await leave_pending(dead, topic, group, numbered(10))
            began = asyncio.get_running_loop().time()
            async with consuming(other, topic, group=group) as consumer:
                assert await consumer.take(10) == numbered(10)
                assert asyncio.get_running_loop().time() - began > 0.5
                assert all(chunk.possibly_processed for chunk in consumer.chunks)
                await consumer.commit(Lane(topic, 0), Commit(consumer.positions[-1] + 1))
            assert sum(pending(redis, topic, group).values()) == 0

    asyncio.run(run())


def test_what_a_sidecar_works_on_for_long_is_not_taken_from_it(redis: RedisServer) -> None:
    async def run() -> None:
        topic, group = new_topic(redis), name("group")
        async with running(redis, claim_idle=SOON) as slow, running(redis, claim_idle=SOON) as other:
            await publish(slow, topic, *numbered(10))
            async with consuming(slow, topic, group=group) as first:
                await first.take(10)
                async with consuming(other, topic, group=group) as second:
                    ends = asyncio.get_running_loop().time() + 3 * SOON
                    while asyncio.get_running_loop().time() < ends:
                        await first.poll(timeout=0.1)
                        await second.poll(timeout=0.1)
                    # The machine may be so busy that a renewal came too late; then both have it.
                    assert set(first.values) == set(numbered(10))
                    assert not second.values or len(first.values) == 10
                    await first.commit(Lane(topic, 0), Commit(first.positions[-1] + 1))
            assert sum(pending(redis, topic, group).values()) == 0

    asyncio.run(run())


def test_several_that_take_over_at_once_get_each_entry_once(redis: RedisServer) -> None:
    async def run() -> None:
        topic, group = new_topic(redis), name("group")
        async with running(redis) as dead:
            await leave_pending(dead, topic, group, numbered(2000))
            with redis.client() as client:
                # As if it were silent for long.
                ids = [id_ for id_, _ in client.xrange(topic)]
                for at in range(0, 2000, 500):
                    client.xclaim(topic, group, "dead", 0, ids[at : at + 500], idle=120_000, justid=True)
            others = [running(redis) for _ in range(4)]
            brokers = [await one.__aenter__() for one in others]
            receivers = [await one.driver.receiver(Lane(topic, 0), group, Start.EARLIEST) for one in brokers]
            got: list[list[bytes]] = [[] for _ in receivers]

            async def take(number: int) -> None:
                while found := await receivers[number].receive(50, 1 << 20, 0.01):
                    got[number] += [one.handle for one in found]
                    assert all(one.possibly_processed and one.delivered_before == 1 for one in found)

            await asyncio.gather(*map(take, range(4)))
            everything = [id_ for some in got for id_ in some]
            assert sorted(everything) == sorted(ids)
            for one in others:
                await one.__aexit__(None, None, None)

    asyncio.run(run())


def test_what_is_given_back_is_taken_up_by_another_without_waiting(redis: RedisServer) -> None:
    async def run() -> None:
        topic, group = new_topic(redis), name("group")
        async with running(redis) as leaving, running(redis) as staying:
            await publish(leaving, topic, *numbered(10))
            async with consuming(leaving, topic, group=group) as first:
                await first.take(10)
            async with consuming(staying, topic, group=group) as second:
                async with asyncio.timeout(30.0):
                    assert await second.take(10) == numbered(10)

    asyncio.run(run())


def test_a_consumer_that_holds_nothing_is_deleted_and_one_that_does_is_not(redis: RedisServer) -> None:
    async def run() -> None:
        topic, group = new_topic(redis), name("group")
        async with running(redis, consumer="done") as broker:
            await publish(broker, topic, *numbered(4))
            async with receiving(broker, topic, group) as receiver:
                handles = [one.handle for one in await receiver.receive(2, 1 << 20, 1.0)]
                await receiver.ack(handles, 2)
        assert pending(redis, topic, group) == {}
        async with running(redis, consumer="not-done") as broker, receiving(broker, topic, group) as receiver:
            await receiver.receive(1, 1 << 20, 1.0)
        assert pending(redis, topic, group) == {"not-done": 1}

    asyncio.run(run())


def test_a_handle_that_another_took_over_is_not_renewed(redis: RedisServer) -> None:
    async def run() -> None:
        topic, group = new_topic(redis), name("group")
        async with running(redis) as broker, receiving(broker, topic, group) as receiver:
            await publish(broker, topic, *numbered(2))
            first, second = [one.handle for one in await receiver.receive(2, 1 << 20, 1.0)]
            with redis.client() as client:
                client.xclaim(topic, group, "other", 0, [first], justid=True)
            assert await receiver.renew([first, second]) == [None, second]
            assert pending(redis, topic, group)["other"] == 1

    asyncio.run(run())


def test_a_receiver_that_waits_ends_at_once_when_it_is_stopped(own_redis: RedisServer) -> None:
    async def run() -> None:
        topic, group = new_topic(own_redis), name("group")
        async with running(own_redis, consumer="waits") as broker, receiving(broker, topic, group) as receiver:
            waiting = asyncio.create_task(receiver.receive(2, 1 << 20, 3600.0))
            with own_redis.client() as client:
                await asyncio.to_thread(eventually, lambda: client.info("clients")["blocked_clients"])
            await receiver.stop()
            async with asyncio.timeout(30.0):
                assert await waiting == []
            await publish(broker, topic, b"for others")
        # What came in the last moment would be pending for a name that nobody has: it has been given back by then.
        async with running(own_redis) as broker, consuming(broker, topic, group=group) as consumer:
            assert await consumer.take(1) == [b"for others"]

    asyncio.run(run())


def test_what_another_has_taken_over_before_the_answer_was_read_is_not_delivered(redis: RedisServer) -> None:
    async def run() -> None:
        topic, group = new_topic(redis), name("group")
        async with (
            running(redis, consumer="late", claim_idle=SOON) as broker,
            receiving(broker, topic, group) as receiver,
        ):
            clock = asyncio.get_running_loop().time
            began = clock()
            waiting = asyncio.create_task(receiver.receive(10, 1 << 20, 3600.0))
            await asyncio.to_thread(eventually, lambda: clock() - began > 2 * SOON)
            # The sidecar does nothing meanwhile: its event loop stands still.
            with redis.client() as client:
                client.xadd(topic, {"value": "taken over"})
                eventually(lambda: client.xpending(topic, group)["pending"], "the server has given it to the sidecar")
                (id_,) = client.xclaim(topic, group, "other", 0, [client.xrange(topic)[0][0]], justid=True)
                client.xack(topic, group, id_)
            assert await waiting == []

    asyncio.run(run())


def test_what_an_answer_brought_that_was_lost_on_its_way_is_delivered_flagged(own_redis: RedisServer) -> None:
    async def run() -> None:
        topic, group = new_topic(own_redis), name("group")
        async with (
            running(own_redis, consumer="pod-0", claim_idle=Seconds(3600)) as broker,
            receiving(broker, topic, group) as receiver,
        ):
            await publish(broker, topic, b"had")
            assert [one.value for one in await receiver.receive(10, 1 << 20, 1.0)] == [b"had"]
            assert not await receiver.receive(10, 1 << 20, 0.01)
            waiting = asyncio.create_task(receiver.receive(10, 1 << 20, 3600.0))
            with own_redis.client() as client:
                await asyncio.to_thread(eventually, lambda: client.info("clients")["blocked_clients"])
                client.client_kill_filter(_type="normal", skipme=True)
                with pytest.raises(Unavailable):
                    await waiting
                # The server does what a read asked for whose connection is gone.
                client.xadd(topic, {"value": "lost"})
                client.xreadgroup(group, "pod-0", {topic: ">"})
            found = await receiver.receive(10, 1 << 20, 1.0)
            # What is in hand does not come twice.
            assert [(one.value, one.possibly_processed) for one in found] == [(b"lost", True)]

    asyncio.run(run())

"""Records: which arrive, in which order, how many at a time; fairness between lanes."""

import asyncio

from sidecar.model.records import Header, Message
from tests.brokers.harness import WAIT_TIMEOUT, Sandbox, numbered, scenario


class Polling:
    @scenario
    async def test_records_arrive_exactly_as_they_were_published(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        messages = [
            Message(b"key", b"value", (Header("name", b"value"),), timestamp_ms=1_700_000_000_123),
            Message(None, None),
            Message(b"", b""),
            Message(b"null value", None),
            Message(None, b"null key"),
            Message(bytes(range(256)), bytes(range(255, -1, -1)) * 10),
            Message(b"k", b"v", (Header("twice", b"1"), Header("twice", b"2"), Header("empty", b""))),
            Message(b"k", b"v", (Header("ümläut ✓", bytes(range(256))),)),
        ]
        await sandbox.broker.publish(topic, messages)
        consumer = await sandbox.consume(topic)
        await consumer.take(len(messages))
        assert [(r.key, r.value, r.headers) for r in consumer.records] == [
            (m.key, m.value, m.headers) for m in messages
        ]
        assert consumer.records[0].timestamp_ms == 1_700_000_000_123
        assert all(record.timestamp_ms > 1_700_000_000_123 for record in consumer.records[1:])

    @scenario
    async def test_the_positions_of_a_chunk_are_those_of_its_records(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=2)
        await sandbox.publish(topic, *numbered(10), lane=0)
        await sandbox.publish(topic, *numbered(10), lane=1)
        consumer = await sandbox.consume(topic)
        await consumer.take(20)
        for chunk in consumer.chunks:
            assert len(chunk.positions) == len(chunk.frames)
        told = [(chunk.lane.number, at) for chunk in consumer.chunks for at in chunk.positions]
        assert told == [(record.lane, record.position) for record in consumer.records]

    @scenario
    async def test_a_lane_keeps_its_order(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=3)
        for lane in range(3):
            for at in range(0, 300, 50):
                await sandbox.publish(topic, *numbered(300, f"{lane}-")[at : at + 50], lane=lane)
        consumer = await sandbox.consume(topic)
        await consumer.take(900, max_records=70)
        for lane in range(3):
            records = [record for record in consumer.records if record.lane == lane]
            assert [record.value for record in records] == numbered(300, f"{lane}-")
            assert [r.position for r in records] == sorted({r.position for r in records})

    @scenario
    async def test_a_poll_returns_at_most_max_records(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=3)
        for lane in range(3):
            await sandbox.publish(topic, *numbered(50), lane=lane)
        consumer = await sandbox.consume(topic)
        await consumer.take(150, max_records=7)
        assert all(sum(len(chunk.frames) for chunk in polled.chunks) <= 7 for polled in consumer.polls)

    @scenario
    async def test_a_poll_returns_at_most_max_bytes(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=2)
        for lane in range(2):
            await sandbox.publish(topic, *[bytes(1000)] * 30, lane=lane)
        consumer = await sandbox.consume(topic)
        await consumer.take(60, max_bytes=5000)
        assert all(sum(chunk.ends[-1] for chunk in polled.chunks) <= 5000 for polled in consumer.polls)

    @scenario
    async def test_a_record_larger_than_the_limit_comes_alone(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        await sandbox.publish(topic, b"before", bytes(50_000), b"after")
        consumer = await sandbox.consume(topic)
        await consumer.take(3, max_bytes=1000)
        (polled,) = (polled for polled in consumer.polls if any(chunk.ends[-1] > 1000 for chunk in polled.chunks))
        assert sum(len(chunk.frames) for chunk in polled.chunks) == 1
        assert [len(value or b"") for value in consumer.values] == [6, 50_000, 5]

    @scenario
    async def test_a_large_record_arrives_whole(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        value = bytes(range(256)) * 2048
        await sandbox.publish(topic, value, b"small")
        consumer = await sandbox.consume(topic)
        assert await consumer.take(2) == [value, b"small"]

    @scenario
    async def test_a_poll_without_anything_ends_with_its_timeout(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        consumer = await sandbox.consume(topic)
        await consumer.until(consumer.assigned)
        began = asyncio.get_running_loop().time()
        polled = await consumer.poll(timeout=0.2)
        assert not polled.chunks
        assert asyncio.get_running_loop().time() - began < 45.0

    @scenario
    async def test_a_waiting_poll_returns_when_something_is_published(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        consumer = await sandbox.consume(topic)
        await consumer.until(consumer.assigned)
        waiting = asyncio.create_task(consumer.take(1, timeout=2 * WAIT_TIMEOUT))
        await asyncio.sleep(0)
        await sandbox.publish(topic, b"value")
        async with asyncio.timeout(WAIT_TIMEOUT):
            assert await waiting == [b"value"]

    @scenario
    async def test_a_cancelled_poll_loses_no_record(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=2)
        wanted = numbered(2000)
        consumer = await sandbox.consume(topic)

        async def publish() -> None:
            for at in range(0, 2000, 40):
                await sandbox.publish(topic, *wanted[at : at + 40], lane=at // 40 % 2)

        async def consume() -> None:
            while len(consumer.values) < 2000:
                poll = asyncio.create_task(consumer.poll(max_records=30, timeout=5.0))
                # Cancelled at every point of a poll: as it starts, as it reads, as it is about to return.
                for _ in range(len(consumer.polls) % 7):
                    await asyncio.sleep(0)
                if len(consumer.polls) % 3 == 0:
                    await asyncio.sleep(0.001)
                poll.cancel()
                await asyncio.wait([poll])
                await consumer.poll(max_records=30, timeout=0.05)

        publishing = asyncio.create_task(publish())
        async with asyncio.timeout(60.0):
            await consume()
        await publishing
        assert sorted(consumer.values, key=lambda value: int(value or b"")) == wanted
        for lane in range(2):
            positions = [record.position for record in consumer.records if record.lane == lane]
            assert positions == sorted(positions)


class Fairness:
    @scenario
    async def test_a_backlog_in_one_lane_does_not_starve_the_others(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=4)
        await sandbox.publish(topic, *[bytes(100)] * 40_000, lane=0)
        for lane in (1, 2, 3):
            await sandbox.publish(topic, b"few", lane=lane)
        consumer = await sandbox.consume(topic)
        # The time until lanes are assigned does not count.
        await consumer.until(lambda: len(consumer.assigned()) == 4, max_records=1)
        await consumer.until(lambda: {chunk.lane.number for chunk in consumer.chunks} == {0, 1, 2, 3}, max_records=500)
        assert sum(len(chunk.frames) for chunk in consumer.chunks) < 30_000

    @scenario
    async def test_a_lane_of_large_records_is_not_starved_by_lanes_of_small_ones(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=3)
        await sandbox.publish(topic, *[bytes(90_000)] * 4, lane=0)
        for lane in (1, 2):
            await sandbox.publish(topic, *[bytes(100)] * 20_000, lane=lane)
        consumer = await sandbox.consume(topic)
        await consumer.until(
            lambda: sum(chunk.lane.number == 0 for chunk in consumer.chunks) >= 4, max_bytes=100_000, max_records=2000
        )
        assert sum(len(chunk.frames) for chunk in consumer.chunks) < 30_000

    @scenario
    async def test_among_many_lanes_each_gets_its_turn_with_a_large_record(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=14)
        await sandbox.publish(topic, *[bytes(90_000)] * 2, lane=1)
        for lane in (0, *range(2, 14)):
            await sandbox.publish(topic, *[bytes(100)] * 3_000, lane=lane)
        consumer = await sandbox.consume(topic)
        await consumer.until(lambda: len(consumer.assigned()) == 14, max_records=1)
        await consumer.until(
            lambda: sum(chunk.lane.number == 1 for chunk in consumer.chunks) >= 2, max_bytes=100_000, max_records=2000
        )
        assert sum(len(chunk.frames) for chunk in consumer.chunks) < 30_000

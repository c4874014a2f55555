"""Pausing and resuming lanes."""

import asyncio

from sidecar.model.records import Lane
from tests.brokers.harness import WAIT_TIMEOUT, Sandbox, numbered, scenario


class Pausing:
    @scenario
    async def test_a_paused_lane_is_silent_while_others_deliver(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=2)
        consumer = await sandbox.consume(topic)
        await consumer.until(lambda: len(consumer.assigned()) == 2)
        await consumer.source.pause([Lane(topic, 0)])
        await consumer.stays_silent(timeout=0.05)
        await sandbox.publish(topic, *numbered(10), lane=0)
        await sandbox.publish(topic, *numbered(10, "other-"), lane=1)
        assert await consumer.take(10) == numbered(10, "other-")
        await consumer.stays_silent()

    @scenario
    async def test_a_resumed_lane_continues_exactly_where_it_stopped(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        await sandbox.publish(topic, *numbered(500))
        consumer = await sandbox.consume(topic)
        for round_ in range(1, 6):
            await consumer.take(round_ * 50, max_records=20)
            await consumer.source.pause([Lane(topic, 0)])
            await consumer.poll(max_records=20, timeout=0.02)
            await consumer.source.resume([Lane(topic, 0)])
        assert await consumer.take(500) == numbered(500)

    @scenario
    async def test_a_lane_that_is_resumed_while_a_poll_waits_delivers_at_once(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        consumer = await sandbox.consume(topic)
        await consumer.until(consumer.assigned)
        await consumer.source.pause([Lane(topic, 0)])
        await sandbox.publish(topic, b"value")
        await consumer.stays_silent(timeout=0.05)
        waiting = asyncio.create_task(consumer.take(1, timeout=2 * WAIT_TIMEOUT))
        await asyncio.sleep(0)
        await consumer.source.resume([Lane(topic, 0)])
        async with asyncio.timeout(WAIT_TIMEOUT):
            assert await waiting == [b"value"]

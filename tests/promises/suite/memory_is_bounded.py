"""Promise 7: memory is bounded."""

import asyncio
import gc
import weakref

from sidecar.brokers.base import SeekTo
from sidecar.model.records import Lane
from sidecar.settings import Bytes, MemorySettings
from sidecar.subscription.subscription import Subscription
from tests.promises.adjustable_time import advance, until
from tests.promises.environment import Environment, needs, numbered, promise
from tests.promises.worker import Batch


class MemoryIsBounded:
    @promise
    async def test_a_stopped_app_bounds_the_records_in_memory(self, env: Environment) -> None:
        topic = await env.topic(lanes=4)
        for lane in range(4):
            await env.publish(topic, *numbered(500), lane=lane)
        subscription = await env.subscribe(topic, memory=MemorySettings(records=200, poll_records=20))
        source = env.source(subscription)
        await until(lambda: len(_paused(env, subscription, topic)) == 4, "every lane is paused")
        await env.round_trip(subscription)
        fetched = sum(count for lane, count in source.polled.items() if lane.topic == topic)
        assert 100 <= fetched <= 200
        assert subscription.status().buffered_records == fetched
        assert {lane.held_by.split(":")[0] for lane in subscription.status().lanes if lane.topic == topic} == {"memory"}

    @promise
    async def test_a_stopped_app_bounds_the_bytes_in_memory(self, env: Environment) -> None:
        topic = await env.topic(lanes=2)
        for lane in range(2):
            await env.publish(topic, *[bytes(10_000)] * 100, lane=lane)
        memory = MemorySettings(bytes=Bytes(500_000), poll_bytes=Bytes(50_000))
        subscription = await env.subscribe(topic, memory=memory)
        await until(lambda: len(_paused(env, subscription, topic)) == 2, "every lane is paused")
        await env.round_trip(subscription)
        assert 250_000 <= subscription.status().buffered_bytes <= 500_000

    @promise
    async def test_a_paused_lane_is_resumed_at_80_percent(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(
            *numbered(1000), memory=MemorySettings(records=200, poll_records=10)
        )
        await until(lambda: _paused(env, subscription, topic))
        # Half of the memory is divided among the lanes (those of the retry topic too), and the other half is common.
        common = 100
        worker = env.worker(subscription)
        while _paused(env, subscription, topic):
            (await worker.next()).ack()
            held = subscription.status().buffered_records
            own = common / len(subscription.tracker.lanes)
            await _regulated(subscription)
        assert 0.7 * common <= held - own <= 0.85 * common
        worker.handler = Batch.ack
        (await worker.next()).ack()
        await env.wait_committed(topic, positions[-1] + 1)

    @promise
    async def test_a_slow_lane_cannot_take_what_belongs_to_the_others(self, env: Environment) -> None:
        topic = await env.topic(lanes=4)
        await env.publish(topic, *[b"slow"] * 1000)
        subscription = await env.subscribe(topic, memory=MemorySettings(records=160, poll_records=20))
        env.worker(subscription, lambda b: None if b.values == [b"slow"] else b.ack(), credit=1000)
        await until(lambda: _paused(env, subscription, topic), "the slow lane has all that it may have")
        for lane in (1, 2, 3):
            (*_, end) = await env.publish(topic, *numbered(300), lane=lane)
            await env.wait_committed(topic, end + 1, lane)
        assert subscription.status().buffered_records <= 160
        assert env.source(subscription).polled[Lane(topic, 0)] < 160

    @promise
    async def test_a_record_larger_than_its_share_gets_through(self, env: Environment) -> None:
        topic = await env.topic(lanes=2)
        positions = await env.publish(topic, b"small", bytes(100_000), b"small")
        memory = MemorySettings(bytes=Bytes(64_000), poll_bytes=Bytes(8_000))
        subscription = await env.subscribe(topic, memory=memory)
        env.worker(subscription, Batch.ack)
        await env.wait_committed(topic, positions[2] + 1)

    @promise
    async def test_what_is_settled_is_freed(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(*numbered(100))
        worker = env.worker(subscription, credit=100)
        for batch in (await worker.take(100))[1:]:
            batch.ack()
        await until(lambda: subscription.status().buffered_records == 1)
        worker.batches[0].ack()
        await env.wait_committed(topic, positions[99] + 1)
        assert (subscription.status().buffered_records, subscription.status().buffered_bytes) == (0, 0)

    @promise
    @needs("seeks")
    async def test_a_lane_that_is_gone_is_kept_by_no_lease_that_ended(self, env: Environment) -> None:
        topic, _, subscription = await env.backlog(*numbered(10))
        dying, slow = env.worker(subscription), env.worker(subscription, lease=10.0)
        await dying.next()
        await slow.next()
        lane = weakref.ref(subscription.tracker.lanes[Lane(topic, 0)])
        await subscription.seek({Lane(topic, 0): SeekTo.END})
        dying.die()
        await advance(10.0)
        await until(lambda: subscription.counters.expired or not subscription.tracker.leases.held())
        await env.round_trip(subscription)
        gc.collect()
        assert lane() is None

    @promise
    async def test_the_broker_is_polled_also_when_every_lane_is_paused(self, env: Environment) -> None:
        """Polls keep a group membership alive."""
        topic, _, subscription = await env.backlog(*numbered(500), memory=MemorySettings(records=50, poll_records=10))
        await until(lambda: _paused(env, subscription, topic))
        source = env.source(subscription)
        for _ in range(3):
            polls = source.calls.count("poll")
            await advance(1.0)
            await until(lambda: source.calls.count("poll") > polls)  # noqa: B023 - waited for here


async def _regulated(subscription: Subscription) -> None:
    """Wait until the flow control has seen what changed, and has no call to the broker under way."""
    for _ in range(5):
        await asyncio.sleep(0)
    async with subscription.fetcher._flow_control_lock:
        pass


def _paused(env: Environment, subscription: Subscription, topic: str) -> set[Lane]:
    return {lane for lane in env.source(subscription).paused if lane.topic == topic}

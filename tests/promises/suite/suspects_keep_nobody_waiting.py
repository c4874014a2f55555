"""Promises 2 and 5: records that workers died with are isolated, and keep nobody else waiting."""

import asyncio

from sidecar.model.errors import TooLarge
from sidecar.settings import Oversized, ParkingSettings, Seconds
from sidecar.subscription.subscription import Subscription
from tests.promises.adjustable_time import advance, fast_forward, now, until
from tests.promises.environment import Environment, batches_of, numbered, promise, retry, values
from tests.promises.worker import Batch, Worker


class SuspectsKeepNobodyWaiting:
    @promise
    async def test_a_suspected_record_waits_for_no_worker_that_is_slow(self, env: Environment) -> None:
        topic, _, subscription = await env.backlog(b"suspect", retry=retry(first=20.0))
        await env.worker_dies(subscription, times=2)
        await env.publish(topic, b"slow", *numbered(5))
        worker = env.worker(subscription, lambda b: None if b.values == [b"slow"] else b.ack(), credit=3)
        assert (await worker.next()).values == [b"slow"]
        # It is alone in its batch, though its worker holds another.
        async with fast_forward():
            await until(lambda: [b"suspect"] in [batch.values for batch in worker.batches])
            await until(lambda: len(worker.batches) == 7)

    @promise
    async def test_many_suspected_records_and_a_slow_worker_keep_others_waiting_once(self, env: Environment) -> None:
        topic = await env.topic()
        subscription = await env.subscribe(topic, batch=batches_of(1))
        await _many_suspects(env, subscription, topic)
        await env.publish(topic, b"slow")
        slow = [b"slow"]
        worker = env.worker(subscription, lambda b: None if b.values == slow else b.ack(), credit=3)
        await until(lambda: slow in [batch.values for batch in worker.batches])
        await env.publish(topic, *numbered(20))
        await until(lambda: subscription.counters.fetched == 31, "they are here")
        began = now()
        async with fast_forward():
            await until(lambda: len(worker.batches) == 31)
        assert now() - began < 20.0
        assert _last(worker, b"suspect") > _first(worker, b"0")

    @promise
    async def test_many_suspected_records_and_others_take_turns(self, env: Environment) -> None:
        topic = await env.topic()
        subscription = await env.subscribe(topic, batch=batches_of(1))
        await _many_suspects(env, subscription, topic)
        await env.publish(topic, *numbered(20))
        await until(lambda: subscription.counters.fetched == 30, "they are here")

        def handler(batch: Batch) -> None:
            asyncio.get_running_loop().call_later(1.0, batch.ack)

        worker = env.worker(subscription, handler, credit=3)
        async with fast_forward(0.1):
            await until(lambda: len(worker.batches) == 30)
        assert _first(worker, b"0") < 4
        # Each kind gets half of the time, and others go three at a time.
        assert _first(worker, b"19") < _last(worker, b"suspect")

    @promise
    async def test_a_suspected_record_that_a_worker_cannot_take_keeps_no_other_from_it(self, env: Environment) -> None:
        topic = await env.topic()
        subscription = await env.subscribe(topic, oversized=Oversized.HOLD)
        await env.publish(topic, b"x" * 50_000)
        for _ in range(2):
            await env.worker_dies(subscription)
            await advance(60.0)
        small = env.worker(subscription, Batch.ack, credit=2, max_message_bytes=8192)
        await env.publish(topic, *numbered(5))
        await until(lambda: subscription.counters.fetched == 6, "they are here")
        began = now()
        async with fast_forward():
            await until(lambda: sorted(values(small.batches)) == numbered(5))
        assert now() - began < 5.0
        large = env.worker(subscription, Batch.ack)
        assert (await large.next()).values == [b"x" * 50_000]

    @promise
    async def test_two_that_kill_their_workers_and_are_too_large_to_park_are_both_found(self, env: Environment) -> None:
        topic, subscription = await env.consuming(
            batch=batches_of(2), parking=ParkingSettings(after=Seconds(0.0)), retry=retry(first=20.0)
        )
        env.broker.publish_faults[subscription.settings.retry_topic] = TooLarge("more than the topic takes")
        deaths = 0

        def handler(batch: Batch) -> None:
            nonlocal deaths
            if b"killer" not in batch.values:
                batch.ack()
                return
            deaths += 1
            workers[-1].die()
            workers.append(env.worker(subscription, handler))

        await env.publish(topic, b"killer", b"killer")
        workers = [env.worker(subscription, handler)]
        await until(lambda: deaths >= 2, "both were there twice")
        acked = subscription.counters.acked
        await env.publish(topic, b"other", b"other")
        await until(lambda: subscription.counters.acked > acked, "others succeed")
        async with fast_forward():
            await until(lambda: subscription.counters.dead_lettered == 2)
        assert deaths == 4


async def _many_suspects(env: Environment, subscription: Subscription, topic: str) -> None:
    """Ten records that two workers died with."""
    await env.publish(topic, *[b"suspect"] * 10)
    async with fast_forward():
        await env.worker_dies(subscription, times=2, credit=10)


def _first(worker: Worker, value: bytes) -> int:
    """The index of the first batch with this value."""
    return values(worker.batches).index(value)


def _last(worker: Worker, value: bytes) -> int:
    return len(worker.batches) - 1 - values(worker.batches)[::-1].index(value)

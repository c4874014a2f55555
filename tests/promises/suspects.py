"""Promises 2 and 5: records that workers died with are alone with the next, and keep nobody else waiting."""

import asyncio

from sidecar.settings import Oversized
from sidecar.subscription.subscription import Subscription
from tests.promises.stage import Stage, batches_of, numbered, promise, retry, values
from tests.promises.timing import hurry, leap, now, until
from tests.promises.worker import Batch, Worker


class SuspectsKeepNobodyWaiting:
    @promise
    async def test_a_suspected_record_waits_for_no_worker_that_is_slow(self, stage: Stage) -> None:
        topic = await stage.topic()
        await stage.publish(topic, b"suspect")
        subscription = await stage.subscribe(topic, retry=retry(first=20.0))
        for _ in range(2):
            dying = stage.worker(subscription)
            await dying.next()
            dying.die()
        await stage.publish(topic, b"slow", *numbered(5))
        worker = stage.worker(subscription, lambda b: None if b.values == [b"slow"] else b.ack(), credit=3)
        assert (await worker.next()).values == [b"slow"]
        # It is alone in its batch, though not with its worker.
        async with hurry():
            await until(lambda: [b"suspect"] in [batch.values for batch in worker.batches])
            await until(lambda: len(worker.batches) == 7)

    @promise
    async def test_many_suspected_records_and_a_slow_worker_keep_others_waiting_once(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic, batch=batches_of(1))
        await _many_suspects(stage, subscription, topic)
        await stage.publish(topic, b"slow")
        slow = [b"slow"]
        worker = stage.worker(subscription, lambda b: None if b.values == slow else b.ack(), credit=3)
        await until(lambda: slow in [batch.values for batch in worker.batches])
        await stage.publish(topic, *numbered(20))
        await until(lambda: subscription.counters.fetched == 31, "they are here")
        began = now()
        async with hurry():
            await until(lambda: len(worker.batches) == 31)
        assert now() - began < 20.0
        assert _last(worker, b"suspect") > _first(worker, b"0")

    @promise
    async def test_many_suspected_records_and_others_take_turns(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic, batch=batches_of(1))
        await _many_suspects(stage, subscription, topic)
        await stage.publish(topic, *numbered(20))
        await until(lambda: subscription.counters.fetched == 30, "they are here")

        def handler(batch: Batch) -> None:
            asyncio.get_running_loop().call_later(1.0, batch.ack)

        worker = stage.worker(subscription, handler, credit=3)
        async with hurry(0.1):
            await until(lambda: len(worker.batches) == 30)
        assert _first(worker, b"0") < 4
        # They share its time by halves, and others go three at a time.
        assert _first(worker, b"19") < _last(worker, b"suspect")

    @promise
    async def test_a_suspected_record_that_a_worker_cannot_take_keeps_no_other_from_it(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic, oversized=Oversized.HOLD)
        await stage.publish(topic, b"x" * 50_000)
        for _ in range(2):
            dying = stage.worker(subscription)
            await dying.next()
            dying.die()
            await leap(60.0)
        small = stage.worker(subscription, Batch.ack, credit=2, max_message_bytes=8192)
        await stage.publish(topic, *numbered(5))
        await until(lambda: subscription.counters.fetched == 6, "they are here")
        began = now()
        async with hurry():
            await until(lambda: sorted(values(small.batches)) == numbered(5))
        assert now() - began < 5.0
        large = stage.worker(subscription, Batch.ack)
        assert (await large.next()).values == [b"x" * 50_000]


async def _many_suspects(stage: Stage, subscription: Subscription, topic: str) -> None:
    """Ten records that two workers died with."""
    await stage.publish(topic, *[b"suspect"] * 10)
    for _ in range(2):
        dying = stage.worker(subscription, credit=10)
        async with hurry():
            await dying.take(10)
        dying.die()


def _first(worker: Worker, value: bytes) -> int:
    """Which of its batches was the first with this value."""
    return values(worker.batches).index(value)


def _last(worker: Worker, value: bytes) -> int:
    return len(worker.batches) - 1 - values(worker.batches)[::-1].index(value)

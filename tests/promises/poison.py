"""Promise 11: poison is isolated."""

import math
import random

from sidecar.model.records import Lane, Order, Outcome, Part
from tests.promises.stage import Stage, batches_of, numbered, promise, retry
from tests.promises.timing import hurry, until
from tests.promises.worker import Batch


class PoisonIsIsolated:
    @promise
    async def test_one_bad_record_is_found_within_the_promised_number_of_calls(self, stage: Stage) -> None:
        for number in (0, 1, 37, 63):
            await _is_isolated(stage, 64, {number})

    @promise
    async def test_some_bad_records_are_found_within_the_promised_number_of_calls(self, stage: Stage) -> None:
        chance = random.Random(11)
        for bad in (2, 3, 5, 8):
            await _is_isolated(stage, 64, set(chance.sample(range(64), bad)))

    @promise
    async def test_neighbours_are_found_within_the_promised_number_of_calls(self, stage: Stage) -> None:
        await _is_isolated(stage, 50, {24, 25})
        await _is_isolated(stage, 7, {5, 6})

    @promise
    async def test_a_bad_record_is_found_among_keys(self, stage: Stage) -> None:
        await _is_isolated(stage, 32, {9}, order=Order.KEY, keys=[b"%d" % n for n in range(32)])

    @promise
    async def test_a_bad_record_is_found_within_its_key(self, stage: Stage) -> None:
        await _is_isolated(stage, 16, {5}, order=Order.KEY, keys=[b"key"] * 16)

    @promise
    async def test_a_bad_record_is_found_with_order_lane(self, stage: Stage) -> None:
        await _is_isolated(stage, 32, {9}, order=Order.LANE)

    @promise
    async def test_a_split_is_not_an_attempt(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic, batch=batches_of(8), retry=retry(attempts=3))
        await stage.turn_around(subscription)
        at = await stage.publish(topic, *numbered(8))
        await stage.has_all(subscription, topic, 8)
        worker = stage.worker(subscription, lambda b: b.nack() if b"5" in b.values else b.ack())
        async with hurry():
            await stage.commits(topic, at[7] + 1)
        with_bad = [batch for batch in worker.batches if b"5" in batch.values]
        assert [len(batch.records) for batch in with_bad] == [8, 4, 2, 1, 1, 1]
        assert [batch.attempt for batch in with_bad] == [1, 1, 1, 1, 2, 3]
        assert {doubt for batch in worker.batches for doubt in batch.doubts} == {stage.flags_all}

    @promise
    async def test_a_record_that_the_worker_names_need_not_be_looked_for(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic, batch=batches_of(8), retry=retry(attempts=2))
        await stage.turn_around(subscription)
        at = await stage.publish(topic, *numbered(8))
        await stage.has_all(subscription, topic, 8)

        def handler(batch: Batch) -> None:
            bad = [Part(index, 1, Outcome.NACK) for index, value in enumerate(batch.values) if value == b"5"]
            batch.settle(Outcome.ACK, bad)

        worker = stage.worker(subscription, handler)
        async with hurry():
            await stage.commits(topic, at[7] + 1)
        assert [len(batch.records) for batch in worker.batches] == [8, 1]
        assert stage.audit.dead == {(Lane(topic, 0), at[5])}

    @promise
    async def test_a_batch_that_always_expires_is_split_too(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic, batch=batches_of(8), retry=retry(attempts=1))
        await stage.turn_around(subscription)
        at = await stage.publish(topic, *numbered(8))
        await stage.has_all(subscription, topic, 8)
        worker = stage.worker(subscription, lambda b: None if b"5" in b.values else b.ack(), lease=10.0)
        async with hurry():
            await stage.commits(topic, at[7] + 1)
        assert stage.audit.dead == {(Lane(topic, 0), at[5])}
        assert all(all(batch.doubts) for batch in worker.batches[1:])


async def _is_isolated(
    stage: Stage, records: int, bad: set[int], *, order: Order = Order.NONE, keys: list[bytes | None] | None = None
) -> None:
    """k bad of n cost at most 2k log2(n) + 1 calls, and only they are dead-lettered."""
    topic = await stage.topic()
    subscription = await stage.subscribe(topic, order=order, batch=batches_of(records), retry=retry(attempts=2))
    await stage.turn_around(subscription)
    at = await stage.publish(topic, *numbered(records), keys=keys)
    await stage.has_all(subscription, topic, records)
    poison = {numbered(records)[number] for number in bad}
    worker = stage.worker(subscription, lambda b: b.nack("bad") if poison & {*b.values} else b.ack())
    async with hurry():
        await stage.commits(topic, at[-1] + 1)
        await until(lambda: not stage.audit.unsettled(topic))
    assert {spot for spot in stage.audit.dead if spot[0].topic == topic} == {(Lane(topic, 0), at[n]) for n in bad}
    # Further attempts of a record alone are no longer a search.
    calls = {tuple(batch.spots) for batch in worker.batches}
    assert len(calls) <= 2 * len(bad) * math.ceil(math.log2(records)) + 1
    await stage.end(subscription)

"""Promise 11: poison is isolated."""

import math
import random

from sidecar.model.records import Lane, Order, Outcome, Part
from sidecar.settings import OutageSettings
from sidecar.subscription import dead_letters
from tests.promises.adjustable_time import fast_forward, until
from tests.promises.environment import Environment, batches_of, numbered, promise, retry
from tests.promises.worker import Batch


class PoisonIsIsolated:
    @promise
    async def test_one_bad_record_is_found_within_the_promised_number_of_calls(self, env: Environment) -> None:
        for number in (0, 1, 37, 63):
            await _is_isolated(env, 64, {number})

    @promise
    async def test_some_bad_records_are_found_within_the_promised_number_of_calls(self, env: Environment) -> None:
        chance = random.Random(11)
        for bad in (2, 3, 5, 8):
            await _is_isolated(env, 64, set(chance.sample(range(64), bad)))

    @promise
    async def test_neighbours_are_found_within_the_promised_number_of_calls(self, env: Environment) -> None:
        await _is_isolated(env, 50, {24, 25})
        await _is_isolated(env, 7, {5, 6})

    @promise
    async def test_a_bad_record_is_found_among_keys(self, env: Environment) -> None:
        await _is_isolated(env, 32, {9}, order=Order.KEY, keys=[b"%d" % n for n in range(32)])

    @promise
    async def test_a_bad_record_is_found_within_its_key(self, env: Environment) -> None:
        await _is_isolated(env, 16, {5}, order=Order.KEY, keys=[b"key"] * 16)

    @promise
    async def test_a_bad_record_is_found_with_order_lane(self, env: Environment) -> None:
        await _is_isolated(env, 32, {9}, order=Order.LANE)

    @promise
    async def test_a_split_is_not_an_attempt(self, env: Environment) -> None:
        topic, subscription = await env.consuming(batch=batches_of(8), retry=retry(attempts=3))
        positions = await env.publish(topic, *numbered(8))
        await env.wait_fetched(subscription, topic, 8)
        worker = env.worker(subscription, lambda b: b.nack() if b"5" in b.values else b.ack())
        async with fast_forward():
            await env.wait_committed(topic, positions[7] + 1)
        with_bad = [batch for batch in worker.batches if b"5" in batch.values]
        assert [len(batch.records) for batch in with_bad] == [8, 4, 2, 1, 1, 1]
        assert [batch.attempt for batch in with_bad] == [1, 1, 1, 1, 2, 3]
        assert {doubt for batch in worker.batches for doubt in batch.possibly_processed_flags} == {
            env.flags_first_deliveries
        }

    @promise
    async def test_a_record_that_the_worker_names_need_not_be_looked_for(self, env: Environment) -> None:
        topic, subscription = await env.consuming(batch=batches_of(8), retry=retry(attempts=2))
        positions = await env.publish(topic, *numbered(8))
        await env.wait_fetched(subscription, topic, 8)

        def handler(batch: Batch) -> None:
            bad = [Part(index, 1, Outcome.NACK) for index, value in enumerate(batch.values) if value == b"5"]
            batch.settle(Outcome.ACK, bad)

        worker = env.worker(subscription, handler)
        async with fast_forward():
            await env.wait_committed(topic, positions[7] + 1)
        assert [len(batch.records) for batch in worker.batches] == [8, 1]
        assert env.audit.dead == {(Lane(topic, 0), positions[5])}

    @promise
    async def test_a_batch_that_always_expires_is_split_too(self, env: Environment) -> None:
        topic, subscription = await env.consuming(batch=batches_of(8), retry=retry(attempts=1))
        positions = await env.publish(topic, *numbered(8))
        await env.wait_fetched(subscription, topic, 8)
        worker = env.worker(subscription, lambda b: None if b"5" in b.values else b.ack(), lease=10.0)
        async with fast_forward():
            await env.wait_committed(topic, positions[7] + 1)
        assert env.audit.dead == {(Lane(topic, 0), positions[5])}
        assert all(all(batch.possibly_processed_flags) for batch in worker.batches[1:])

    @promise
    async def test_what_was_done_with_dead_letters_is_remembered_in_their_topic(self, env: Environment) -> None:
        topic, subscription = await env.consuming(batch=batches_of(1), outage=OutageSettings(reject_share=1.0))
        await env.publish(topic, *numbered(3))
        env.worker(subscription, lambda b: b.reject("bad"))
        counters, wall_ms = subscription.counters, subscription.clock.wall_ms()
        await until(lambda: counters.dead_lettered == 3)

        async def left() -> list[str]:
            return [letter.id for letter in await env.dead_letters(subscription)]

        async def redriven() -> list[str]:
            steps = dead_letters.redrive(env.broker, subscription.settings, wall_ms=wall_ms)
            return [id_ async for step in steps for id_ in step.ids]

        async def deleted(*ids: str) -> list[str]:
            which = dead_letters.Filter(frozenset(ids))
            steps = dead_letters.delete(env.broker, subscription.settings, which=which, wall_ms=wall_ms)
            return [id_ async for step in steps for id_ in step.ids]

        first, *others = await left()
        assert await deleted(first) == [first]
        assert await left() == others
        subscription.pause("so that none dies again yet")
        assert sorted(await redriven()) == sorted(others)
        assert await redriven() == [], "not twice"
        subscription.resume()
        await until(lambda: counters.dead_lettered == 5)
        assert sorted(await redriven()) == sorted(others), "they died again"
        await until(lambda: counters.dead_lettered == 7)
        assert sorted(await deleted()) == sorted(others)
        assert await left() == []


async def _is_isolated(
    env: Environment, records: int, bad: set[int], *, order: Order = Order.NONE, keys: list[bytes | None] | None = None
) -> None:
    """k bad records of n take at most 2k log2(n) + 1 calls, and only they are dead-lettered."""
    topic, subscription = await env.consuming(order=order, batch=batches_of(records), retry=retry(attempts=2))
    positions = await env.publish(topic, *numbered(records), keys=keys)
    await env.wait_fetched(subscription, topic, records)
    poison = {numbered(records)[number] for number in bad}
    worker = env.worker(subscription, lambda b: b.nack("bad") if poison & {*b.values} else b.ack())
    async with fast_forward():
        await env.wait_committed(topic, positions[-1] + 1)
        await until(lambda: not env.audit.unsettled(topic))
    assert {record_id for record_id in env.audit.dead if record_id[0].topic == topic} == {
        (Lane(topic, 0), positions[n]) for n in bad
    }
    # Further attempts of a record alone are not part of the search.
    calls = {tuple(batch.record_ids) for batch in worker.batches}
    assert len(calls) <= 2 * len(bad) * math.ceil(math.log2(records)) + 1
    await env.close_subscription(subscription)

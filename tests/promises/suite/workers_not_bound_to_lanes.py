"""Promise 6: workers are not bound to lanes."""

from sidecar.brokers.base import SeekTo
from sidecar.model.records import Credit, Lane
from sidecar.settings import BudgetSettings
from sidecar.subscription.subscription import Subscription
from tests.promises.adjustable_time import advance, until
from tests.promises.environment import Environment, batches_of, needs, numbered, promise, retry, values
from tests.promises.worker import Batch


class WorkersAreNotBoundToLanes:
    @promise
    async def test_one_lane_feeds_eight_workers_at_once(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(*numbered(80), batch=batches_of(10))
        workers = [env.worker(subscription) for _ in range(8)]
        batches = [await worker.next() for worker in workers]
        assert sorted(values(batches)) == sorted(numbered(80))
        assert subscription.status().leases == 8
        for batch in reversed(batches):
            batch.ack()
        await env.wait_committed(topic, positions[79] + 1)

    @promise
    async def test_one_worker_is_fed_by_all_lanes(self, env: Environment) -> None:
        topic = await env.topic(lanes=8)
        ends = [(await env.publish(topic, *numbered(10), lane=lane))[-1] + 1 for lane in range(8)]
        subscription = await env.subscribe(topic)
        env.worker(subscription, Batch.ack)
        for lane, end in enumerate(ends):
            await env.wait_committed(topic, end, lane)

    @promise
    async def test_who_waits_longest_is_served_next(self, env: Environment) -> None:
        topic = await env.topic()
        subscription = await env.subscribe(topic)
        workers = [env.worker(subscription) for _ in range(4)]
        await env.publish(topic, *numbered(4))
        first = [await worker.next() for worker in workers]
        for number in (2, 0, 3, 1):
            first[number].ack()
        await env.publish(topic, *numbered(4, "again-"))
        again = [await worker.next() for worker in workers]
        assert [batch.values[0] for batch in again] == [b"again-1", b"again-3", b"again-0", b"again-2"]

    @promise
    async def test_credit_is_a_ceiling_on_what_is_unsettled(self, env: Environment) -> None:
        _, _, subscription = await env.backlog(*numbered(10))
        worker = env.worker(subscription, credit=3)
        first, *_ = await worker.take(3)
        await env.round_trip(subscription)
        assert (worker.unread, worker.session.unsettled) == (0, 3)
        first.ack()
        await worker.next()
        await env.round_trip(subscription)
        assert (worker.unread, worker.session.unsettled) == (0, 3)

    @promise
    async def test_a_record_that_must_be_alone_goes_to_whoever_has_nothing_in_hand(self, env: Environment) -> None:
        topic = await env.topic()
        subscription = await env.subscribe(topic, retry=retry(first=20.0))
        await _suspect(env, subscription, topic)
        busy, also_busy, free = (env.worker(subscription, credit=2) for _ in range(3))
        await env.publish(topic, *numbered(3))
        await busy.next()
        await also_busy.next()
        (await free.next()).ack()
        await advance(20.0)
        assert (await free.next()).values == [b"suspect"]
        assert not busy.unread

    @promise
    @needs("seeks")
    async def test_a_worker_that_was_kept_free_in_vain_is_kept_free_again(self, env: Environment) -> None:
        topic, slow = await env.topic(), await env.topic()
        subscription = await env.subscribe(topic, slow, retry=retry(first=20.0))
        await _suspect(env, subscription, topic)
        worker = env.worker(subscription, credit=2)
        await env.publish(slow, b"slow")
        in_hand = await worker.next()
        await advance(20.0)
        await subscription.seek({Lane(topic, 0): SeekTo.END})
        await advance(20.0)
        worker.session.grant(Credit(1))
        await _suspect(env, subscription, topic)
        worker.session.grant(Credit(2))
        await advance(20.0)
        in_hand.ack()
        assert (await worker.next()).values == [b"suspect"]
        assert worker.session.exclusive

    @promise
    async def test_a_backlogged_lane_does_not_starve_a_trickling_one(self, env: Environment) -> None:
        topic = await env.topic(lanes=2)
        await env.publish(topic, *numbered(2000), lane=0)
        positions = await env.publish(topic, *[b"trickle"] * 5, lane=1)
        subscription = await env.subscribe(topic)
        polled = env.source(subscription).polled
        await until(lambda: polled[Lane(topic, 0)] > 20 and polled[Lane(topic, 1)] == 5, "both have something")
        worker = env.worker(subscription, Batch.ack)
        await env.wait_committed(topic, positions[4] + 1, lane=1)
        first = values(worker.batches[:20])
        assert first.count(b"trickle") == 5

    @promise
    async def test_a_budget_bounds_what_all_workers_have_together(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(*numbered(20), budget=BudgetSettings(concurrency=3))
        most = 0

        def handler(batch: Batch) -> None:
            nonlocal most
            most = max(most, subscription.status().leases)
            batch.ack()

        for _ in range(8):
            env.worker(subscription, handler)
        await env.wait_committed(topic, positions[19] + 1)
        await until(lambda: most == 3)


async def _suspect(env: Environment, subscription: Subscription, topic: str) -> None:
    """A record that two workers died with."""
    await env.publish(topic, b"suspect")
    await env.worker_dies(subscription, times=2)

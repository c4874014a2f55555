"""Promise 6: workers are not bound to partitions."""

from sidecar.brokers.base import SeekTo
from sidecar.model.records import Credit, Lane
from sidecar.settings import BudgetSettings
from sidecar.subscription.subscription import Subscription
from tests.promises.stage import Stage, batches_of, needs, numbered, promise, retry, values
from tests.promises.timing import leap, until
from tests.promises.worker import Batch


class WorkersAreNotBoundToPartitions:
    @promise
    async def test_one_lane_feeds_eight_workers_at_once(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(80))
        subscription = await stage.subscribe(topic, batch=batches_of(10))
        workers = [stage.worker(subscription) for _ in range(8)]
        batches = [await worker.next() for worker in workers]
        assert sorted(values(batches)) == sorted(numbered(80))
        assert subscription.status().leases == 8
        for batch in reversed(batches):
            batch.ack()
        await stage.commits(topic, at[79] + 1)

    @promise
    async def test_one_worker_is_fed_by_all_lanes(self, stage: Stage) -> None:
        topic = await stage.topic(lanes=8)
        ends = [(await stage.publish(topic, *numbered(10), lane=lane))[-1] + 1 for lane in range(8)]
        subscription = await stage.subscribe(topic)
        stage.worker(subscription, Batch.ack)
        for lane, end in enumerate(ends):
            await stage.commits(topic, end, lane)

    @promise
    async def test_who_waits_longest_is_served_next(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic)
        workers = [stage.worker(subscription) for _ in range(4)]
        await stage.publish(topic, *numbered(4))
        first = [await worker.next() for worker in workers]
        for number in (2, 0, 3, 1):
            first[number].ack()
        await stage.publish(topic, *numbered(4, "again-"))
        again = [await worker.next() for worker in workers]
        assert [batch.values[0] for batch in again] == [b"again-1", b"again-3", b"again-0", b"again-2"]

    @promise
    async def test_credit_is_a_ceiling_on_what_is_unsettled(self, stage: Stage) -> None:
        topic = await stage.topic()
        await stage.publish(topic, *numbered(10))
        subscription = await stage.subscribe(topic)
        worker = stage.worker(subscription, credit=3)
        first, *_ = await worker.take(3)
        await stage.turn_around(subscription)
        assert (worker.untaken, worker.session.unsettled) == (0, 3)
        first.ack()
        await worker.next()
        await stage.turn_around(subscription)
        assert (worker.untaken, worker.session.unsettled) == (0, 3)

    @promise
    async def test_a_record_that_must_be_alone_goes_to_whoever_has_nothing_in_hand(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic, retry=retry(first=20.0))
        await _suspect(stage, subscription, topic)
        busy, also_busy, free = (stage.worker(subscription, credit=2) for _ in range(3))
        await stage.publish(topic, *numbered(3))
        await busy.next()
        await also_busy.next()
        (await free.next()).ack()
        await leap(20.0)
        assert (await free.next()).values == [b"suspect"]
        assert not busy.untaken

    @promise
    @needs("seeks")
    async def test_a_worker_that_was_kept_free_in_vain_is_kept_free_again(self, stage: Stage) -> None:
        topic, slow = await stage.topic(), await stage.topic()
        subscription = await stage.subscribe(topic, slow, retry=retry(first=20.0))
        await _suspect(stage, subscription, topic)
        worker = stage.worker(subscription, credit=2)
        await stage.publish(slow, b"slow")
        in_hand = await worker.next()
        await leap(20.0)
        await subscription.seek({Lane(topic, 0): SeekTo.END})
        await leap(20.0)
        worker.session.grant(Credit(1))
        await _suspect(stage, subscription, topic)
        worker.session.grant(Credit(2))
        await leap(20.0)
        in_hand.ack()
        assert (await worker.next()).values == [b"suspect"]
        assert worker.session.exclusive

    @promise
    async def test_a_backlogged_lane_does_not_starve_a_trickling_one(self, stage: Stage) -> None:
        topic = await stage.topic(lanes=2)
        await stage.publish(topic, *numbered(2000), lane=0)
        at = await stage.publish(topic, *[b"trickle"] * 5, lane=1)
        subscription = await stage.subscribe(topic)
        polled = stage.source(subscription).polled
        await until(lambda: polled[Lane(topic, 0)] > 20 and polled[Lane(topic, 1)] == 5, "both have something")
        worker = stage.worker(subscription, Batch.ack)
        await stage.commits(topic, at[4] + 1, lane=1)
        first = values(worker.batches[:20])
        assert first.count(b"trickle") == 5

    @promise
    async def test_a_budget_bounds_what_all_workers_have_together(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(20))
        subscription = await stage.subscribe(topic, budget=BudgetSettings(concurrency=3))
        most = 0

        def handler(batch: Batch) -> None:
            nonlocal most
            most = max(most, subscription.status().leases)
            batch.ack()

        for _ in range(8):
            stage.worker(subscription, handler)
        await stage.commits(topic, at[19] + 1)
        await until(lambda: most == 3)


async def _suspect(stage: Stage, subscription: Subscription, topic: str) -> None:
    """A record that two workers died with."""
    await stage.publish(topic, b"suspect")
    for _ in range(2):
        dying = stage.worker(subscription)
        await dying.next()
        dying.die()

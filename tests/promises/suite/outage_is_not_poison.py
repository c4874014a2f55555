"""Promise 12: an outage is not poison."""

from itertools import pairwise

from sidecar.model.records import ClosedBy, Lane, NoticeKind, Outcome
from sidecar.observability.status import SubscriptionState
from sidecar.settings import OutageSettings, Seconds
from sidecar.subscription.subscription import Subscription
from tests.promises.adjustable_time import advance, fast_forward, until
from tests.promises.environment import Environment, batches_of, numbered, promise, retry, values
from tests.promises.worker import Batch


class OutageIsNotPoison:
    @promise
    async def test_a_handler_that_fails_for_everything_gets_single_probes(self, env: Environment) -> None:
        topic = await env.topic(lanes=3)
        for lane in range(3):
            await env.publish(topic, *numbered(100), lane=lane)
        subscription = await env.subscribe(topic, batch=batches_of(10))
        most = 0

        def handler(batch: Batch) -> None:
            nonlocal most
            most = max(most, subscription.status().leases)
            batch.nack("down")

        for lane in range(3):
            await env.wait_fetched(subscription, topic, 100, lane)
        workers = [env.worker(subscription, handler) for _ in range(4)]
        await until(lambda: subscription.status().state is SubscriptionState.PROBING)
        assert [text for text in subscription.status().trouble if "fails for everything" in text]
        for worker in workers:
            worker.forget()
        most = 0
        async with fast_forward():
            await until(lambda: sum(len(worker.batches) for worker in workers) >= 12)
        probes = [batch for worker in workers for batch in worker.batches]
        assert {(len(batch.records), batch.delivery.closed_by) for batch in probes} == {(1, ClosedBy.PROBE)}
        assert most == 1
        assert {batch.delivery.lanes for batch in probes} == {(0,), (1,), (2,)}

    @promise
    async def test_probes_come_from_different_lanes_also_when_all_was_delivered_before(self, env: Environment) -> None:
        topic = await env.topic(lanes=3)
        for lane in range(3):
            await env.publish(topic, *numbered(20), lane=lane)
        subscription = await env.subscribe(topic, batch=batches_of(20), order="lane")
        worker = env.worker(subscription, credit=3)
        for batch in await worker.take(3):
            batch.nack("down")
        worker.handler = Batch.nack
        worker.forget()
        async with fast_forward():
            await until(lambda: len(worker.batches) >= 6)
        assert {batch.delivery.lanes for batch in worker.batches[:6]} == {(0,), (1,), (2,)}

    @promise
    async def test_nothing_is_dead_lettered_however_long_the_outage_lasts(self, env: Environment) -> None:
        topic, subscription = await env.consuming(
            lanes=2,
            batch=batches_of(5),
            retry=retry(attempts=2, max=5.0),
            outage=OutageSettings(probe_max=Seconds(5.0)),
        )
        ends = [(await env.publish(topic, *numbered(20), lane=lane))[-1] + 1 for lane in range(2)]
        worker = env.worker(subscription, Batch.nack, credit=2)
        async with fast_forward(5.0):
            await until(lambda: len(worker.batches) > 150)
        assert not subscription.counters.dead_lettered
        worker.handler = Batch.ack
        async with fast_forward():
            for lane, end in enumerate(ends):
                await env.wait_committed(topic, end, lane)
        assert not subscription.counters.dead_lettered
        assert subscription.status().state is SubscriptionState.RUNNING

    @promise
    async def test_workers_that_die_in_an_outage_are_not_held_against_their_records(self, env: Environment) -> None:
        topic, _, subscription = await env.backlog(b"probe", retry=retry(attempts=3))
        worker = env.worker(subscription)
        (await worker.next()).nack("down")
        worker.leave()
        async with fast_forward():
            await env.worker_dies(subscription, times=5)
        await env.publish(topic, b"other")
        since: list[Batch] = []

        def handler(batch: Batch) -> None:
            if batch.values == [b"other"]:
                batch.ack()
                return
            if subscription.status().state is SubscriptionState.RUNNING:
                since.append(batch)
            batch.nack("deadlock", retry_after=0.0)

        env.worker(subscription, handler)
        async with fast_forward():
            await until(lambda: subscription.counters.dead_lettered)
        assert len(since) == 2, "the failure by which the outage was noticed counts, and none in it"
        assert since[0].attempt > 6

    @promise
    async def test_a_failing_batch_is_not_split_while_nothing_has_succeeded(self, env: Environment) -> None:
        _, _, subscription = await env.backlog(*numbered(8), batch=batches_of(8))
        worker = env.worker(subscription)
        (await worker.next()).nack()
        assert subscription.status().state is SubscriptionState.PROBING
        assert not subscription.counters.splits

    @promise
    async def test_the_handler_is_seen_to_work_again_by_a_probe(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(*numbered(50), batch=batches_of(5))
        worker = env.worker(subscription)
        (await worker.next()).nack()
        await advance(1.0)
        probe = await worker.next()
        assert len(probe.records) == 1
        probe.ack()
        assert subscription.status().state is SubscriptionState.RUNNING
        worker.handler = Batch.ack
        async with fast_forward():
            await env.wait_committed(topic, positions[49] + 1)

    @promise
    async def test_without_a_worker_the_status_says_so_and_not_that_the_handler_fails(self, env: Environment) -> None:
        _, _, subscription = await env.backlog(*numbered(20))

        def troubles(beginning: str) -> list[str]:
            return [text for text in subscription.status().trouble if text.startswith(beginning)]

        worker = env.worker(subscription, Batch.nack)
        async with fast_forward():
            await until(lambda: troubles("the handler fails for everything"))
        worker.leave()
        assert troubles("no worker is connected")
        assert not troubles("the handler fails")
        env.worker(subscription)
        assert troubles("the handler fails for everything")
        assert not troubles("no worker")

    @promise
    async def test_probes_become_rarer(self, env: Environment) -> None:
        _, _, subscription = await env.backlog(
            *numbered(50), outage=OutageSettings(probe_first=Seconds(40.0), probe_max=Seconds(160.0))
        )
        worker = env.worker(subscription, Batch.nack)
        async with fast_forward(0.25):
            await until(lambda: len(worker.batches) == 7)
        times = [batch.at for batch in worker.batches]
        waits = [later - earlier for earlier, later in pairwise(times)]
        # The first goes at once; each wait has a jitter of a fifth.
        for wait, longest in zip(waits, (0.0, 40.0, 80.0, 160.0, 160.0, 160.0), strict=True):
            assert 0.8 * longest <= wait <= longest + 15.0

    @promise
    async def test_a_probe_that_hangs_is_not_the_last_one(self, env: Environment) -> None:
        subscription = await _with_a_hanging_probe(env, probe_max=60.0)
        await advance(30.0)
        assert subscription.status().state is SubscriptionState.PROBING
        assert subscription.status().leases == 1
        await advance(60.0)
        await until(lambda: subscription.status().state is SubscriptionState.RUNNING)

    @promise
    async def test_an_operator_has_a_probe_sent_at_once_also_while_another_hangs(self, env: Environment) -> None:
        subscription = await _with_a_hanging_probe(env, probe_max=3600.0)
        subscription.resume()
        await until(lambda: subscription.status().state is SubscriptionState.RUNNING)

    @promise
    async def test_failures_among_successes_are_no_outage(self, env: Environment) -> None:
        topic, subscription = await env.consuming(retry=retry(attempts=2), outage=OutageSettings(failures=25))
        positions = await env.publish(topic, *numbered(60))
        bad = {positions[number] for number in range(0, 60, 3)}
        env.worker(subscription, lambda b: b.nack() if b.records[0].position in bad else b.ack())
        async with fast_forward():
            while env.audit.unsettled(topic):
                await env.round_trip(subscription)
        assert {position for _, position in env.audit.dead} == bad

    @promise
    async def test_a_reject_dead_letters_also_in_an_outage(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(*numbered(2))
        worker = env.worker(subscription)
        (await worker.next()).nack()
        await advance(1.0)
        (await worker.next()).reject("no")
        await until(lambda: subscription.counters.dead_lettered)
        assert len(env.audit.dead) == 1
        assert {lane for lane, _ in env.audit.dead} == {Lane(topic, 0)}
        assert {position for _, position in env.audit.dead} < {*positions}

    @promise
    async def test_too_many_rejects_pause_the_subscription_and_say_so(self, env: Environment) -> None:
        topic, _, subscription = await env.backlog(
            *numbered(300), outage=OutageSettings(reject_share=0.5, reject_sample=50)
        )
        worker = env.worker(subscription, Batch.reject)
        await until(lambda: subscription.status().state is SubscriptionState.PAUSED)
        (notice,) = worker.notices_of(NoticeKind.PAUSED)
        assert "rejected" in notice.detail
        assert [text for text in subscription.status().trouble if "rejected" in text]
        rejected = len(worker.batches)
        assert rejected <= 51
        await until(lambda: subscription.counters.dead_lettered == rejected, "what was rejected is dead-lettered")
        assert len(worker.batches) == rejected
        worker.handler = Batch.ack
        subscription.resume()
        assert worker.notices_of(NoticeKind.RESUMED)
        await until(lambda: not env.audit.unsettled(topic))

    @promise
    async def test_a_worker_that_comes_while_it_is_paused_is_told(self, env: Environment) -> None:
        topic = await env.topic()
        subscription = await env.subscribe(topic)
        subscription.pause("for lunch")
        assert [notice.detail for notice in env.worker(subscription).notices_of(NoticeKind.PAUSED)] == ["for lunch"]

    @promise
    async def test_a_few_rejects_do_not_pause_it(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(
            *numbered(200), outage=OutageSettings(reject_share=0.5, reject_sample=50)
        )
        env.worker(subscription, lambda b: b.reject() if (b.records[0].position % 3 == 0) else b.ack())
        await env.wait_committed(topic, positions[199] + 1)
        assert subscription.status().state is SubscriptionState.RUNNING

    @promise
    async def test_overload_shrinks_the_budget(self, env: Environment) -> None:
        _, _, subscription = await env.backlog(*numbered(50))
        workers = [env.worker(subscription) for _ in range(10)]
        for worker in workers:
            (await worker.next()).settle(Outcome.OVERLOADED)
        assert 0 < subscription.status().concurrency_limit < 10
        assert not subscription.counters.dead_lettered
        assert values([worker.batches[0] for worker in workers]) == numbered(10)


async def _with_a_hanging_probe(env: Environment, *, probe_max: float) -> Subscription:
    """A probe is with a worker that never settles it; another worker would."""
    topic = await env.topic(lanes=2)
    for lane in range(2):
        await env.publish(topic, *numbered(10), lane=lane)
    subscription = await env.subscribe(topic, outage=OutageSettings(probe_max=Seconds(probe_max)))
    hangs = env.worker(subscription)
    (await hangs.next()).nack("down")
    await advance(1.0)
    await until(lambda: len(hangs.batches) == 2)
    env.worker(subscription, Batch.ack)
    return subscription

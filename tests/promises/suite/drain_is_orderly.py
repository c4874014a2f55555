"""Promise 10: drain is orderly."""

import asyncio

import pytest

from sidecar.model.errors import Stopping, TooLarge, Unavailable
from sidecar.model.records import Lane, NoticeKind, SettleStatus
from sidecar.observability.status import SubscriptionState
from tests.promises.adjustable_time import advance, now, until
from tests.promises.environment import Environment, batches_of, needs, numbered, promise
from tests.promises.worker import Batch


class DrainIsOrderly:
    @promise
    async def test_a_drain_waits_for_workers_and_commits_what_they_settle(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(*numbered(3))
        worker = env.worker(subscription, credit=3)
        batches = await worker.take(3)
        draining = asyncio.create_task(subscription.drain(25.0))
        await until(lambda: worker.notices_of(NoticeKind.DRAINING))
        assert subscription.status().state is SubscriptionState.DRAINING
        await advance(10.0)
        for batch in batches:
            assert batch.ack().status is SettleStatus.SETTLED
        await draining
        assert env.committed(topic) == positions[2] + 1

    @promise
    async def test_a_drain_is_over_as_soon_as_everything_is_settled(self, env: Environment) -> None:
        _, _, subscription = await env.backlog(b"value")
        batch = await env.worker(subscription).next()
        began = now()
        draining = asyncio.create_task(subscription.drain(1000.0))
        await asyncio.sleep(0)
        batch.ack()
        await draining
        assert now() - began < 100.0

    @promise
    async def test_a_drain_fetches_and_delivers_nothing_more(self, env: Environment) -> None:
        topic, _, subscription = await env.backlog(*numbered(5))
        worker = env.worker(subscription, credit=1)
        batch = await worker.next()
        draining = asyncio.create_task(subscription.drain(25.0))
        await until(lambda: worker.notices_of(NoticeKind.DRAINING))
        source = env.source(subscription)
        await until(lambda: Lane(topic, 0) in source.paused, "the broker is told")
        # The next poll may still return what was on its way.
        polls = source.calls.count("poll")
        await advance(2.0)
        await until(lambda: source.calls.count("poll") > polls + 1)
        fetched = subscription.counters.fetched
        await env.publish(topic, *numbered(5))
        batch.ack()
        await draining
        assert (subscription.counters.fetched, len(worker.batches)) == (fetched, 1)

    @promise
    async def test_the_broker_session_lives_as_long_as_workers_may_settle(self, env: Environment) -> None:
        topic, _, subscription = await env.backlog(*numbered(2))
        first, _ = await env.worker(subscription, credit=2).take(2)
        source = env.source(subscription)
        draining = asyncio.create_task(subscription.drain(25.0))
        await asyncio.sleep(0)
        polls = source.calls.count("poll")
        await advance(2.0)
        await until(lambda: source.calls.count("poll") > polls, "it is polled while it drains")
        first.ack()
        await env.wait_committed(topic, first.records[0].position + 1)
        assert "close" not in source.calls
        await advance(25.0)
        await draining
        after_last_commit = source.calls[len(source.calls) - source.calls[::-1].index("commit") :]
        assert [call for call in after_last_commit if call != "poll"][-2:] == ["release", "close"]
        assert source.calls[-1] == "close"

    @promise
    async def test_what_is_not_settled_at_the_deadline_is_released(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(*numbered(3))
        first, _, _ = await env.worker(subscription, credit=3).take(3)
        first.ack()
        draining = asyncio.create_task(subscription.drain(10.0))
        await asyncio.sleep(0)
        await advance(5.0)
        assert not draining.done()
        await advance(5.0)
        await draining
        assert env.committed(topic) == positions[0] + 1
        assert subscription.counters.released == 2
        subscription = await env.restart(subscription)
        batches = await env.worker(subscription, credit=3).take(2)
        assert [(batch.values, batch.attempt) for batch in batches] == [([b"1"], 1), ([b"2"], 1)]

    @promise
    async def test_what_is_said_to_count_while_it_stops_is_committed_and_nothing_counts_after(
        self, env: Environment
    ) -> None:
        topic, positions, subscription = await env.backlog(*numbered(51))
        *batches, last = await env.worker(subscription, credit=51).take(51)
        draining = asyncio.create_task(subscription.drain(0.0))
        for batch in batches:
            batch.ack()
            await asyncio.sleep(0)
        await draining
        assert last.ack().status is SettleStatus.STALE
        counted = [batch for batch in batches if batch.results[0].status is SettleStatus.SETTLED]
        assert counted == batches[: len(counted)]
        assert env.committed(topic) == positions[len(counted) - 1] + 1

    @promise
    async def test_a_drain_with_two_seconds_left_is_a_good_one(self, env: Environment) -> None:
        """Commits are continuous, so little is left to do."""
        topic, positions, subscription = await env.backlog(*numbered(100), b"slow")
        env.worker(subscription, lambda b: None if b.values == [b"slow"] else b.ack())
        await env.wait_committed(topic, positions[99] + 1)
        draining = asyncio.create_task(subscription.drain(2.0))
        await asyncio.sleep(0)
        await advance(2.0)
        await draining
        subscription = await env.restart(subscription)
        assert (await env.worker(subscription).next()).values == [b"slow"]

    @promise
    async def test_a_drain_without_any_time_commits_what_is_settled(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(*numbered(10), commit_every=60.0)
        for batch in await env.worker(subscription, credit=10).take(10):
            batch.ack()
        await subscription.drain(0.0)
        assert env.committed(topic) == positions[9] + 1

    @promise
    async def test_a_drain_waits_for_what_is_being_dead_lettered(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(*numbered(2))
        dead_letters = subscription.settings.dead_letter_topic
        env.broker.publish_faults[dead_letters] = Unavailable("no answer")
        env.worker(subscription, Batch.reject)
        await until(lambda: env.broker.failed_publishes[dead_letters])
        draining = asyncio.create_task(subscription.drain(1000.0))
        await asyncio.sleep(0)
        env.broker.publish_faults.clear()
        await advance(10.0)
        await draining
        assert env.committed(topic) in (positions[0] + 1, positions[1] + 1)
        assert env.audit.dead

    @promise
    async def test_a_drain_does_not_wait_for_a_dead_letter_that_was_refused(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(*numbered(2))
        dead_letters = subscription.settings.dead_letter_topic
        env.broker.publish_faults[dead_letters] = TooLarge("more than the topic takes")
        worker = env.worker(subscription, lambda b: b.reject() if b.values == [b"1"] else b.ack())
        await until(lambda: len(worker.batches) == 2 and env.broker.failed_publishes[dead_letters])
        began = now()
        await subscription.drain(1000.0)
        assert now() - began < 100.0
        assert positions[0] < env.committed(topic) <= positions[1]

    @promise
    async def test_a_broker_that_does_not_answer_does_not_hold_up_the_drain(self, env: Environment) -> None:
        _, _, subscription = await env.backlog(*numbered(2))
        env.broker.commit_fault = Unavailable("no answer")
        for batch in await env.worker(subscription, credit=2).take(2):
            batch.ack()
        await subscription.drain(0.0)
        subscription = await env.restart(subscription)
        again = await env.worker(subscription, credit=2).take(2)
        assert [batch.possibly_processed for batch in again] == [True, True]

    @promise
    @needs("keeps_reach")
    async def test_after_a_stop_with_nothing_in_hand_only_a_crash_makes_new_records_doubtful(
        self, env: Environment
    ) -> None:
        topic, positions, subscription = await env.backlog(*numbered(3))
        env.worker(subscription, Batch.ack)
        await env.wait_committed(topic, positions[-1] + 1)
        subscription = await env.restart(subscription)
        await env.publish(topic, b"new")
        (first,) = await env.worker(subscription).take(1)
        subscription = await env.crash(subscription)
        (second,) = await env.worker(subscription).take(1)
        assert (first.values, first.possibly_processed) == ([b"new"], False)
        assert (second.values, second.possibly_processed) == ([b"new"], True)

    @promise
    async def test_nobody_can_connect_while_it_drains(self, env: Environment) -> None:
        _, _, subscription = await env.backlog(b"value")
        batch = await env.worker(subscription).next()
        draining = asyncio.create_task(subscription.drain(25.0))
        await asyncio.sleep(0)
        with pytest.raises(Stopping):
            env.worker(subscription)
        batch.ack()
        await draining

    @promise
    async def test_what_comes_back_while_it_drains_is_left_for_the_next_life(self, env: Environment) -> None:
        topic, subscription = await env.consuming(batch=batches_of(2))
        await env.publish(topic, *numbered(4))
        worker = env.worker(subscription, credit=5)
        first, second = await worker.take(2)
        draining = asyncio.create_task(subscription.drain(25.0))
        await asyncio.sleep(0)
        first.nack(retry_after=0.0)
        second.release()
        await draining
        assert not worker.unread
        subscription = await env.restart(subscription)
        assert len(await env.worker(subscription, credit=5).take(2)) == 2

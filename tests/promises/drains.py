"""Promise 10: drain is orderly."""

import asyncio

import pytest

from sidecar.model.errors import Stopping, TooLarge, Unavailable
from sidecar.model.records import Lane, NoticeKind, SettleStatus
from sidecar.observability.status import SubscriptionState
from tests.promises.stage import Stage, batches_of, numbered, promise
from tests.promises.timing import leap, now, until
from tests.promises.worker import Batch


class DrainIsOrderly:
    @promise
    async def test_a_drain_waits_for_workers_and_commits_what_they_settle(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(3))
        subscription = await stage.subscribe(topic)
        worker = stage.worker(subscription, credit=3)
        batches = await worker.take(3)
        draining = asyncio.create_task(subscription.drain(25.0))
        await until(lambda: worker.told(NoticeKind.DRAINING))
        assert subscription.status().state is SubscriptionState.DRAINING
        await leap(10.0)
        for batch in batches:
            assert batch.ack().status is SettleStatus.SETTLED
        await draining
        assert stage.committed(topic) == at[2] + 1

    @promise
    async def test_a_drain_is_over_as_soon_as_everything_is_settled(self, stage: Stage) -> None:
        topic = await stage.topic()
        await stage.publish(topic, b"value")
        subscription = await stage.subscribe(topic)
        batch = await stage.worker(subscription).next()
        began = now()
        draining = asyncio.create_task(subscription.drain(1000.0))
        await asyncio.sleep(0)
        batch.ack()
        await draining
        assert now() - began < 100.0

    @promise
    async def test_a_drain_fetches_and_delivers_nothing_more(self, stage: Stage) -> None:
        topic = await stage.topic()
        await stage.publish(topic, *numbered(5))
        subscription = await stage.subscribe(topic)
        worker = stage.worker(subscription, credit=1)
        batch = await worker.next()
        draining = asyncio.create_task(subscription.drain(25.0))
        await until(lambda: worker.told(NoticeKind.DRAINING))
        source = stage.source(subscription)
        await until(lambda: Lane(topic, 0) in source.paused, "the broker is told")
        # What was on its way then may come with the next poll.
        polls = source.calls.count("poll")
        await leap(2.0)
        await until(lambda: source.calls.count("poll") > polls + 1)
        fetched = subscription.counters.fetched
        await stage.publish(topic, *numbered(5))
        batch.ack()
        await draining
        assert (subscription.counters.fetched, len(worker.batches)) == (fetched, 1)

    @promise
    async def test_the_broker_session_lives_as_long_as_workers_may_settle(self, stage: Stage) -> None:
        topic = await stage.topic()
        await stage.publish(topic, *numbered(2))
        subscription = await stage.subscribe(topic)
        first, _ = await stage.worker(subscription, credit=2).take(2)
        source = stage.source(subscription)
        draining = asyncio.create_task(subscription.drain(25.0))
        await asyncio.sleep(0)
        polls = source.calls.count("poll")
        await leap(2.0)
        await until(lambda: source.calls.count("poll") > polls, "it is polled while it drains")
        first.ack()
        await stage.commits(topic, first.records[0].position + 1)
        assert "close" not in source.calls
        await leap(25.0)
        await draining
        after_last_commit = source.calls[len(source.calls) - source.calls[::-1].index("commit") :]
        assert [call for call in after_last_commit if call != "poll"][-2:] == ["release", "close"]
        assert source.calls[-1] == "close"

    @promise
    async def test_what_is_not_settled_at_the_deadline_is_released(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(3))
        subscription = await stage.subscribe(topic)
        first, _, _ = await stage.worker(subscription, credit=3).take(3)
        first.ack()
        draining = asyncio.create_task(subscription.drain(10.0))
        await asyncio.sleep(0)
        await leap(5.0)
        assert not draining.done()
        await leap(5.0)
        await draining
        assert stage.committed(topic) == at[0] + 1
        assert subscription.counters.released == 2
        subscription = await stage.restart(subscription)
        batches = await stage.worker(subscription, credit=3).take(2)
        assert [(batch.values, batch.attempt) for batch in batches] == [([b"1"], 1), ([b"2"], 1)]

    @promise
    async def test_what_is_said_to_count_while_it_stops_is_committed_and_nothing_counts_after(
        self, stage: Stage
    ) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(51))
        subscription = await stage.subscribe(topic)
        *batches, last = await stage.worker(subscription, credit=51).take(51)
        draining = asyncio.create_task(subscription.drain(0.0))
        for batch in batches:
            batch.ack()
            await asyncio.sleep(0)
        await draining
        assert last.ack().status is SettleStatus.STALE
        counted = [batch for batch in batches if batch.results[0].status is SettleStatus.SETTLED]
        assert counted == batches[: len(counted)]
        assert stage.committed(topic) == at[len(counted) - 1] + 1

    @promise
    async def test_a_drain_with_two_seconds_left_is_a_good_one(self, stage: Stage) -> None:
        """Commits are continuous, so that there is little left to do."""
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(100), b"slow")
        subscription = await stage.subscribe(topic)
        stage.worker(subscription, lambda b: None if b.values == [b"slow"] else b.ack())
        await stage.commits(topic, at[99] + 1)
        draining = asyncio.create_task(subscription.drain(2.0))
        await asyncio.sleep(0)
        await leap(2.0)
        await draining
        subscription = await stage.restart(subscription)
        assert (await stage.worker(subscription).next()).values == [b"slow"]

    @promise
    async def test_a_drain_without_any_time_commits_what_is_settled(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(10))
        subscription = await stage.subscribe(topic, commit_every=60.0)
        for batch in await stage.worker(subscription, credit=10).take(10):
            batch.ack()
        await subscription.drain(0.0)
        assert stage.committed(topic) == at[9] + 1

    @promise
    async def test_a_drain_waits_for_what_is_being_dead_lettered(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(2))
        subscription = await stage.subscribe(topic)
        dead_letters = subscription.settings.dead_letter_topic
        stage.broker.publish_faults[dead_letters] = Unavailable("no answer")
        stage.worker(subscription, Batch.reject)
        await until(lambda: stage.broker.failed_publishes[dead_letters])
        draining = asyncio.create_task(subscription.drain(1000.0))
        await asyncio.sleep(0)
        stage.broker.publish_faults.clear()
        await leap(10.0)
        await draining
        assert stage.committed(topic) in (at[0] + 1, at[1] + 1)
        assert stage.audit.dead

    @promise
    async def test_a_drain_does_not_wait_for_a_dead_letter_that_was_refused(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(2))
        subscription = await stage.subscribe(topic)
        dead_letters = subscription.settings.dead_letter_topic
        stage.broker.publish_faults[dead_letters] = TooLarge("more than the topic takes")
        worker = stage.worker(subscription, lambda b: b.reject() if b.values == [b"1"] else b.ack())
        await until(lambda: len(worker.batches) == 2 and stage.broker.failed_publishes[dead_letters])
        began = now()
        await subscription.drain(1000.0)
        assert now() - began < 100.0
        assert at[0] < stage.committed(topic) <= at[1]

    @promise
    async def test_a_broker_that_does_not_answer_does_not_hold_up_the_drain(self, stage: Stage) -> None:
        topic = await stage.topic()
        await stage.publish(topic, *numbered(2))
        subscription = await stage.subscribe(topic)
        stage.broker.commit_fault = Unavailable("no answer")
        for batch in await stage.worker(subscription, credit=2).take(2):
            batch.ack()
        await subscription.drain(0.0)
        subscription = await stage.restart(subscription)
        again = await stage.worker(subscription, credit=2).take(2)
        assert [batch.is_doubtful for batch in again] == [True, True]

    @promise
    async def test_nobody_can_connect_while_it_drains(self, stage: Stage) -> None:
        topic = await stage.topic()
        await stage.publish(topic, b"value")
        subscription = await stage.subscribe(topic)
        batch = await stage.worker(subscription).next()
        draining = asyncio.create_task(subscription.drain(25.0))
        await asyncio.sleep(0)
        with pytest.raises(Stopping):
            stage.worker(subscription)
        batch.ack()
        await draining

    @promise
    async def test_what_comes_back_while_it_drains_is_left_for_the_next_life(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic, batch=batches_of(2))
        await stage.turn_around(subscription)
        await stage.publish(topic, *numbered(4))
        worker = stage.worker(subscription, credit=5)
        first, second = await worker.take(2)
        draining = asyncio.create_task(subscription.drain(25.0))
        await asyncio.sleep(0)
        first.nack(retry_after=0.0)
        second.release()
        await draining
        assert not worker.untaken
        subscription = await stage.restart(subscription)
        assert len(await stage.worker(subscription, credit=5).take(2)) == 2

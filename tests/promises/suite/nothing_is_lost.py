"""Promise 1: nothing is lost. (`audit` checks it on every commit of every other test, too.)"""

import random

from sidecar.model.errors import Unavailable
from sidecar.model.records import Lane, Outcome, Part
from sidecar.settings import Exhausted
from sidecar.subscription.subscription import Subscription
from tests.promises.adjustable_time import advance, fast_forward, until
from tests.promises.environment import Environment, batches_of, needs, numbered, promise, retry
from tests.promises.worker import Batch, Worker


class NothingIsLost:
    @promise
    async def test_a_position_is_committed_only_when_every_record_before_it_is_acked(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(*numbered(6), batch=batches_of(2))
        first, second, third = await env.worker(subscription, credit=3).take(3)
        third.ack()
        first.ack()
        await env.wait_committed(topic, positions[1] + 1)
        await env.round_trip(subscription)
        assert env.committed(topic) == positions[1] + 1
        second.ack()
        await env.wait_committed(topic, positions[5] + 1)

    @promise
    async def test_a_record_that_was_not_acked_comes_again_after_a_crash(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(*numbered(3))
        first, _, _ = await env.worker(subscription, credit=3).take(3)
        first.ack()
        await env.wait_committed(topic, positions[0] + 1)
        subscription = await env.crash(subscription)
        batches = await env.worker(subscription, credit=3).take(2)
        assert sorted(batch.values for batch in batches) == [[b"1"], [b"2"]]

    @promise
    @needs("lists_records")
    async def test_a_rejected_record_is_committed_once_it_is_durably_dead_lettered(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(*numbered(3))
        env.worker(subscription, lambda b: b.reject("no such customer") if b.values == [b"1"] else b.ack(), name="w")
        await env.wait_committed(topic, positions[2] + 1)
        subscription = await env.crash(subscription)
        (letter,) = await env.dead_letters(subscription)
        assert (letter.id.partition("@")[0], letter.record.value) == (f"{topic}/0/{positions[1]}", b"1")
        assert (letter.reason, letter.worker) == ("REJECTED: no such customer", "w")
        await env.round_trip(subscription)
        assert not subscription.status().in_flight_records

    @promise
    async def test_a_dead_letter_that_cannot_be_written_holds_the_commit_back(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(*numbered(4))
        dead_letters = subscription.settings.dead_letter_topic
        env.broker.publish_faults[dead_letters] = Unavailable("no answer")
        worker = env.worker(subscription, lambda b: b.reject() if b.values == [b"1"] else b.ack())
        await until(lambda: len(worker.batches) == 4 and env.broker.failed_publishes[dead_letters] > 1)
        await env.round_trip(subscription)
        assert positions[0] < env.committed(topic) <= positions[1]
        assert [text for text in subscription.status().trouble if dead_letters in text and "held back" in text]
        del env.broker.publish_faults[dead_letters]
        async with fast_forward():
            await env.wait_committed(topic, positions[3] + 1)
        assert not subscription.status().trouble

    @promise
    async def test_a_record_whose_dead_letter_was_not_written_comes_again_after_a_crash(self, env: Environment) -> None:
        _, _, subscription = await env.backlog(*numbered(3))
        dead_letters = subscription.settings.dead_letter_topic
        env.broker.publish_faults[dead_letters] = Unavailable("no answer")
        env.worker(subscription, Batch.reject, credit=3)
        await until(lambda: env.broker.failed_publishes[dead_letters])
        subscription = await env.crash(subscription)
        batches = await env.worker(subscription, credit=3).take(3)
        assert [batch.values for batch in batches] == [[b"0"], [b"1"], [b"2"]]

    @promise
    @needs("lists_records")
    async def test_a_dead_letter_that_is_written_twice_counts_as_one(self, env: Environment) -> None:
        """Writing it and committing are not atomic."""
        topic, (position,), subscription = await env.backlog(b"bad")
        env.broker.commit_fault = Unavailable("no answer")
        env.worker(subscription, Batch.reject)
        await until(lambda: env.broker.failed_commits)
        subscription = await env.crash(subscription)
        env.worker(subscription, Batch.reject)
        await env.wait_committed(topic, position + 1)
        written = [
            record_id for record_id in env.audit.published if record_id.topic == subscription.settings.dead_letter_topic
        ]
        assert sum(len(env.audit.published[lane]) for lane in written) == 2
        assert len(await env.dead_letters(subscription)) == 1

    @promise
    async def test_a_park_that_cannot_be_written_holds_the_commit_back(self, env: Environment) -> None:
        topic, subscription = await env.consuming()
        positions = await env.publish(topic, *numbered(4))
        retries = subscription.settings.retry_topic
        env.broker.publish_faults[retries] = Unavailable("no answer")
        worker = env.worker(subscription, lambda b: b.nack(retry_after=3600.0) if b.values == [b"1"] else b.ack())
        await until(lambda: len(worker.batches) == 4 and env.broker.failed_publishes[retries] > 1)
        await env.round_trip(subscription)
        assert positions[0] < env.committed(topic) <= positions[1]
        del env.broker.publish_faults[retries]
        async with fast_forward():
            await env.wait_committed(topic, positions[3] + 1)

    @promise
    async def test_a_parked_record_outlives_a_crash(self, env: Environment) -> None:
        topic, subscription = await env.consuming()
        positions = await env.publish(topic, *numbered(2))
        env.worker(subscription, lambda b: b.nack(retry_after=3600.0) if b.values == [b"0"] else b.ack())
        await env.wait_committed(topic, positions[1] + 1)
        subscription = await env.crash(subscription)
        worker = env.worker(subscription)
        await env.round_trip(subscription)
        assert not worker.batches
        await advance(3600.0)
        assert (await worker.next()).record_ids == [(Lane(topic, 0), positions[0])]

    @promise
    async def test_a_commit_that_fails_is_tried_again(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(*numbered(3))
        env.broker.commit_fault = Unavailable("no answer")
        env.worker(subscription, Batch.ack)
        async with fast_forward():
            await until(lambda: env.broker.failed_commits > 2)
            assert [text for text in subscription.status().trouble if "no answer" in text]
            env.broker.commit_fault = None
            await env.wait_committed(topic, positions[2] + 1)
        assert not subscription.status().trouble

    @promise
    async def test_a_record_is_dropped_only_by_choice(self, env: Environment) -> None:
        topic, subscription = await env.consuming(retry=retry(attempts=2, first=25.0, exhausted=Exhausted.DROP))
        positions = await env.publish(topic, *numbered(3))
        worker = env.worker(subscription, lambda b: b.nack() if b.values == [b"1"] else b.ack())
        await until(lambda: len(worker.batches) == 3)
        await env.round_trip(subscription)
        assert positions[0] < env.committed(topic) <= positions[1]
        env.audit.record_dropped([(Lane(topic, 0), positions[1])])
        await advance(25.0)
        await env.wait_committed(topic, positions[2] + 1)
        assert subscription.counters.dropped == 1

    @promise
    async def test_every_record_is_acked_or_dead_lettered_whatever_workers_do(self, env: Environment) -> None:
        """All outcomes at random, with workers that die, leases that expire, and one crash in the middle."""
        chance = random.Random(20)
        topic, subscription = await env.consuming(
            lanes=3, batch=batches_of(7), retry=retry(attempts=3, first=1.0, max=40.0)
        )
        ends = [(await env.publish(topic, *numbered(200), lane=lane))[-1] + 1 for lane in range(3)]
        async with fast_forward():
            workers = _ErraticWorkers(env, subscription, chance)
            await until(lambda: subscription.counters.acked > 250)
            workers.over = True
            subscription = await env.crash(subscription)
            _ErraticWorkers(env, subscription, chance)
            for lane, end in enumerate(ends):
                await env.wait_committed(topic, end, lane)
            # Parked ones are still to come.
            await until(lambda: not env.audit.unsettled(topic))
        assert subscription.counters.dead_lettered


class _ErraticWorkers:
    """Workers that settle at random, and are replaced when they die."""

    def __init__(self, env: Environment, subscription: Subscription, chance: random.Random) -> None:
        self.over = False
        self._env = env
        self._subscription = subscription
        self._chance = chance
        for _ in range(4):
            self._add_worker()

    def _add_worker(self) -> None:
        def handler(batch: Batch) -> None:
            if not self.over:
                self._settle(worker, batch)

        worker = self._env.worker(self._subscription, handler, credit=2, lease=20.0)

    def _settle(self, worker: Worker, batch: Batch) -> None:
        dice = self._chance.random()
        if dice < 0.55:
            batch.ack()
        elif dice < 0.70:
            batch.nack("bad luck", self._chance.choice([None, None, 0.0, 60.0]))
        elif dice < 0.75:
            batch.release()
        elif dice < 0.77:
            batch.settle(Outcome.OVERLOADED)
        elif dice < 0.79:
            batch.reject("never")
        elif dice < 0.85:
            middle = len(batch.records) // 2
            batch.settle(Outcome.ACK, [Part(middle, 1, self._chance.choice([Outcome.NACK, Outcome.REJECT]))])
        elif dice < 0.92:
            # Only a part of it; the rest expires.
            batch.settle(None, [Part(0, 1, Outcome.ACK)])
        elif dice < 0.96:
            worker.die()
            self._add_worker()
        # Otherwise it is not settled, and expires.

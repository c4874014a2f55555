"""Promise 1: nothing is lost. (Besides, `audit` holds every commit of every other test against it.)"""

import random

from sidecar.model.errors import Unavailable
from sidecar.model.records import Lane, Outcome, Part
from sidecar.settings import Exhausted
from tests.promises.stage import Stage, batches_of, needs, numbered, promise, retry
from tests.promises.timing import hurry, leap, until
from tests.promises.worker import Batch, Worker


class NothingIsLost:
    @promise
    async def test_a_position_is_committed_only_when_every_record_before_it_is_acked(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(6))
        subscription = await stage.subscribe(topic, batch=batches_of(2))
        first, second, third = await stage.worker(subscription, credit=3).take(3)
        third.ack()
        first.ack()
        await stage.commits(topic, at[1] + 1)
        await stage.turn_around(subscription)
        assert stage.committed(topic) == at[1] + 1
        second.ack()
        await stage.commits(topic, at[5] + 1)

    @promise
    async def test_a_record_that_was_not_acked_comes_again_after_a_crash(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(3))
        subscription = await stage.subscribe(topic)
        first, _, _ = await stage.worker(subscription, credit=3).take(3)
        first.ack()
        await stage.commits(topic, at[0] + 1)
        subscription = await stage.crash(subscription)
        batches = await stage.worker(subscription, credit=3).take(2)
        assert sorted(batch.values for batch in batches) == [[b"1"], [b"2"]]

    @promise
    @needs("reads_ranges")
    async def test_a_rejected_record_is_committed_once_it_is_durably_dead_lettered(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(3))
        subscription = await stage.subscribe(topic)
        stage.worker(subscription, lambda b: b.reject("no such customer") if b.values == [b"1"] else b.ack(), name="w")
        await stage.commits(topic, at[2] + 1)
        subscription = await stage.crash(subscription)
        (letter,) = await stage.dead_letters(subscription)
        assert (letter.id, letter.record.value) == (f"{topic}/0/{at[1]}", b"1")
        assert (letter.reason, letter.worker) == ("REJECTED: no such customer", "w")
        await stage.turn_around(subscription)
        assert not subscription.status().in_flight_records

    @promise
    async def test_a_dead_letter_that_cannot_be_written_holds_the_commit_back(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(4))
        subscription = await stage.subscribe(topic)
        dead_letters = subscription.settings.dead_letter_topic
        stage.broker.publish_faults[dead_letters] = Unavailable("no answer")
        worker = stage.worker(subscription, lambda b: b.reject() if b.values == [b"1"] else b.ack())
        await until(lambda: len(worker.batches) == 4 and stage.broker.failed_publishes[dead_letters] > 1)
        await stage.turn_around(subscription)
        assert at[0] < stage.committed(topic) <= at[1]
        assert [text for text in subscription.status().trouble if dead_letters in text and "held back" in text]
        del stage.broker.publish_faults[dead_letters]
        async with hurry():
            await stage.commits(topic, at[3] + 1)
        assert not subscription.status().trouble

    @promise
    async def test_a_record_whose_dead_letter_was_not_written_comes_again_after_a_crash(self, stage: Stage) -> None:
        topic = await stage.topic()
        await stage.publish(topic, *numbered(3))
        subscription = await stage.subscribe(topic)
        dead_letters = subscription.settings.dead_letter_topic
        stage.broker.publish_faults[dead_letters] = Unavailable("no answer")
        stage.worker(subscription, Batch.reject, credit=3)
        await until(lambda: stage.broker.failed_publishes[dead_letters])
        subscription = await stage.crash(subscription)
        batches = await stage.worker(subscription, credit=3).take(3)
        assert [batch.values for batch in batches] == [[b"0"], [b"1"], [b"2"]]

    @promise
    @needs("reads_ranges")
    async def test_a_dead_letter_that_is_written_twice_counts_as_one(self, stage: Stage) -> None:
        """Its write and the commit are not one step."""
        topic = await stage.topic()
        (at,) = await stage.publish(topic, b"bad")
        subscription = await stage.subscribe(topic)
        stage.broker.commit_fault = Unavailable("no answer")
        stage.worker(subscription, Batch.reject)
        await until(lambda: stage.broker.failed_commits)
        subscription = await stage.crash(subscription)
        stage.worker(subscription, Batch.reject)
        await stage.commits(topic, at + 1)
        written = [spot for spot in stage.audit.published if spot.topic == subscription.settings.dead_letter_topic]
        assert sum(len(stage.audit.published[lane]) for lane in written) == 2
        assert len(await stage.dead_letters(subscription)) == 1

    @promise
    async def test_a_park_that_cannot_be_written_holds_the_commit_back(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic)
        await stage.turn_around(subscription)
        at = await stage.publish(topic, *numbered(4))
        retries = subscription.settings.retry_topic
        stage.broker.publish_faults[retries] = Unavailable("no answer")
        worker = stage.worker(subscription, lambda b: b.nack(retry_after=3600.0) if b.values == [b"1"] else b.ack())
        await until(lambda: len(worker.batches) == 4 and stage.broker.failed_publishes[retries] > 1)
        await stage.turn_around(subscription)
        assert at[0] < stage.committed(topic) <= at[1]
        del stage.broker.publish_faults[retries]
        async with hurry():
            await stage.commits(topic, at[3] + 1)

    @promise
    async def test_a_parked_record_outlives_a_crash(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic)
        await stage.turn_around(subscription)
        at = await stage.publish(topic, *numbered(2))
        stage.worker(subscription, lambda b: b.nack(retry_after=3600.0) if b.values == [b"0"] else b.ack())
        await stage.commits(topic, at[1] + 1)
        subscription = await stage.crash(subscription)
        worker = stage.worker(subscription)
        await stage.turn_around(subscription)
        assert not worker.batches
        await leap(3600.0)
        assert (await worker.next()).spots == [(Lane(topic, 0), at[0])]

    @promise
    async def test_a_commit_that_fails_is_tried_again(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(3))
        subscription = await stage.subscribe(topic)
        stage.broker.commit_fault = Unavailable("no answer")
        stage.worker(subscription, Batch.ack)
        async with hurry():
            await until(lambda: stage.broker.failed_commits > 2)
            assert [text for text in subscription.status().trouble if "no answer" in text]
            stage.broker.commit_fault = None
            await stage.commits(topic, at[2] + 1)
        assert not subscription.status().trouble

    @promise
    async def test_a_record_is_dropped_only_by_choice(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic, retry=retry(attempts=2, first=25.0, exhausted=Exhausted.DROP))
        await stage.turn_around(subscription)
        at = await stage.publish(topic, *numbered(3))
        worker = stage.worker(subscription, lambda b: b.nack() if b.values == [b"1"] else b.ack())
        await until(lambda: len(worker.batches) == 3)
        await stage.turn_around(subscription)
        assert at[0] < stage.committed(topic) <= at[1]
        stage.audit.dropped([(Lane(topic, 0), at[1])])
        await leap(25.0)
        await stage.commits(topic, at[2] + 1)
        assert subscription.counters.dropped == 1

    @promise
    async def test_every_record_of_a_rough_ride_is_acked_or_dead_lettered(self, stage: Stage) -> None:
        """Every outcome, in every mixture, with workers that die and leases that expire; one crash in the middle."""
        chance = random.Random(20)
        topic = await stage.topic(lanes=3)
        subscription = await stage.subscribe(topic, batch=batches_of(7), retry=retry(attempts=3, first=1.0, max=40.0))
        await stage.turn_around(subscription)
        ends = [(await stage.publish(topic, *numbered(200), lane=lane))[-1] + 1 for lane in range(3)]
        ride = _Ride(stage, chance)
        async with hurry():
            ride.staff(subscription)
            await until(lambda: subscription.counters.acked > 250)
            ride.over = True
            subscription = await stage.crash(subscription)
            ride = _Ride(stage, chance)
            ride.staff(subscription)
            for lane, end in enumerate(ends):
                await stage.commits(topic, end, lane)
            # Parked ones are still to come.
            await until(lambda: not stage.audit.unsettled(topic))
        assert subscription.counters.dead_lettered


class _Ride:
    """Workers that do whatever chance says, and are replaced when they die."""

    def __init__(self, stage: Stage, chance: random.Random) -> None:
        self.over = False
        self._stage = stage
        self._chance = chance
        self._workers: list[Worker] = []

    def staff(self, *subscriptions: object) -> None:
        for subscription in subscriptions:
            for _ in range(4):
                self._hire(subscription)

    def _hire(self, subscription: object) -> None:
        def handler(batch: Batch) -> None:
            if not self.over:
                self._settle(worker, batch)

        worker = self._stage.worker(subscription, handler, credit=2, lease=20.0)  # type: ignore[arg-type]
        self._workers.append(worker)

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
            # Only some of it; the rest expires.
            batch.settle(None, [Part(0, 1, Outcome.ACK)])
        elif dice < 0.96:
            worker.die()
            self._hire(worker.subscription)
        # Otherwise it is forgotten, and expires.

"""Promise 2: a nack replays."""

import asyncio

from sidecar.model.records import ClosedBy, Outcome
from sidecar.settings import ParkingSettings, WindowSettings
from tests.promises.stage import Stage, batches_of, needs, numbered, promise, retry, values
from tests.promises.timing import hurry, leap, until
from tests.promises.worker import Batch


class ANackReplays:
    @promise
    async def test_a_nacked_record_comes_back_with_attempt_two_after_its_wait(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic, retry=retry(first=20.0))
        await stage.turn_around(subscription)
        await stage.publish(topic, b"value")
        worker = stage.worker(subscription)
        (await worker.next()).nack("why not")
        await leap(12.0)
        await stage.turn_around(subscription)
        assert not worker.untaken
        await leap(8.0)
        again = await worker.next()
        assert (again.values, again.attempt, again.is_doubtful) == ([b"value"], 2, stage.flags_all)
        assert again.delivery.closed_by is ClosedBy.RETRY

    @promise
    async def test_waits_grow_up_to_the_longest(self, stage: Stage) -> None:
        topic = await stage.topic()
        waits = retry(attempts=9, first=80.0, factor=2.0, max=200.0)
        subscription = await stage.subscribe(topic, retry=waits, parking=ParkingSettings(enabled=False))
        await stage.turn_around(subscription)
        await stage.publish(topic, b"value")
        worker = stage.worker(subscription)
        for attempt, wait in enumerate((80.0, 160.0, 200.0, 200.0), start=1):
            batch = await worker.next()
            assert batch.attempt == attempt
            batch.nack()
            await leap(wait - 40.0)
            await stage.turn_around(subscription)
            assert not worker.untaken
            await leap(40.0)

    @promise
    async def test_the_handler_may_choose_the_wait(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic)
        await stage.turn_around(subscription)
        await stage.publish(topic, b"value")
        worker = stage.worker(subscription)
        (await worker.next()).nack(retry_after=0.0)
        (await worker.next()).nack(retry_after=25.0)
        await leap(15.0)
        await stage.turn_around(subscription)
        assert not worker.untaken
        await leap(10.0)
        assert (await worker.next()).attempt == 3

    @promise
    @needs("reads_ranges")
    async def test_a_record_whose_attempts_are_used_up_is_dead_lettered(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic, retry=retry(attempts=3))
        await stage.turn_around(subscription)
        (at,) = await stage.publish(topic, b"value")
        worker = stage.worker(subscription, name="w")
        for attempt in (1, 2, 3):
            batch = await worker.next()
            assert batch.attempt == attempt
            batch.nack(f"for the {attempt}. time")
            await stage.turn_around(subscription)
            await leap(5.0)
        await stage.commits(topic, at + 1)
        (letter,) = await stage.dead_letters(subscription)
        assert (letter.attempts, letter.reason, letter.worker) == (3, "for the 3. time", "w")

    @promise
    async def test_an_expired_record_comes_back_counted_and_flagged(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic, retry=retry(first=20.0))
        await stage.turn_around(subscription)
        await stage.publish(topic, b"value")
        worker = stage.worker(subscription, lease=40.0)
        await worker.next()
        await leap(10.0)
        await stage.turn_around(subscription)
        assert not subscription.counters.expired
        await leap(30.0)
        await until(lambda: subscription.counters.expired, "the lease expires")
        await leap(12.0)
        await stage.turn_around(subscription)
        assert not worker.untaken
        await leap(8.0)
        again = await worker.next()
        assert (again.attempt, again.is_doubtful) == (2, True)

    @promise
    async def test_a_lease_that_is_extended_does_not_expire(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic)
        await stage.turn_around(subscription)
        (at,) = await stage.publish(topic, b"value")
        worker = stage.worker(subscription, lease=10.0)
        batch = await worker.next()
        for _ in range(3):
            await leap(5.0)
            assert subscription.extend(batch.lease, 10.0).status is None
        batch.ack()
        await stage.commits(topic, at + 1)
        assert not subscription.counters.expired

    @promise
    async def test_a_lost_session_brings_its_records_back_at_once_the_first_time(self, stage: Stage) -> None:
        topic = await stage.topic()
        await stage.publish(topic, *numbered(4))
        subscription = await stage.subscribe(topic, batch=batches_of(4))
        dying, other = stage.worker(subscription), stage.worker(subscription)
        await dying.next()
        dying.die()
        again = await other.next()
        assert (again.values, again.attempt, again.is_doubtful) == (numbered(4), 2, True)

    @promise
    async def test_a_session_lost_with_the_same_records_brings_them_back_with_a_wait(self, stage: Stage) -> None:
        topic = await stage.topic()
        await stage.publish(topic, b"value")
        subscription = await stage.subscribe(topic, retry=retry(first=20.0))
        for _ in range(2):
            dying = stage.worker(subscription)
            await dying.next()
            dying.die()
        worker = stage.worker(subscription)
        await leap(12.0)
        await stage.turn_around(subscription)
        assert not worker.untaken
        await leap(8.0)
        assert (await worker.next()).attempt == 3

    @promise
    @needs("reads_ranges")
    async def test_a_record_whose_worker_died_twice_is_delivered_alone_then_dead_lettered(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(5))
        subscription = await stage.subscribe(topic, batch=batches_of(5))
        with_killer: list[Batch] = []

        def hire() -> None:
            def handler(batch: Batch) -> None:
                if b"3" in batch.values:
                    with_killer.append(batch)
                    worker.die()
                    hire()
                else:
                    batch.ack()

            worker = stage.worker(subscription, handler)

        await stage.has_all(subscription, topic, 5)
        hire()
        async with hurry():
            await stage.commits(topic, at[4] + 1)
        assert [len(batch.records) for batch in with_killer] == [5, 5, 1]
        assert [batch.attempts[-1] for batch in with_killer] == [1, 2, 3]
        (letter,) = await stage.dead_letters(subscription)
        assert (letter.record.value, letter.reason) == (b"3", "WORKER_DIED")

    @promise
    @needs("reads_ranges")
    async def test_records_that_a_dead_process_had_beside_the_killer_are_not_blamed(self, stage: Stage) -> None:
        """A process has many batches at a time, and nobody sees which of them killed it."""
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(40))
        subscription = await stage.subscribe(topic)
        with_killer: list[int] = []

        def hire() -> None:
            def handler(batch: Batch) -> None:
                # Later, so that there are others in hand.
                asyncio.get_running_loop().call_later(0.05, work, batch)

            def work(batch: Batch) -> None:
                if worker.session.ended:
                    return
                if batch.values == [b"7"]:
                    with_killer.append(worker.session.unsettled)
                    worker.die()
                    hire()
                else:
                    batch.ack()

            worker = stage.worker(subscription, handler, credit=6)

        await stage.has_all(subscription, topic, 40)
        hire()
        async with hurry(0.02):
            await stage.commits(topic, at[39] + 1)
        (letter,) = await stage.dead_letters(subscription)
        assert (letter.record.value, letter.reason) == (b"7", "WORKER_DIED")
        assert min(with_killer[:2]) > 1
        assert with_killer[-1] == 1

    @promise
    async def test_workers_that_all_die_are_not_the_fault_of_a_record(self, stage: Stage) -> None:
        topic = await stage.topic()
        await stage.publish(topic, *numbered(3))
        subscription = await stage.subscribe(topic)
        async with hurry(5.0):
            for _ in range(20):
                worker = stage.worker(subscription)
                await worker.next()
                worker.die()
        assert not subscription.counters.dead_lettered

    @promise
    async def test_a_release_never_counts(self, stage: Stage) -> None:
        topic = await stage.topic()
        await stage.publish(topic, *numbered(3))
        subscription = await stage.subscribe(topic, batch=batches_of(3))
        worker = stage.worker(subscription)
        for _ in range(20):
            batch = await worker.next()
            assert (batch.values, batch.attempt, batch.is_doubtful) == (numbered(3), 1, stage.flags_all)
            batch.release()

    @promise
    async def test_an_orderly_end_of_the_session_never_counts(self, stage: Stage) -> None:
        topic = await stage.topic()
        await stage.publish(topic, *numbered(3))
        subscription = await stage.subscribe(topic, batch=batches_of(3))
        for _ in range(5):
            worker = stage.worker(subscription)
            batch = await worker.next()
            assert (batch.values, batch.attempt, batch.is_doubtful) == (numbered(3), 1, stage.flags_all)
            worker.leave()

    @promise
    async def test_overload_never_counts(self, stage: Stage) -> None:
        topic = await stage.topic()
        await stage.publish(topic, *numbered(3))
        subscription = await stage.subscribe(topic, batch=batches_of(3), parking=ParkingSettings(enabled=False))
        await stage.has_all(subscription, topic, 3)
        worker = stage.worker(subscription)
        async with hurry():
            for _ in range(10):
                batch = await worker.next()
                assert (batch.values, batch.attempt, batch.is_doubtful) == (numbered(3), 1, stage.flags_all)
                batch.settle(Outcome.OVERLOADED)

    @promise
    @needs("tells_first_deliveries")
    async def test_what_a_new_group_gets_was_never_processed(self, stage: Stage) -> None:
        topic = await stage.topic(lanes=2)
        await stage.publish(topic, *numbered(3), lane=0)
        subscription = await stage.subscribe(topic)
        await stage.publish(topic, *numbered(3), lane=1)
        batches = await stage.worker(subscription, credit=6).take(6)
        assert not [batch for batch in batches if batch.delivery.redeliveries]

    @promise
    @needs("tells_first_deliveries")
    async def test_after_a_restart_what_may_have_been_delivered_is_flagged_and_nothing_else(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(30))
        subscription = await stage.subscribe(topic, window=WindowSettings(records=10))
        worker = stage.worker(subscription, credit=100)
        for batch in await worker.take(5):
            batch.ack()
        await stage.commits(topic, at[4] + 1)
        subscription = await stage.crash(subscription)
        worker = stage.worker(subscription, Batch.ack)
        await stage.commits(topic, at[29] + 1)
        flagged = [batch for batch in worker.batches if batch.is_doubtful]
        # Within one window of the start: what an earlier life had delivered lies there.
        assert values(flagged) == numbered(30)[5:15]
        assert {batch.attempt for batch in worker.batches} == {1}

    @promise
    async def test_after_a_drain_what_was_not_settled_does_not_count_as_an_attempt(self, stage: Stage) -> None:
        topic = await stage.topic()
        await stage.publish(topic, *numbered(3))
        subscription = await stage.subscribe(topic)
        await stage.worker(subscription, credit=3).take(3)
        subscription = await stage.restart(subscription)
        batches = await stage.worker(subscription, credit=3).take(3)
        assert [(batch.attempt, batch.is_doubtful) for batch in batches] == [(1, True)] * 3

"""Promise 2: a nack replays."""

import asyncio

from sidecar.model.records import ClosedBy, ExtendStatus, Outcome, Part, Settlement, SettleStatus
from sidecar.settings import ParkingSettings, WindowSettings
from tests.promises.adjustable_time import advance, fast_forward, until
from tests.promises.environment import Environment, batches_of, needs, numbered, promise, retry, values
from tests.promises.worker import Batch


class NackReplays:
    @promise
    async def test_a_nacked_record_comes_back_with_attempt_two_after_its_wait(self, env: Environment) -> None:
        topic, subscription = await env.consuming(retry=retry(first=20.0))
        await env.publish(topic, b"value")
        worker = env.worker(subscription)
        (await worker.next()).nack("why not")
        await advance(12.0)
        await env.round_trip(subscription)
        assert not worker.unread
        await advance(8.0)
        again = await worker.next()
        assert (again.values, again.attempt, again.possibly_processed) == ([b"value"], 2, env.flags_first_deliveries)
        assert again.delivery.closed_by is ClosedBy.RETRY

    @promise
    async def test_a_nack_that_does_not_know_the_outcome_flags_its_records_and_no_others(
        self, env: Environment
    ) -> None:
        topic, subscription = await env.consuming(batch=batches_of(3))
        await env.publish(topic, *numbered(3))
        await env.wait_fetched(subscription, topic, 3)
        worker = env.worker(subscription, credit=3)
        batch = await worker.next()
        parts = (Part(0, 1, Outcome.NACK, possibly_processed=True), Part(1, 1, Outcome.NACK))
        subscription.settle([Settlement(batch.lease, Outcome.NACK, parts=parts, possibly_processed=True)])
        flags: dict[bytes, bool] = {}
        async with fast_forward():
            while len(flags) < 3:
                again = await worker.next()
                flags |= zip(again.values, again.possibly_processed_flags, strict=True)
        assert flags == {b"0": True, b"1": env.flags_first_deliveries, b"2": True}

    @promise
    async def test_a_batch_that_its_worker_died_with_comes_back_though_the_session_goes_on(
        self, env: Environment
    ) -> None:
        topic, subscription = await env.consuming()
        await env.publish(topic, *numbered(2))
        worker = env.worker(subscription, credit=2)
        died, other = await worker.take(2)
        subscription.abandon(died.lease, alone=False)
        again = await worker.next()
        assert (again.values, again.attempt, again.possibly_processed) == (died.values, 2, True)
        # What has ended already is not given up once more.
        subscription.abandon(died.lease, alone=False)
        again.ack()
        assert other.ack().status is SettleStatus.SETTLED
        assert subscription.counters.abandoned == 1

    @promise
    async def test_waits_grow_up_to_the_longest(self, env: Environment) -> None:
        topic = await env.topic()
        waits = retry(attempts=9, first=80.0, factor=2.0, max=200.0)
        subscription = await env.subscribe(topic, retry=waits, parking=ParkingSettings(enabled=False))
        await env.round_trip(subscription)
        await env.publish(topic, b"value")
        worker = env.worker(subscription)
        for attempt, wait in enumerate((80.0, 160.0, 200.0, 200.0), start=1):
            batch = await worker.next()
            assert batch.attempt == attempt
            batch.nack()
            await advance(wait - 40.0)
            await env.round_trip(subscription)
            assert not worker.unread
            await advance(40.0)

    @promise
    async def test_the_handler_may_choose_the_wait(self, env: Environment) -> None:
        topic, subscription = await env.consuming()
        await env.publish(topic, b"value")
        worker = env.worker(subscription)
        (await worker.next()).nack(retry_after=0.0)
        (await worker.next()).nack(retry_after=25.0)
        await advance(15.0)
        await env.round_trip(subscription)
        assert not worker.unread
        await advance(10.0)
        assert (await worker.next()).attempt == 3

    @promise
    @needs("lists_records")
    async def test_a_record_whose_attempts_are_used_up_is_dead_lettered(self, env: Environment) -> None:
        topic, subscription = await env.consuming(retry=retry(attempts=3))
        (position,) = await env.publish(topic, b"value")
        worker = env.worker(subscription, name="w")
        for attempt in (1, 2, 3):
            batch = await worker.next()
            assert batch.attempt == attempt
            batch.nack(f"for the {attempt}. time")
            await env.round_trip(subscription)
            await advance(5.0)
        await env.wait_committed(topic, position + 1)
        (letter,) = await env.dead_letters(subscription)
        assert (letter.attempts, letter.reason, letter.worker) == (3, "for the 3. time", "w")

    @promise
    async def test_an_expired_record_comes_back_counted_and_flagged(self, env: Environment) -> None:
        topic, subscription = await env.consuming(retry=retry(first=20.0))
        await env.publish(topic, b"value")
        worker = env.worker(subscription, lease=40.0)
        await worker.next()
        await advance(10.0)
        await env.round_trip(subscription)
        assert not subscription.counters.expired
        await advance(30.0)
        await until(lambda: subscription.counters.expired, "the lease expires")
        await advance(12.0)
        await env.round_trip(subscription)
        assert not worker.unread
        await advance(8.0)
        again = await worker.next()
        assert (again.attempt, again.possibly_processed) == (2, True)

    @promise
    async def test_a_lease_that_is_extended_does_not_expire(self, env: Environment) -> None:
        topic, subscription = await env.consuming()
        (position,) = await env.publish(topic, b"value")
        worker = env.worker(subscription, lease=10.0)
        batch = await worker.next()
        for _ in range(3):
            await advance(5.0)
            assert subscription.extend(batch.lease, 10.0).status is ExtendStatus.EXTENDED
        batch.ack()
        await env.wait_committed(topic, position + 1)
        assert not subscription.counters.expired

    @promise
    async def test_a_lost_session_brings_its_records_back_at_once_the_first_time(self, env: Environment) -> None:
        _, _, subscription = await env.backlog(*numbered(4), batch=batches_of(4))
        dying, other = env.worker(subscription), env.worker(subscription)
        await dying.next()
        dying.die()
        again = await other.next()
        assert (again.values, again.attempt, again.possibly_processed) == (numbered(4), 2, True)

    @promise
    async def test_a_session_lost_with_the_same_records_brings_them_back_with_a_wait(self, env: Environment) -> None:
        _, _, subscription = await env.backlog(b"value", retry=retry(first=20.0))
        await env.worker_dies(subscription, times=2)
        worker = env.worker(subscription)
        await advance(12.0)
        await env.round_trip(subscription)
        assert not worker.unread
        await advance(8.0)
        assert (await worker.next()).attempt == 3

    @promise
    @needs("lists_records")
    async def test_a_record_whose_worker_died_twice_is_delivered_alone_then_dead_lettered(
        self, env: Environment
    ) -> None:
        topic, positions, subscription = await env.backlog(*numbered(5), batch=batches_of(5))
        with_killer: list[Batch] = []

        def hire() -> None:
            def handler(batch: Batch) -> None:
                if b"3" in batch.values:
                    with_killer.append(batch)
                    worker.die()
                    hire()
                else:
                    batch.ack()

            worker = env.worker(subscription, handler)

        await env.wait_fetched(subscription, topic, 5)
        hire()
        async with fast_forward():
            await env.wait_committed(topic, positions[4] + 1)
        assert [len(batch.records) for batch in with_killer] == [5, 5, 1]
        assert [batch.attempts[-1] for batch in with_killer] == [1, 2, 3]
        (letter,) = await env.dead_letters(subscription)
        assert (letter.record.value, letter.reason) == (b"3", "WORKER_DIED")

    @promise
    @needs("lists_records")
    async def test_records_that_a_dead_process_had_beside_the_killer_are_not_blamed(self, env: Environment) -> None:
        """A process holds many batches, and nobody can tell which of them killed it."""
        topic, positions, subscription = await env.backlog(*numbered(40))
        with_killer: list[int] = []

        def hire() -> None:
            def handler(batch: Batch) -> None:
                # Later, so that the worker holds others.
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

            worker = env.worker(subscription, handler, credit=6)

        await env.wait_fetched(subscription, topic, 40)
        hire()
        async with fast_forward(0.02):
            await env.wait_committed(topic, positions[39] + 1)
        (letter,) = await env.dead_letters(subscription)
        assert (letter.record.value, letter.reason) == (b"7", "WORKER_DIED")
        assert min(with_killer[:2]) > 1
        assert with_killer[-1] == 1

    @promise
    async def test_workers_that_all_die_are_not_the_fault_of_a_record(self, env: Environment) -> None:
        _, _, subscription = await env.backlog(*numbered(3))
        async with fast_forward(5.0):
            await env.worker_dies(subscription, times=20)
        assert not subscription.counters.dead_lettered

    @promise
    async def test_a_release_never_counts(self, env: Environment) -> None:
        _, _, subscription = await env.backlog(*numbered(3), batch=batches_of(3))
        worker = env.worker(subscription)
        for _ in range(20):
            batch = await worker.next()
            assert (batch.values, batch.attempt, batch.possibly_processed) == (
                numbered(3),
                1,
                env.flags_first_deliveries,
            )
            batch.release()

    @promise
    async def test_an_orderly_end_of_the_session_never_counts(self, env: Environment) -> None:
        _, _, subscription = await env.backlog(*numbered(3), batch=batches_of(3))
        for _ in range(5):
            worker = env.worker(subscription)
            batch = await worker.next()
            assert (batch.values, batch.attempt, batch.possibly_processed) == (
                numbered(3),
                1,
                env.flags_first_deliveries,
            )
            worker.leave()

    @promise
    async def test_overload_never_counts(self, env: Environment) -> None:
        topic, _, subscription = await env.backlog(
            *numbered(3), batch=batches_of(3), parking=ParkingSettings(enabled=False)
        )
        await env.wait_fetched(subscription, topic, 3)
        worker = env.worker(subscription)
        async with fast_forward():
            for _ in range(10):
                batch = await worker.next()
                assert (batch.values, batch.attempt, batch.possibly_processed) == (
                    numbered(3),
                    1,
                    env.flags_first_deliveries,
                )
                batch.settle(Outcome.OVERLOADED)

    @promise
    @needs("tells_first_deliveries")
    async def test_what_a_new_group_gets_was_never_processed(self, env: Environment) -> None:
        topic = await env.topic(lanes=2)
        await env.publish(topic, *numbered(3), lane=0)
        subscription = await env.subscribe(topic)
        await env.publish(topic, *numbered(3), lane=1)
        batches = await env.worker(subscription, credit=6).take(6)
        assert not [batch for batch in batches if batch.delivery.redeliveries]

    @promise
    @needs("tells_first_deliveries")
    async def test_after_a_restart_what_may_have_been_delivered_is_flagged_and_nothing_else(
        self, env: Environment
    ) -> None:
        topic, positions, subscription = await env.backlog(*numbered(30), window=WindowSettings(records=10))
        worker = env.worker(subscription, credit=100)
        for batch in await worker.take(5):
            batch.ack()
        await env.wait_committed(topic, positions[4] + 1)
        subscription = await env.crash(subscription)
        worker = env.worker(subscription, Batch.ack)
        await env.wait_committed(topic, positions[29] + 1)
        flagged = [batch for batch in worker.batches if batch.possibly_processed]
        if env.broker.traits.positions_are_stable:
            # What the earlier process may have delivered lies within one window of the start.
            assert values(flagged) == numbered(30)[5:15]
        else:
            # The broker tells what the earlier process had, also what it had not delivered yet.
            assert values(flagged)[:10] == numbered(30)[5:15]
        assert {batch.attempt for batch in worker.batches} == {1}

    @promise
    async def test_after_a_drain_what_was_not_settled_does_not_count_as_an_attempt(self, env: Environment) -> None:
        _, _, subscription = await env.backlog(*numbered(3))
        await env.worker(subscription, credit=3).take(3)
        subscription = await env.restart(subscription)
        batches = await env.worker(subscription, credit=3).take(3)
        assert [(batch.attempt, batch.possibly_processed) for batch in batches] == [(1, True)] * 3

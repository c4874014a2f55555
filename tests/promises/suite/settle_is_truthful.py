"""Promise 3: a settle is answered truthfully."""

import os

from sidecar.brokers.base import SeekTo
from sidecar.model.errors import Unavailable
from sidecar.model.records import Lane, Outcome, Part, Range, Settlement, SettleStatus
from tests.promises.adjustable_time import advance, fast_forward, until
from tests.promises.environment import Environment, batches_of, needs, numbered, promise


class SettleIsTruthful:
    @promise
    async def test_a_settle_that_counts_is_committed(self, env: Environment) -> None:
        topic, (position,), subscription = await env.backlog(b"value")
        batch = await env.worker(subscription).next()
        assert batch.ack().status is SettleStatus.SETTLED
        await env.wait_committed(topic, position + 1)

    @promise
    async def test_a_settle_that_a_crash_kept_from_being_committed_is_replayed_with_a_flag(
        self, env: Environment
    ) -> None:
        _, _, subscription = await env.backlog(b"value")
        env.broker.commit_fault = Unavailable("no answer")
        batch = await env.worker(subscription).next()
        assert batch.ack().status is SettleStatus.SETTLED
        await until(lambda: env.broker.failed_commits)
        subscription = await env.crash(subscription)
        again = await env.worker(subscription).next()
        assert (again.values, again.possibly_processed) == ([b"value"], True)

    @promise
    async def test_settling_twice_is_harmless(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(*numbered(4), batch=batches_of(2))
        first, second = await env.worker(subscription, credit=2).take(2)
        assert [first.ack().status for _ in range(3)] == [SettleStatus.SETTLED] * 3
        await env.wait_committed(topic, positions[1] + 1)
        assert first.ack().status is SettleStatus.SETTLED
        assert subscription.counters.acked == 2
        second.ack()
        await env.wait_committed(topic, positions[3] + 1)

    @promise
    async def test_a_nack_said_twice_brings_the_record_back_once(self, env: Environment) -> None:
        topic, subscription = await env.consuming()
        await env.publish(topic, b"value")
        worker = env.worker(subscription, credit=5)
        batch = await worker.next()
        assert [batch.nack(retry_after=0.0).status for _ in range(2)] == [SettleStatus.SETTLED] * 2
        assert (await worker.next()).attempt == 2
        await env.round_trip(subscription)
        assert not worker.unread

    @promise
    async def test_changing_ones_mind_is_stale(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(*numbered(3), batch=batches_of(3))
        batch = await env.worker(subscription).next()
        batch.ack()
        result = batch.settle(Outcome.ACK, [Part(1, 1, Outcome.REJECT)])
        assert (result.status, result.stale) == (SettleStatus.STALE, (Range(1, 1),))
        await env.wait_committed(topic, positions[2] + 1)
        assert not subscription.counters.dead_lettered

    @promise
    async def test_a_partial_settle_leaves_the_rest_leased(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(*numbered(4), batch=batches_of(4))
        worker = env.worker(subscription, credit=5)
        batch = await worker.next()
        assert batch.settle(None, [Part(0, 2, Outcome.ACK)]).status is SettleStatus.SETTLED
        await env.wait_committed(topic, positions[1] + 1)
        await env.round_trip(subscription)
        assert not worker.unread
        assert batch.settle(None, [Part(0, 1, Outcome.ACK), Part(3, 1, Outcome.ACK)]).status is SettleStatus.SETTLED
        assert batch.ack().status is SettleStatus.SETTLED
        await env.wait_committed(topic, positions[3] + 1)

    @promise
    async def test_an_ack_of_a_lease_that_expired_and_was_not_given_out_again_is_accepted(
        self, env: Environment
    ) -> None:
        topic, subscription = await env.consuming()
        (position,) = await env.publish(topic, b"value")
        worker = env.worker(subscription, lease=10.0)
        batch = await worker.next()
        worker.session.stop_deliveries()
        await advance(10.0)
        await until(lambda: subscription.counters.expired)
        assert batch.ack().status is SettleStatus.SETTLED
        await env.wait_committed(topic, position + 1)
        await advance(10.0)
        await env.round_trip(subscription)
        assert not subscription.counters.redelivered

    @promise
    async def test_an_ack_of_a_lease_that_expired_and_was_given_to_another_is_stale(self, env: Environment) -> None:
        topic, subscription = await env.consuming()
        (position,) = await env.publish(topic, b"value")
        late, other = env.worker(subscription, lease=10.0), env.worker(subscription)
        batch = await late.next()
        late.session.stop_deliveries()
        await advance(10.0)
        await until(lambda: subscription.counters.expired)
        await advance(2.0)
        again = await other.next()
        result = batch.ack()
        assert (result.status, result.stale) == (SettleStatus.STALE, (Range(0, 1),))
        await env.round_trip(subscription)
        assert env.committed(topic) <= position
        assert again.ack().status is SettleStatus.SETTLED
        await env.wait_committed(topic, position + 1)

    @promise
    async def test_a_late_nack_is_counted_and_gets_the_same_answer_again(self, env: Environment) -> None:
        _, _, subscription = await env.backlog(b"value")
        late = env.worker(subscription, lease=10.0)
        batch = await late.next()
        late.session.stop_deliveries()
        await advance(10.0)
        await until(lambda: subscription.counters.expired)
        assert batch.nack().status is SettleStatus.SETTLED
        assert subscription.counters.nacked == 1
        other = env.worker(subscription)
        async with fast_forward():
            assert (await other.next()).attempt == 2, "it failed once: it expired"
        assert batch.nack().status is SettleStatus.SETTLED
        assert subscription.counters.nacked == 1

    @promise
    async def test_the_stale_ranges_of_a_late_ack_are_named_and_the_rest_counts(self, env: Environment) -> None:
        topic, subscription = await env.consuming(batch=batches_of(4))
        positions = await env.publish(topic, *numbered(4))
        late = env.worker(subscription, lease=10.0)
        batch = await late.next()
        late.session.stop_deliveries()
        await advance(10.0)
        await until(lambda: subscription.counters.expired)
        # It comes back in halves, and the worker has credit for one.
        half = await env.worker(subscription).next()
        assert half.values == [b"0", b"1"]
        result = batch.ack()
        assert (result.status, result.stale) == (SettleStatus.STALE, (Range(0, 2),))
        assert half.ack().status is SettleStatus.SETTLED
        await env.wait_committed(topic, positions[3] + 1)
        assert subscription.counters.redelivered == 2

    @promise
    async def test_an_ack_after_the_session_was_lost_is_accepted_while_nobody_has_the_records(
        self, env: Environment
    ) -> None:
        topic, (position,), subscription = await env.backlog(b"value")
        worker = env.worker(subscription)
        batch = await worker.next()
        worker.die()
        assert batch.ack().status is SettleStatus.SETTLED
        await env.wait_committed(topic, position + 1)

    @promise
    async def test_a_lease_of_an_earlier_life_is_unknown(self, env: Environment) -> None:
        topic, (position,), subscription = await env.backlog(b"value")
        batch = await env.worker(subscription).next()
        subscription = await env.crash(subscription)
        again = await env.worker(subscription).next()
        (result,) = subscription.settle([Settlement(batch.lease, Outcome.ACK)])
        assert (result.lease, result.status) == (batch.lease, SettleStatus.UNKNOWN)
        await env.round_trip(subscription)
        assert env.committed(topic) <= position
        assert again.ack().status is SettleStatus.SETTLED

    @promise
    async def test_a_lease_that_never_was_is_unknown(self, env: Environment) -> None:
        subscription = await env.subscribe(await env.topic())
        leases = [b"", b"garbage", os.urandom(16)]
        results = subscription.settle([Settlement(lease, Outcome.ACK) for lease in leases])
        assert [result.status for result in results] == [SettleStatus.UNKNOWN] * 3

    @promise
    async def test_whoever_shows_a_lease_may_settle_it(self, env: Environment) -> None:
        topic, (position,), subscription = await env.backlog(b"value")
        worker = env.worker(subscription)
        batch = await worker.next()
        assert batch.ack().status is SettleStatus.SETTLED
        assert worker.session.unsettled == 0
        await env.wait_committed(topic, position + 1)

    @promise
    async def test_a_settlement_that_breaks_a_rule_is_refused_alone_and_settles_nothing(self, env: Environment) -> None:
        _, _, subscription = await env.backlog(*numbered(4), batch=batches_of(2))
        first, second = await env.worker(subscription, credit=2).take(2)
        for parts in (
            [Part(2, 1, Outcome.ACK)],
            [Part(0, 3, Outcome.ACK)],
            [Part(1, 1, Outcome.ACK), Part(0, 1, Outcome.ACK)],
            [Part(0, 0, Outcome.ACK)],
        ):
            wrong = Settlement(second.lease, None, parts=tuple(parts))
            results = subscription.settle([wrong, Settlement(first.lease, Outcome.ACK)])
            assert [result.status for result in results] == [SettleStatus.REFUSED, SettleStatus.SETTLED]
        assert subscription.counters.acked == 2
        assert subscription.status().in_flight_records == 2
        assert second.ack().status is SettleStatus.SETTLED

    @promise
    @needs("seeks")
    async def test_a_settle_of_a_lane_that_moved_is_stale_for_that_lane_only(self, env: Environment) -> None:
        topic = await env.topic(lanes=2)
        for lane in range(2):
            positions = await env.publish(topic, *numbered(2), lane=lane)
        subscription = await env.subscribe(topic, batch=batches_of(4))
        batch = await env.worker(subscription).next()
        moved = [index for index, (lane, _) in enumerate(batch.record_ids) if lane.number == 0]
        await subscription.seek({Lane(topic, 0): SeekTo.START})
        result = batch.ack()
        assert (result.status, result.stale) == (SettleStatus.STALE, (Range(moved[0], 2),))
        await env.wait_committed(topic, positions[1] + 1, lane=1)

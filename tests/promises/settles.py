"""Promise 3: a settle is answered truthfully."""

import os

import pytest

from sidecar.brokers.base import SeekTo
from sidecar.model.errors import InvalidRequest, Unavailable
from sidecar.model.records import Lane, Outcome, Part, Range, Settlement, SettleStatus
from tests.promises.stage import Stage, batches_of, needs, numbered, promise
from tests.promises.timing import leap, until


class ASettleIsAnsweredTruthfully:
    @promise
    async def test_a_settle_that_counts_is_committed(self, stage: Stage) -> None:
        topic = await stage.topic()
        (at,) = await stage.publish(topic, b"value")
        subscription = await stage.subscribe(topic)
        batch = await stage.worker(subscription).next()
        assert batch.ack().status is SettleStatus.SETTLED
        await stage.commits(topic, at + 1)

    @promise
    async def test_a_settle_that_a_crash_kept_from_being_committed_is_replayed_with_a_flag(self, stage: Stage) -> None:
        topic = await stage.topic()
        await stage.publish(topic, b"value")
        subscription = await stage.subscribe(topic)
        stage.broker.commit_fault = Unavailable("no answer")
        batch = await stage.worker(subscription).next()
        assert batch.ack().status is SettleStatus.SETTLED
        await until(lambda: stage.broker.failed_commits)
        subscription = await stage.crash(subscription)
        again = await stage.worker(subscription).next()
        assert (again.values, again.is_doubtful) == ([b"value"], True)

    @promise
    async def test_settling_twice_is_harmless(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(4))
        subscription = await stage.subscribe(topic, batch=batches_of(2))
        first, second = await stage.worker(subscription, credit=2).take(2)
        assert [first.ack().status for _ in range(3)] == [SettleStatus.SETTLED] * 3
        await stage.commits(topic, at[1] + 1)
        assert first.ack().status is SettleStatus.SETTLED
        assert subscription.counters.acked == 2
        second.ack()
        await stage.commits(topic, at[3] + 1)

    @promise
    async def test_a_nack_said_twice_brings_the_record_back_once(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic)
        await stage.turn_around(subscription)
        await stage.publish(topic, b"value")
        worker = stage.worker(subscription, credit=5)
        batch = await worker.next()
        assert [batch.nack(retry_after=0.0).status for _ in range(2)] == [SettleStatus.SETTLED] * 2
        assert (await worker.next()).attempt == 2
        await stage.turn_around(subscription)
        assert not worker.untaken

    @promise
    async def test_changing_ones_mind_is_stale(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(3))
        subscription = await stage.subscribe(topic, batch=batches_of(3))
        batch = await stage.worker(subscription).next()
        batch.ack()
        result = batch.settle(Outcome.ACK, [Part(1, 1, Outcome.REJECT)])
        assert (result.status, result.stale) == (SettleStatus.STALE, (Range(1, 1),))
        await stage.commits(topic, at[2] + 1)
        assert not subscription.counters.dead_lettered

    @promise
    async def test_a_partial_settle_leaves_the_rest_leased(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(4))
        subscription = await stage.subscribe(topic, batch=batches_of(4))
        worker = stage.worker(subscription, credit=5)
        batch = await worker.next()
        assert batch.settle(None, [Part(0, 2, Outcome.ACK)]).status is SettleStatus.SETTLED
        await stage.commits(topic, at[1] + 1)
        await stage.turn_around(subscription)
        assert not worker.untaken
        assert batch.settle(None, [Part(0, 1, Outcome.ACK), Part(3, 1, Outcome.ACK)]).status is SettleStatus.SETTLED
        assert batch.ack().status is SettleStatus.SETTLED
        await stage.commits(topic, at[3] + 1)

    @promise
    async def test_an_ack_of_a_lease_that_expired_and_was_not_given_out_again_is_accepted(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic)
        await stage.turn_around(subscription)
        (at,) = await stage.publish(topic, b"value")
        worker = stage.worker(subscription, lease=10.0)
        batch = await worker.next()
        worker.session.stop_deliveries()
        await leap(10.0)
        await until(lambda: subscription.counters.expired)
        assert batch.ack().status is SettleStatus.SETTLED
        await stage.commits(topic, at + 1)
        await leap(10.0)
        await stage.turn_around(subscription)
        assert not subscription.counters.redelivered

    @promise
    async def test_an_ack_of_a_lease_that_expired_and_was_given_to_another_is_stale(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic)
        await stage.turn_around(subscription)
        (at,) = await stage.publish(topic, b"value")
        late, other = stage.worker(subscription, lease=10.0), stage.worker(subscription)
        batch = await late.next()
        late.session.stop_deliveries()
        await leap(10.0)
        await until(lambda: subscription.counters.expired)
        await leap(2.0)
        again = await other.next()
        result = batch.ack()
        assert (result.status, result.stale) == (SettleStatus.STALE, (Range(0, 1),))
        await stage.turn_around(subscription)
        assert stage.committed(topic) <= at
        assert again.ack().status is SettleStatus.SETTLED
        await stage.commits(topic, at + 1)

    @promise
    async def test_the_stale_ranges_of_a_late_ack_are_named_and_the_rest_counts(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic, batch=batches_of(4))
        await stage.turn_around(subscription)
        at = await stage.publish(topic, *numbered(4))
        late = stage.worker(subscription, lease=10.0)
        batch = await late.next()
        late.session.stop_deliveries()
        await leap(10.0)
        await until(lambda: subscription.counters.expired)
        # It comes back in halves, and there is room for one of them.
        half = await stage.worker(subscription).next()
        assert half.values == [b"0", b"1"]
        result = batch.ack()
        assert (result.status, result.stale) == (SettleStatus.STALE, (Range(0, 2),))
        assert half.ack().status is SettleStatus.SETTLED
        await stage.commits(topic, at[3] + 1)
        assert subscription.counters.redelivered == 2

    @promise
    async def test_an_ack_after_the_session_was_lost_is_accepted_while_nobody_has_the_records(
        self, stage: Stage
    ) -> None:
        topic = await stage.topic()
        (at,) = await stage.publish(topic, b"value")
        subscription = await stage.subscribe(topic)
        worker = stage.worker(subscription)
        batch = await worker.next()
        worker.die()
        assert batch.ack().status is SettleStatus.SETTLED
        await stage.commits(topic, at + 1)

    @promise
    async def test_a_lease_of_an_earlier_life_is_unknown(self, stage: Stage) -> None:
        topic = await stage.topic()
        (at,) = await stage.publish(topic, b"value")
        subscription = await stage.subscribe(topic)
        batch = await stage.worker(subscription).next()
        subscription = await stage.crash(subscription)
        again = await stage.worker(subscription).next()
        (result,) = subscription.settle([Settlement(batch.lease, Outcome.ACK)])
        assert (result.lease, result.status) == (batch.lease, SettleStatus.UNKNOWN)
        await stage.turn_around(subscription)
        assert stage.committed(topic) <= at
        assert again.ack().status is SettleStatus.SETTLED

    @promise
    async def test_a_lease_that_never_was_is_unknown(self, stage: Stage) -> None:
        subscription = await stage.subscribe(await stage.topic())
        leases = [b"", b"garbage", os.urandom(16)]
        results = subscription.settle([Settlement(lease, Outcome.ACK) for lease in leases])
        assert [result.status for result in results] == [SettleStatus.UNKNOWN] * 3

    @promise
    async def test_whoever_shows_a_lease_may_settle_it(self, stage: Stage) -> None:
        topic = await stage.topic()
        (at,) = await stage.publish(topic, b"value")
        subscription = await stage.subscribe(topic)
        worker = stage.worker(subscription)
        batch = await worker.next()
        assert batch.ack().status is SettleStatus.SETTLED
        assert worker.session.unsettled == 0
        await stage.commits(topic, at + 1)

    @promise
    async def test_a_request_that_breaks_a_rule_settles_nothing_at_all(self, stage: Stage) -> None:
        topic = await stage.topic()
        await stage.publish(topic, *numbered(4))
        subscription = await stage.subscribe(topic, batch=batches_of(2))
        first, second = await stage.worker(subscription, credit=2).take(2)
        for parts in (
            [Part(2, 1, Outcome.ACK)],
            [Part(0, 3, Outcome.ACK)],
            [Part(1, 1, Outcome.ACK), Part(0, 1, Outcome.ACK)],
            [Part(0, 0, Outcome.ACK)],
        ):
            wrong = Settlement(second.lease, None, parts=tuple(parts))
            with pytest.raises(InvalidRequest):
                subscription.settle([Settlement(first.lease, Outcome.ACK), wrong])
        assert not subscription.counters.acked
        assert subscription.status().in_flight_records == 4

    @promise
    @needs("seeks")
    async def test_a_settle_of_a_lane_that_moved_is_stale_for_that_lane_only(self, stage: Stage) -> None:
        topic = await stage.topic(lanes=2)
        for lane in range(2):
            at = await stage.publish(topic, *numbered(2), lane=lane)
        subscription = await stage.subscribe(topic, batch=batches_of(4))
        batch = await stage.worker(subscription).next()
        moved = [index for index, (lane, _) in enumerate(batch.spots) if lane.number == 0]
        await subscription.seek({Lane(topic, 0): SeekTo.START})
        result = batch.ack()
        assert (result.status, result.stale) == (SettleStatus.STALE, (Range(moved[0], 2),))
        await stage.commits(topic, at[1] + 1, lane=1)

"""Promise 8: rebalance is safe."""

import asyncio

from sidecar.brokers.base import AtPosition, SeekTo
from sidecar.model.records import Commit, Lane, NoticeKind, SettleStatus
from sidecar.subscription.subscription import Subscription
from tests.promises.adjustable_time import advance, fast_forward, until
from tests.promises.environment import Environment, batches_of, needs, numbered, promise, values
from tests.promises.worker import Batch


class ASeekEndsAnEpoch:
    @promise
    @needs("seeks")
    async def test_after_a_seek_commits_of_the_earlier_epoch_are_refused(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(*numbered(10))
        worker = env.worker(subscription, credit=10)
        before = await worker.take(10)
        await subscription.seek({Lane(topic, 0): AtPosition(positions[4])})
        assert {batch.ack().status for batch in before} == {SettleStatus.STALE}
        await env.round_trip(subscription)
        assert env.committed(topic) == positions[4]
        again = await worker.take(6)
        assert sorted(values(again)) == numbered(10)[4:]
        subscription = await env.crash(subscription)
        assert values(await env.worker(subscription, credit=10).take(6)) == numbered(10)[4:]

    @promise
    @needs("seeks")
    async def test_workers_are_told_which_leases_a_seek_took(self, env: Environment) -> None:
        topic = await env.topic(lanes=2)
        for lane in range(2):
            await env.publish(topic, b"value", lane=lane)
        subscription = await env.subscribe(topic)
        worker = env.worker(subscription, credit=2)
        taken = {batch.records[0].lane: batch for batch in await worker.take(2)}
        await subscription.seek({Lane(topic, 0): SeekTo.END})
        (notice,) = worker.notices_of(NoticeKind.REVOKED)
        assert notice.leases == (taken[0].lease,)
        assert taken[1].ack().status is SettleStatus.SETTLED

    @promise
    @needs("seeks")
    async def test_a_retry_of_the_earlier_epoch_does_not_come_after_a_seek(self, env: Environment) -> None:
        topic, subscription = await env.consuming()
        await env.publish(topic, *numbered(3))
        worker = env.worker(subscription, credit=3)
        for batch in await worker.take(3):
            batch.nack()
        await subscription.seek({Lane(topic, 0): SeekTo.END})
        await advance(10.0)
        await env.round_trip(subscription)
        assert not worker.unread


#: so many that each of two sidecars has some, whichever lanes of other topics they get
LANES = 16


class RebalanceIsSafe(ASeekEndsAnEpoch):
    @promise
    @needs("rebalances")
    async def test_a_revoked_lane_stops_at_once_and_the_kept_ones_go_on(self, env: Environment) -> None:
        topic = await env.topic(LANES)
        for lane in range(LANES):
            await env.publish(topic, *numbered(3, f"{lane}:"), lane=lane)
        subscription = await env.subscribe(topic)
        await until(lambda: subscription.counters.fetched == 3 * LANES, "every lane has its turn")
        worker = env.worker(subscription, credit=LANES)
        held = await worker.take(LANES)
        await _join(env, subscription)
        kept, moving = _kept_and_moving(env, subscription, topic)
        for batch in held:
            batch.ack()
        worker.handler = Batch.ack
        await until(lambda: len(worker.batches) == LANES + 2 * len(kept))
        await env.round_trip(subscription)
        assert not [batch for batch in worker.batches[LANES:] if batch.records[0].lane in moving]

    @promise
    @needs("rebalances")
    async def test_what_is_settled_within_the_grace_is_committed_and_what_is_not_comes_again(
        self, env: Environment
    ) -> None:
        topic = await env.topic(LANES)
        for lane in range(LANES):
            positions = await env.publish(topic, *numbered(3, f"{lane}:"), lane=lane)
        subscription = await env.subscribe(topic)
        held = await env.worker(subscription, credit=3 * LANES).take(3 * LANES)
        second = await _join(env, subscription)
        _, (moving, *_) = _kept_and_moving(env, subscription, topic)
        in_flight = [batch for batch in held if batch.records[0].lane == moving]
        assert [batch.ack().status for batch in in_flight[:2]] == [SettleStatus.SETTLED] * 2
        await env.wait_committed(topic, positions[1] + 1, moving)
        assert Lane(topic, moving) not in second.lanes()
        await advance(3.0)
        other = env.worker(second, credit=3 * LANES)
        await until(lambda: _seen(other.batches, Lane(topic, moving)), "what was not settled comes again")
        await env.round_trip(second)
        (again,) = (batch for batch in other.batches if batch.records[0].lane == moving)
        # Only what was not settled comes, flagged as possibly processed.
        assert (again.values, again.possibly_processed) == ([b"%d:2" % moving], True)
        assert in_flight[2].ack().status is SettleStatus.STALE
        assert again.ack().status is SettleStatus.SETTLED

    @promise
    @needs("rebalances")
    async def test_workers_are_told_which_leases_to_settle_while_their_lanes_move(self, env: Environment) -> None:
        topic = await env.topic(LANES)
        for lane in range(LANES):
            await env.publish(topic, b"value", lane=lane)
        subscription = await env.subscribe(topic)
        worker = env.worker(subscription, credit=LANES)
        held = await worker.take(LANES)
        await _join(env, subscription)
        _, moving = _kept_and_moving(env, subscription, topic)
        told = [notice for notice in worker.notices_of(NoticeKind.REVOKED) if notice.until]
        leases = {lease for notice in told for lease in notice.leases}
        assert leases == {batch.lease for batch in held if batch.records[0].lane in moving}
        assert {batch.ack().status for batch in held} == {SettleStatus.SETTLED}

    @promise
    @needs("rebalances")
    async def test_a_lane_is_committed_before_it_goes(self, env: Environment) -> None:
        topic = await env.topic(LANES)
        for lane in range(LANES):
            await env.publish(topic, *numbered(3, f"{lane}:"), lane=lane)
        # No commit falls due by time.
        subscription = await env.subscribe(topic, commit_every=3600.0)
        held = await env.worker(subscription, credit=3 * LANES).take(3 * LANES)
        second = await _join(env, subscription)
        _, moving = _kept_and_moving(env, subscription, topic)
        for batch in held:
            batch.ack()
        await until(lambda: {Lane(topic, lane) for lane in moving} <= set(second.lanes()))
        for lane in moving:
            await env.publish(topic, b"new", lane=lane)
        assert values(await env.worker(second, credit=LANES).take(len(moving))) == [b"new"] * len(moving)

    @promise
    @needs("rebalances")
    async def test_a_lane_goes_as_soon_as_nothing_of_it_is_in_flight(self, env: Environment) -> None:
        topic = await env.topic(LANES)
        for lane in range(LANES):
            await env.publish(topic, b"value", lane=lane)
        subscription = await env.subscribe(topic)
        held = await env.worker(subscription, credit=LANES).take(LANES)
        second = await _join(env, subscription)
        for batch in held:
            batch.ack()
        # The clock is not moved: the lane goes without waiting for the grace period.
        await until(lambda: [lane for lane in second.lanes() if lane.topic == topic])
        other = env.worker(second)
        await env.round_trip(subscription)
        assert not other.batches

    @promise
    @needs("rebalances")
    async def test_workers_are_told_which_leases_are_in_vain_when_the_grace_is_over(self, env: Environment) -> None:
        topic = await env.topic(LANES)
        for lane in range(LANES):
            await env.publish(topic, b"value", lane=lane)
        subscription = await env.subscribe(topic)
        worker = env.worker(subscription, credit=LANES)
        held = {batch.records[0].lane: batch for batch in await worker.take(LANES)}
        await _join(env, subscription)
        kept, moving = _kept_and_moving(env, subscription, topic)
        await advance(3.0)
        await until(lambda: len(worker.notices_of(NoticeKind.REVOKED)) == 2)
        begun, over = worker.notices_of(NoticeKind.REVOKED)
        assert {*begun.leases} == {*over.leases} == {held[lane].lease for lane in moving}
        assert begun.until > over.until == 0.0
        assert {held[lane].ack().status for lane in moving} == {SettleStatus.STALE}
        assert {held[lane].ack().status for lane in kept} == {SettleStatus.SETTLED}

    @promise
    @needs("rebalances")
    async def test_nothing_is_committed_for_a_lane_that_was_lost(self, env: Environment) -> None:
        topic = await env.topic(LANES)
        for lane in range(LANES):
            await env.publish(topic, *numbered(3), lane=lane)
        subscription = await env.subscribe(topic)
        worker = env.worker(subscription, credit=3 * LANES)
        held = await worker.take(3 * LANES)
        second = await _join(env, subscription)
        (lost, *_) = env.active_lanes(subscription, topic)
        before, *after = (batch for batch in held if batch.record_ids[0][0] == lost)
        other = env.worker(second, credit=100)
        async with env.losing_lanes(subscription):
            # The sidecar has not been told yet.
            assert before.ack().status is SettleStatus.SETTLED
            await until(lambda: len(_seen(other.batches, lost)) == 3)
        assert _seen(other.batches, lost) == numbered(3)
        await until(
            lambda: after[0].lease in {one for told in worker.notices_of(NoticeKind.REVOKED) for one in told.leases}
        )
        assert {batch.ack().status for batch in after} == {SettleStatus.STALE}
        await env.round_trip(second)
        assert env.committed(topic, lost.number) == 0

    @promise
    @needs("rebalances")
    async def test_a_late_commit_can_only_replay(self, env: Environment) -> None:
        """It reaches the broker after the lane has moved and its new owner has committed."""
        topic = await env.topic(LANES)
        ends = [(await env.publish(topic, *numbered(5), lane=lane))[-1] + 1 for lane in range(LANES)]
        subscription = await env.subscribe(topic)
        worker = env.worker(subscription, credit=5 * LANES)
        held = await worker.take(5 * LANES)
        source, late = env.source(subscription), asyncio.Event()
        commit = source.inner.commit

        async def commit_late(commits: dict[Lane, Commit]) -> None:
            await late.wait()
            await commit(commits)

        source.inner.commit = commit_late  # type: ignore[assignment, method-assign]
        for batch in held:
            if batch.records[0].position < ends[0] - 3:
                batch.ack()
        second = await _join(env, subscription)
        lost = env.active_lanes(subscription, topic)
        other = env.worker(second, Batch.ack)
        async with env.losing_lanes(subscription):
            await until(lambda: {batch.record_ids[0][0] for batch in other.batches} >= set(lost))
        # The sidecar may join again, and then its worker must work.
        worker.handler = Batch.ack
        async with fast_forward():
            late.set()
            await until(lambda: not env.audit.unsettled(topic))
        assert {value for lane in lost for value in _seen(other.batches, lane)} >= {b"3", b"4"}

    @promise
    @needs("rebalances")
    async def test_sidecars_that_come_and_go_under_load_lose_nothing(self, env: Environment) -> None:
        topic = await env.topic(LANES)
        first = await env.subscribe(topic, batch=batches_of(5))
        over = False

        async def load() -> None:
            """Keep a bounded backlog, however long it takes sidecars to join."""
            while not over:
                if len(env.audit.unsettled(topic)) < 200:
                    for lane in range(LANES):
                        await env.publish(topic, *numbered(5), lane=lane)
                await asyncio.sleep(0.001)

        def slowly(batch: Batch) -> None:
            asyncio.get_running_loop().call_later(0.5, batch.ack)

        env.worker(first, slowly, credit=3)
        async with fast_forward(0.2), asyncio.TaskGroup() as group:
            group.create_task(load())
            for number in range(3):
                await until(lambda: len(env.active_lanes(first, topic)) == LANES, "the first has all lanes again")
                second = await _join(env, first)
                env.worker(second, slowly, credit=3)
                await until(lambda: second.counters.acked > 20)  # noqa: B023 - waited for here
                if number < 2:
                    async with env.losing_lanes(second):
                        pass
                await second.drain(2.0)
                env.subscriptions.remove(second)
            over = True
        async with fast_forward(0.2):
            await until(lambda: not env.audit.unsettled(topic))


async def _join(env: Environment, first: Subscription) -> Subscription:
    """Another sidecar joins the group. Returns when the first one knows which lanes it loses."""
    topic = first.settings.topics[0]
    before = len(env.active_lanes(first, topic))
    second = await env.start(first.settings, await env.sibling(), with_lanes=False)
    await until(lambda: len(env.active_lanes(first, topic)) < before, "lanes are revoked")
    return second


def _kept_and_moving(env: Environment, subscription: Subscription, topic: str) -> tuple[list[int], list[int]]:
    """The lanes of the topic that stay with the sidecar, and those that go."""
    kept = sorted(lane.number for lane in env.active_lanes(subscription, topic))
    moving = sorted(set(range(LANES)) - set(kept))
    assert kept, "something stays"
    assert moving, "something goes"
    return kept, moving


def _seen(batches: list[Batch], lane: Lane) -> list[bytes]:
    return [value for batch in batches if batch.record_ids[0][0] == lane for value in batch.values]

"""Promise 8: rebalance is safe."""

import asyncio

from sidecar.brokers.base import AtPosition, SeekTo
from sidecar.core.state.lane import LanePhase
from sidecar.model.records import Commit, Lane, NoticeKind, SettleStatus
from sidecar.subscription.subscription import Subscription
from tests.promises.stage import Stage, batches_of, needs, numbered, promise, values
from tests.promises.timing import hurry, leap, until
from tests.promises.worker import Batch


class ASeekEndsAnEpoch:
    @promise
    @needs("seeks")
    async def test_after_a_seek_commits_of_the_earlier_epoch_are_refused(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(10))
        subscription = await stage.subscribe(topic)
        worker = stage.worker(subscription, credit=10)
        before = await worker.take(10)
        await subscription.seek({Lane(topic, 0): AtPosition(at[4])})
        assert {batch.ack().status for batch in before} == {SettleStatus.STALE}
        await stage.turn_around(subscription)
        assert stage.committed(topic) == at[4]
        again = await worker.take(6)
        assert sorted(values(again)) == numbered(10)[4:]
        subscription = await stage.crash(subscription)
        assert values(await stage.worker(subscription, credit=10).take(6)) == numbered(10)[4:]

    @promise
    @needs("seeks")
    async def test_workers_are_told_which_leases_a_seek_took(self, stage: Stage) -> None:
        topic = await stage.topic(lanes=2)
        for lane in range(2):
            await stage.publish(topic, b"value", lane=lane)
        subscription = await stage.subscribe(topic)
        worker = stage.worker(subscription, credit=2)
        taken = {batch.records[0].lane: batch for batch in await worker.take(2)}
        await subscription.seek({Lane(topic, 0): SeekTo.END})
        (notice,) = worker.told(NoticeKind.REVOKED)
        assert notice.leases == (taken[0].lease,)
        assert taken[1].ack().status is SettleStatus.SETTLED

    @promise
    @needs("seeks")
    async def test_a_retry_of_the_earlier_epoch_does_not_come_after_a_seek(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic)
        await stage.turn_around(subscription)
        await stage.publish(topic, *numbered(3))
        worker = stage.worker(subscription, credit=3)
        for batch in await worker.take(3):
            batch.nack()
        await subscription.seek({Lane(topic, 0): SeekTo.END})
        await leap(10.0)
        await stage.turn_around(subscription)
        assert not worker.untaken


#: So many that of two sidecars each has some, whichever lanes of other topics either of them gets besides.
LANES = 16


class RebalanceIsSafe(ASeekEndsAnEpoch):
    @promise
    @needs("rebalances")
    async def test_a_revoked_lane_stops_at_once_and_the_kept_ones_go_on(self, stage: Stage) -> None:
        topic = await stage.topic(LANES)
        for lane in range(LANES):
            await stage.publish(topic, *numbered(3, f"{lane}:"), lane=lane)
        subscription = await stage.subscribe(topic)
        await until(lambda: subscription.counters.fetched == 3 * LANES, "every lane has its turn")
        worker = stage.worker(subscription, credit=LANES)
        held = await worker.take(LANES)
        await _join(stage, subscription)
        kept, moving = _parted(subscription, topic)
        for batch in held:
            batch.ack()
        worker.handler = Batch.ack
        await until(lambda: len(worker.batches) == LANES + 2 * len(kept))
        await stage.turn_around(subscription)
        assert not [batch for batch in worker.batches[LANES:] if batch.records[0].lane in moving]

    @promise
    @needs("rebalances")
    async def test_what_is_settled_within_the_grace_is_committed_and_what_is_not_comes_again(
        self, stage: Stage
    ) -> None:
        topic = await stage.topic(LANES)
        for lane in range(LANES):
            at = await stage.publish(topic, *numbered(3, f"{lane}:"), lane=lane)
        subscription = await stage.subscribe(topic)
        held = await stage.worker(subscription, credit=3 * LANES).take(3 * LANES)
        second = await _join(stage, subscription)
        _, (moving, *_) = _parted(subscription, topic)
        in_flight = [batch for batch in held if batch.records[0].lane == moving]
        assert [batch.ack().status for batch in in_flight[:2]] == [SettleStatus.SETTLED] * 2
        await stage.commits(topic, at[1] + 1, moving)
        assert Lane(topic, moving) not in second.lanes()
        await leap(3.0)
        other = stage.worker(second, credit=3 * LANES)
        await until(lambda: _seen(other.batches, Lane(topic, moving)), "what was not settled comes again")
        await stage.turn_around(second)
        (again,) = (batch for batch in other.batches if batch.records[0].lane == moving)
        # Only what was not settled, and its new owner knows that it may have been processed.
        assert (again.values, again.is_doubtful) == ([b"%d:2" % moving], True)
        assert in_flight[2].ack().status is SettleStatus.STALE
        assert again.ack().status is SettleStatus.SETTLED

    @promise
    @needs("rebalances")
    async def test_a_lane_is_committed_before_it_goes(self, stage: Stage) -> None:
        topic = await stage.topic(LANES)
        for lane in range(LANES):
            await stage.publish(topic, *numbered(3, f"{lane}:"), lane=lane)
        # Nothing is committed of itself.
        subscription = await stage.subscribe(topic, commit_every=3600.0)
        held = await stage.worker(subscription, credit=3 * LANES).take(3 * LANES)
        second = await _join(stage, subscription)
        _, moving = _parted(subscription, topic)
        for batch in held:
            batch.ack()
        await until(lambda: {Lane(topic, lane) for lane in moving} <= set(second.lanes()))
        for lane in moving:
            await stage.publish(topic, b"new", lane=lane)
        assert values(await stage.worker(second, credit=LANES).take(len(moving))) == [b"new"] * len(moving)

    @promise
    @needs("rebalances")
    async def test_a_lane_goes_as_soon_as_nothing_of_it_is_in_flight(self, stage: Stage) -> None:
        topic = await stage.topic(LANES)
        for lane in range(LANES):
            await stage.publish(topic, b"value", lane=lane)
        subscription = await stage.subscribe(topic)
        held = await stage.worker(subscription, credit=LANES).take(LANES)
        second = await _join(stage, subscription)
        for batch in held:
            batch.ack()
        # No time passes but the little that it takes.
        await until(lambda: [lane for lane in second.lanes() if lane.topic == topic])
        other = stage.worker(second)
        await stage.turn_around(subscription)
        assert not other.batches

    @promise
    @needs("rebalances")
    async def test_workers_are_told_which_leases_are_in_vain_when_the_grace_is_over(self, stage: Stage) -> None:
        topic = await stage.topic(LANES)
        for lane in range(LANES):
            await stage.publish(topic, b"value", lane=lane)
        subscription = await stage.subscribe(topic)
        worker = stage.worker(subscription, credit=LANES)
        held = {batch.records[0].lane: batch for batch in await worker.take(LANES)}
        await _join(stage, subscription)
        kept, moving = _parted(subscription, topic)
        await leap(3.0)
        await until(lambda: worker.told(NoticeKind.REVOKED))
        (notice,) = worker.told(NoticeKind.REVOKED)
        assert {*notice.leases} == {held[lane].lease for lane in moving}
        assert {held[lane].ack().status for lane in moving} == {SettleStatus.STALE}
        assert {held[lane].ack().status for lane in kept} == {SettleStatus.SETTLED}

    @promise
    @needs("rebalances")
    async def test_nothing_is_committed_for_a_lane_that_was_lost(self, stage: Stage) -> None:
        topic = await stage.topic(LANES)
        for lane in range(LANES):
            await stage.publish(topic, *numbered(3), lane=lane)
        subscription = await stage.subscribe(topic)
        worker = stage.worker(subscription, credit=3 * LANES)
        held = await worker.take(3 * LANES)
        second = await _join(stage, subscription)
        (lost, *_) = _active(subscription, topic)
        before, *after = (batch for batch in held if batch.spots[0][0] == lost)
        other = stage.worker(second, credit=100)
        async with stage.losing(subscription):
            # The sidecar has not heard of it yet.
            assert before.ack().status is SettleStatus.SETTLED
            await until(lambda: len(_seen(other.batches, lost)) == 3)
        assert _seen(other.batches, lost) == numbered(3)
        await until(lambda: after[0].lease in {one for told in worker.told(NoticeKind.REVOKED) for one in told.leases})
        assert {batch.ack().status for batch in after} == {SettleStatus.STALE}
        await stage.turn_around(second)
        assert stage.committed(topic, lost.number) == 0

    @promise
    @needs("rebalances")
    async def test_a_late_commit_can_only_replay(self, stage: Stage) -> None:
        """It reaches the broker after the lane moved, and the new owner was there before it."""
        topic = await stage.topic(LANES)
        ends = [(await stage.publish(topic, *numbered(5), lane=lane))[-1] + 1 for lane in range(LANES)]
        subscription = await stage.subscribe(topic)
        worker = stage.worker(subscription, credit=5 * LANES)
        held = await worker.take(5 * LANES)
        source, late = stage.source(subscription), asyncio.Event()
        commit = source.inner.commit

        async def commit_late(commits: dict[Lane, Commit]) -> None:
            await late.wait()
            await commit(commits)

        source.inner.commit = commit_late  # type: ignore[assignment, method-assign]
        for batch in held:
            if batch.records[0].position < ends[0] - 3:
                batch.ack()
        second = await _join(stage, subscription)
        lost = _active(subscription, topic)
        other = stage.worker(second, Batch.ack)
        async with stage.losing(subscription):
            await until(lambda: {batch.spots[0][0] for batch in other.batches} >= set(lost))
        # It may be let in again, and then it works.
        worker.handler = Batch.ack
        async with hurry():
            late.set()
            await until(lambda: not stage.audit.unsettled(topic))
        assert {value for lane in lost for value in _seen(other.batches, lane)} >= {b"3", b"4"}

    @promise
    @needs("rebalances")
    async def test_sidecars_that_come_and_go_under_load_lose_nothing(self, stage: Stage) -> None:
        topic = await stage.topic(LANES)
        first = await stage.subscribe(topic, batch=batches_of(5))
        over = False

        async def load() -> None:
            """However long it takes sidecars to come, there is always something to do, and never too much."""
            while not over:
                if len(stage.audit.unsettled(topic)) < 200:
                    for lane in range(LANES):
                        await stage.publish(topic, *numbered(5), lane=lane)
                await asyncio.sleep(0.001)

        def slowly(batch: Batch) -> None:
            asyncio.get_running_loop().call_later(0.5, batch.ack)

        stage.worker(first, slowly, credit=3)
        async with hurry(0.2), asyncio.TaskGroup() as group:
            group.create_task(load())
            for number in range(3):
                await until(lambda: len(_active(first, topic)) == LANES, "the first has all lanes again")
                second = await _join(stage, first)
                stage.worker(second, slowly, credit=3)
                await until(lambda: second.counters.acked > 20)  # noqa: B023 - waited for here
                if number < 2:
                    async with stage.losing(second):
                        pass
                await second.drain(2.0)
                stage.subscriptions.remove(second)
            over = True
        async with hurry(0.2):
            await until(lambda: not stage.audit.unsettled(topic))


async def _join(stage: Stage, first: Subscription) -> Subscription:
    """Another sidecar joins the group; returns when the first one has heard which lanes it gives up."""
    topic = first.settings.topics[0]
    before = len(_active(first, topic))
    second = await stage.start(first.settings, await stage.sibling(), with_lanes=False)
    await until(lambda: len(_active(first, topic)) < before, "lanes are revoked")
    return second


def _parted(subscription: Subscription, topic: str) -> tuple[list[int], list[int]]:
    """Which lanes of the topic stay with the sidecar, and which go."""
    kept = sorted(lane.number for lane in _active(subscription, topic))
    moving = sorted(set(range(LANES)) - set(kept))
    assert kept, "something stays"
    assert moving, "something goes"
    return kept, moving


def _active(subscription: Subscription, topic: str) -> list[Lane]:
    """Lanes that are delivered."""
    states = subscription.tracker.lanes.values()
    return [state.lane for state in states if state.phase is LanePhase.ACTIVE and state.lane.topic == topic]


def _seen(batches: list[Batch], lane: Lane) -> list[bytes]:
    return [value for batch in batches if batch.spots[0][0] == lane for value in batch.values]

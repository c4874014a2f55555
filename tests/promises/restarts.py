"""Promise 9: a restart forgets little."""

from sidecar.model.records import Commit, Lane, Run
from tests.promises.stage import Stage, batches_of, needs, numbered, promise, values
from tests.promises.timing import until


class ARestartForgetsLittle:
    @promise
    @needs("keeps_acks_beyond")
    async def test_acks_beyond_the_committed_position_survive_a_crash(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(50))
        subscription = await stage.subscribe(topic)
        batches = await stage.worker(subscription, credit=50).take(50)
        kept = [b"0", b"7", b"8", b"20", b"49"]
        for batch in batches:
            if batch.values[0] not in kept:
                batch.ack()
        await until(lambda: _covers(stage.broker.committed.get(Lane(topic, 0)), Run(at[21], at[48] + 1)))
        subscription = await stage.crash(subscription)
        worker = stage.worker(subscription, credit=50)
        again = await worker.take(len(kept))
        assert values(again) == kept
        assert all(batch.is_doubtful for batch in again)
        await stage.turn_around(subscription)
        assert not worker.untaken
        for batch in again:
            batch.ack()
        await stage.commits(topic, at[49] + 1)

    @promise
    @needs("keeps_acks_beyond")
    async def test_acks_beyond_survive_restart_after_restart(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(20))
        subscription = await stage.subscribe(topic)
        left = numbered(20)
        # The newest first, so that the position never moves until the end.
        for value in reversed(numbered(20)):
            batches = await stage.worker(subscription, credit=50).take(len(left))
            assert values(batches) == left
            batches[-1].ack()
            left.remove(value)
            await stage.turn_around(subscription)
            if left:
                subscription = await stage.crash(subscription)
        # The last life of a sidecar knows of what it was given, which may be only what was not acked.
        await until(lambda: stage.committed(topic) > at[0])

    @promise
    async def test_what_was_committed_never_comes_again(self, stage: Stage) -> None:
        topic = await stage.topic(lanes=2)
        ends = [(await stage.publish(topic, *numbered(20), lane=lane))[-1] + 1 for lane in range(2)]
        subscription = await stage.subscribe(topic, batch=batches_of(5))
        for batch in await stage.worker(subscription, credit=8).take(8):
            batch.ack()
        for lane, end in enumerate(ends):
            await stage.commits(topic, end, lane)
        subscription = await stage.crash(subscription)
        worker = stage.worker(subscription)
        await stage.turn_around(subscription)
        assert not worker.batches


def _covers(commit: Commit | None, run: Run) -> bool:
    """Gaps before a run may be a part of it."""
    return commit is not None and any(start <= run.start and stop == run.stop for start, stop in commit.beyond)

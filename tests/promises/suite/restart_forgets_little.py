"""Promise 9: a restart forgets little."""

from sidecar.model.records import Commit, Lane, Run
from tests.promises.adjustable_time import until
from tests.promises.environment import Environment, batches_of, needs, numbered, promise, values


class RestartForgetsLittle:
    @promise
    @needs("keeps_acks_beyond")
    async def test_acks_beyond_the_committed_position_survive_a_crash(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(*numbered(50))
        batches = await env.worker(subscription, credit=50).take(50)
        kept = [b"0", b"7", b"8", b"20", b"49"]
        for batch in batches:
            if batch.values[0] not in kept:
                batch.ack()
        await until(lambda: _covers(env.broker.committed.get(Lane(topic, 0)), Run(positions[21], positions[48] + 1)))
        subscription = await env.crash(subscription)
        worker = env.worker(subscription, credit=50)
        again = await worker.take(len(kept))
        assert values(again) == kept
        assert all(batch.possibly_processed for batch in again)
        await env.round_trip(subscription)
        assert not worker.unread
        for batch in again:
            batch.ack()
        await env.wait_committed(topic, positions[49] + 1)

    @promise
    @needs("keeps_acks_beyond")
    async def test_acks_beyond_survive_restart_after_restart(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(*numbered(20))
        left = numbered(20)
        # The newest first, so that the committed position stays where it is until the end.
        for value in reversed(numbered(20)):
            batches = await env.worker(subscription, credit=50).take(len(left))
            assert values(batches) == left
            batches[-1].ack()
            left.remove(value)
            await env.round_trip(subscription)
            if left:
                subscription = await env.crash(subscription)
        # The last process knows only what it was given, which may be just what was not acked.
        await until(lambda: env.committed(topic) > positions[0])

    @promise
    async def test_what_was_committed_never_comes_again(self, env: Environment) -> None:
        topic = await env.topic(lanes=2)
        ends = [(await env.publish(topic, *numbered(20), lane=lane))[-1] + 1 for lane in range(2)]
        subscription = await env.subscribe(topic, batch=batches_of(5))
        for batch in await env.worker(subscription, credit=8).take(8):
            batch.ack()
        for lane, end in enumerate(ends):
            await env.wait_committed(topic, end, lane)
        subscription = await env.crash(subscription)
        worker = env.worker(subscription)
        await env.round_trip(subscription)
        assert not worker.batches


def _covers(commit: Commit | None, run: Run) -> bool:
    """Whether the commit covers the run. A run may include the gap before it."""
    return commit is not None and any(start <= run.start and stop == run.stop for start, stop in commit.beyond)

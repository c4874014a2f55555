"""Telling the broker how far lanes have come, and starting again from there."""

import pytest

from sidecar.model.errors import LaneGone
from sidecar.model.records import Assigned, Commit, Lane, Run
from tests.brokers.harness import Stage, claims, numbered, scenario


class Committing:
    @scenario
    async def test_after_a_restart_a_group_goes_on_from_its_commit(self, stage: Stage) -> None:
        topic = await stage.topic()
        positions = await stage.publish(topic, *numbered(10))
        consumer = await stage.consume(topic)
        await consumer.take(10)
        await consumer.commit(Lane(topic, 0), Commit(positions[4]))
        await stage.restart()
        consumer = await stage.consume(topic)
        assert await consumer.take(6) == numbered(10)[4:]
        assert consumer.assigned()[Lane(topic, 0)].start == positions[4]

    @scenario
    async def test_what_was_never_committed_comes_again(self, stage: Stage) -> None:
        topic = await stage.topic()
        await stage.publish(topic, *numbered(10))
        consumer = await stage.consume(topic)
        await consumer.take(10)
        await stage.restart()
        consumer = await stage.consume(topic)
        assert await consumer.take(10) == numbered(10)

    @scenario
    async def test_a_group_that_has_settled_everything_gets_only_what_is_new(self, stage: Stage) -> None:
        topic = await stage.topic()
        positions = await stage.publish(topic, *numbered(10))
        consumer = await stage.consume(topic)
        await consumer.take(10)
        await consumer.commit(Lane(topic, 0), Commit(positions[-1] + 1))
        await stage.restart()
        consumer = await stage.consume(topic)
        await consumer.stays_silent()
        await stage.publish(topic, b"new")
        assert await consumer.take(1) == [b"new"]

    @scenario
    @claims("keeps_acks_beyond")
    async def test_acks_beyond_the_position_survive_a_restart(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(12))
        consumer = await stage.consume(topic)
        await consumer.take(12)
        beyond = (Run(at[3], at[5] + 1), Run(at[8], at[9] + 1))
        await consumer.commit(Lane(topic, 0), Commit(at[2], beyond))
        await stage.restart()
        consumer = await stage.consume(topic)
        await consumer.take_values([b"2", b"6", b"7", b"10", b"11"])
        # A broker that takes acks one by one never delivers what was acked, and so need not say what that is.
        told = () if stage.broker.traits.acks_are_final else beyond
        assert consumer.assigned()[Lane(topic, 0)] == Assigned(Lane(topic, 0), at[2], told)
        # The broker may deliver what is settled, too: the core knows which that is.
        unsettled = [r.value for r in consumer.records if not any(a <= r.position < b for a, b in told)]
        assert unsettled == [b"2", b"6", b"7", b"10", b"11"]

    @scenario
    async def test_a_commit_may_go_back(self, stage: Stage) -> None:
        if stage.broker.traits.acks_are_final:
            pytest.skip("what was acked once cannot be taken back here")
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(10))
        consumer = await stage.consume(topic)
        await consumer.take(10)
        await consumer.commit(Lane(topic, 0), Commit(at[8]))
        await consumer.commit(Lane(topic, 0), Commit(at[3]))
        await stage.restart()
        consumer = await stage.consume(topic)
        assert await consumer.take(7) == numbered(10)[3:]

    @scenario
    async def test_groups_are_independent(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, *numbered(10))
        one, other = await stage.consume(topic, group="one"), await stage.consume(topic, group="other")
        assert await one.take(10) == await other.take(10) == numbered(10)
        await one.commit(Lane(topic, 0), Commit(at[7]))
        await other.commit(Lane(topic, 0), Commit(at[2]))
        await stage.restart()
        one, other = await stage.consume(topic, group="one"), await stage.consume(topic, group="other")
        assert await one.take(3) == numbered(10)[7:]
        assert await other.take(8) == numbered(10)[2:]

    @scenario
    async def test_a_commit_for_a_lane_that_is_not_ours_names_it_and_commits_the_others(self, stage: Stage) -> None:
        topic, foreign = await stage.topic(), await stage.topic()
        at = await stage.publish(topic, *numbered(5))
        consumer = await stage.consume(topic)
        await consumer.take(5)
        with pytest.raises(LaneGone) as raised:
            await consumer.source.commit({Lane(foreign, 0): Commit(0), Lane(topic, 0): Commit(at[3])})
        assert raised.value.lanes == {Lane(foreign, 0)}
        await stage.restart()
        consumer = await stage.consume(topic)
        assert await consumer.take(2) == [b"3", b"4"]

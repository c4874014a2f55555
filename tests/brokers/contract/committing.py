"""Storing positions, and continuing there after a restart."""

import pytest

from sidecar.model.errors import LaneGone
from sidecar.model.records import Assigned, Commit, Lane, Run
from tests.brokers.harness import Sandbox, numbered, scenario, scenario_with


class Committing:
    @scenario
    async def test_after_a_restart_a_group_continues_from_its_commit(self, sandbox: Sandbox) -> None:
        topic, positions, consumer = await sandbox.consumed(10)
        await consumer.commit(Lane(topic, 0), Commit(positions[4]))
        await sandbox.restart()
        consumer = await sandbox.consume(topic)
        assert await consumer.take(6) == numbered(10)[4:]
        if sandbox.broker.traits.positions_are_stable:
            assert consumer.assigned()[Lane(topic, 0)].start == positions[4]

    @scenario
    async def test_what_was_never_committed_comes_again(self, sandbox: Sandbox) -> None:
        topic, _, consumer = await sandbox.consumed(10)
        await sandbox.restart()
        consumer = await sandbox.consume(topic)
        assert await consumer.take(10) == numbered(10)

    @scenario
    async def test_a_group_that_has_settled_everything_gets_only_what_is_new(self, sandbox: Sandbox) -> None:
        topic, positions, consumer = await sandbox.consumed(10)
        await consumer.commit(Lane(topic, 0), Commit(positions[-1] + 1))
        await sandbox.restart()
        consumer = await sandbox.consume(topic)
        await consumer.stays_silent()
        await sandbox.publish(topic, b"new")
        assert await consumer.take(1) == [b"new"]

    @scenario_with("keeps_acks_beyond")
    async def test_acks_beyond_the_position_survive_a_restart(self, sandbox: Sandbox) -> None:
        topic, at, consumer = await sandbox.consumed(12)
        beyond = (Run(at[3], at[5] + 1), Run(at[8], at[9] + 1))
        await consumer.commit(Lane(topic, 0), Commit(at[2], beyond))
        await sandbox.restart()
        consumer = await sandbox.consume(topic)
        await consumer.take_values([b"2", b"6", b"7", b"10", b"11"])
        # A broker with final acks never delivers what was acked, so it need not report that.
        told = () if sandbox.broker.traits.acks_are_final else beyond
        if sandbox.broker.traits.positions_are_stable:
            assert consumer.assigned()[Lane(topic, 0)] == Assigned(Lane(topic, 0), at[2], told)
        # The broker may deliver records that it has reported as settled: the core drops them.
        unsettled = [r.value for r in consumer.records if not any(a <= r.position < b for a, b in told)]
        assert unsettled == [b"2", b"6", b"7", b"10", b"11"]

    @scenario_with("finds_left_topics")
    async def test_what_a_group_has_left_in_a_topic_that_was_its_own_is_found(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        own = f"{topic}.own"
        consumer = await sandbox.consume(topic, own_topics={own: 2})
        at = await sandbox.publish(own, *numbered(5), lane=1)
        await consumer.take(5)
        await consumer.commit(Lane(own, 1), Commit(at[3]))
        assert await consumer.source.left_behind() == {}
        await sandbox.restart()
        consumer = await sandbox.consume(topic, own_topics={f"{topic}.other": 1})
        assert await consumer.source.left_behind() == {Lane(own, 1): Run(at[3], at[4] + 1)}

    @scenario
    async def test_a_commit_may_go_back(self, sandbox: Sandbox) -> None:
        if sandbox.broker.traits.acks_are_final:
            pytest.skip("acks of this broker are final")
        topic, at, consumer = await sandbox.consumed(10)
        await consumer.commit(Lane(topic, 0), Commit(at[8]))
        await consumer.commit(Lane(topic, 0), Commit(at[3]))
        await sandbox.restart()
        consumer = await sandbox.consume(topic)
        assert await consumer.take(7) == numbered(10)[3:]

    @scenario_with("groups_are_independent")
    async def test_groups_are_independent(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        at = await sandbox.publish(topic, *numbered(10))
        one, other = await sandbox.consume(topic, group="one"), await sandbox.consume(topic, group="other")
        assert await one.take(10) == await other.take(10) == numbered(10)
        await one.commit(Lane(topic, 0), Commit(at[7]))
        await other.commit(Lane(topic, 0), Commit(at[2]))
        await sandbox.restart()
        one, other = await sandbox.consume(topic, group="one"), await sandbox.consume(topic, group="other")
        assert await one.take(3) == numbered(10)[7:]
        assert await other.take(8) == numbered(10)[2:]

    @scenario
    async def test_a_commit_for_a_lane_that_is_not_ours_names_it_and_commits_the_others(self, sandbox: Sandbox) -> None:
        foreign = await sandbox.topic()
        topic, at, consumer = await sandbox.consumed(5)
        with pytest.raises(LaneGone) as raised:
            await consumer.source.commit({Lane(foreign, 0): Commit(0), Lane(topic, 0): Commit(at[3])})
        assert raised.value.lanes == {Lane(foreign, 0)}
        await sandbox.restart()
        consumer = await sandbox.consume(topic)
        assert await consumer.take(2) == [b"3", b"4"]

"""The positions of a group that is read by ranges."""

import pytest

from sidecar.brokers.base import AtTime, SeekTo
from sidecar.model.errors import Fenced, Refused
from sidecar.model.records import Commit, Lane, Message, Run
from tests.brokers.harness import Sandbox, numbered, scenario_with


class Cursors:
    @scenario_with("reads_ranges")
    async def test_a_new_group_has_no_position_and_no_reader(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=2)
        at = await sandbox.publish(topic, *numbered(5), lane=1)
        cursor = await sandbox.cursor(topic)
        state = await cursor.fetch_state()
        assert (dict(state.positions), state.attached) == ({}, None)
        lanes = await cursor.lanes()
        assert set(lanes) == {Lane(topic, 0), Lane(topic, 1)}
        assert (lanes[Lane(topic, 1)].start, lanes[Lane(topic, 1)].end) == (at[0], at[-1] + 1)

    @scenario_with("reads_ranges")
    async def test_attaching_creates_a_group_without_positions(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=2)
        cursor = await sandbox.cursor(topic)
        attached = await cursor.attach("clicks", 1_700_000_000_000)
        assert (attached.reader, attached.since_ms) == ("clicks", 1_700_000_000_000)
        await sandbox.restart()
        state = await (await sandbox.cursor(topic)).fetch_state()
        assert (dict(state.positions), state.attached) == ({}, attached)

    @scenario_with("reads_ranges")
    async def test_a_position_is_pinned_once(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=2)
        first, second = Lane(topic, 0), Lane(topic, 1)
        at = await sandbox.publish(topic, *numbered(9), lane=0)
        beyond = await sandbox.publish(topic, *numbered(9), lane=1)
        cursor = await sandbox.cursor(topic)
        token = (await cursor.attach("", 1)).token
        await cursor.pin(token, {first: at[3], second: beyond[2]})
        await cursor.pin(token, {first: at[7], second: beyond[7]})
        assert dict((await cursor.fetch_state()).positions) == {first: at[3], second: beyond[2]}

    @scenario_with("reads_ranges")
    async def test_commits_go_forward_only(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        lane = Lane(topic, 0)
        at = await sandbox.publish(topic, *numbered(9))
        cursor = await sandbox.cursor(topic)
        token = (await cursor.attach("", 1)).token
        for position, expected in ((at[4], at[4]), (at[4], at[4]), (at[1], at[4]), (at[-1] + 1, at[-1] + 1)):
            await cursor.commit(token, {lane: position})
            assert dict((await cursor.fetch_state()).positions) == {lane: expected}

    @scenario_with("reads_ranges")
    async def test_positions_and_reader_survive_a_restart(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        lane = Lane(topic, 0)
        at = await sandbox.publish(topic, *numbered(9))
        cursor = await sandbox.cursor(topic)
        attached = await cursor.attach("clicks", 1_700_000_000_000)
        await cursor.commit(attached.token, {lane: at[4]})
        await sandbox.restart()
        again = await sandbox.cursor(topic)
        state = await again.fetch_state()
        assert (dict(state.positions), state.attached) == ({lane: at[4]}, attached)
        await again.commit(attached.token, {lane: at[5]})
        assert (await again.fetch_state()).positions[lane] == at[5]

    @scenario_with("reads_ranges")
    async def test_a_reader_that_was_replaced_is_fenced_at_every_sidecar(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        lane = Lane(topic, 0)
        at = await sandbox.publish(topic, *numbered(9))
        here = await sandbox.cursor(topic)
        there = await sandbox.cursor(topic, broker=await sandbox.other_sidecar())
        old = (await here.attach("old", 1)).token
        await here.commit(old, {lane: at[2]})
        new = (await there.attach("new", 2)).token
        assert new > old
        for cursor in (here, there):
            with pytest.raises(Fenced, match="new"):
                await cursor.commit(old, {lane: at[8]})
            with pytest.raises(Fenced, match="new"):
                await cursor.pin(old, {lane: at[8]})
        assert (await here.fetch_state()).positions[lane] == at[2]
        await here.commit(new, {lane: at[3]})
        assert dict((await there.fetch_state()).positions) == {lane: at[3]}

    @scenario_with("reads_ranges")
    async def test_a_token_that_was_never_given_out_is_refused(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        cursor = await sandbox.cursor(topic)
        await cursor.attach("", 1)
        for move in (cursor.pin, cursor.commit):
            with pytest.raises(Refused, match="never issued"):
                await move(12345, {})

    @scenario_with("reads_ranges")
    async def test_an_operator_may_move_positions_back_while_a_reader_is_attached(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        lane = Lane(topic, 0)
        at = await sandbox.publish(topic, *numbered(9))
        cursor = await sandbox.cursor(topic)
        await cursor.move({lane: at[5]})
        state = await cursor.fetch_state()
        assert (dict(state.positions), state.attached) == ({lane: at[5]}, None)
        attached = await cursor.attach("reader", 1)
        await cursor.move({lane: at[2]})
        state = await cursor.fetch_state()
        assert (dict(state.positions), state.attached) == ({lane: at[2]}, attached)
        await cursor.commit(attached.token, {lane: at[3]})
        assert dict((await cursor.fetch_state()).positions) == {lane: at[3]}

    @scenario_with("reads_ranges")
    async def test_a_group_that_has_members_is_refused(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        lane = Lane(topic, 0)
        await sandbox.publish(topic, b"a")
        cursor = await sandbox.cursor(topic)
        token = (await cursor.attach("", 1)).token
        consumer = await sandbox.consume(topic)
        await consumer.take(1)
        for refused in (cursor.attach("", 2), cursor.commit(token, {lane: 0})):
            with pytest.raises(Refused, match="by leases"):
                await refused

    @scenario_with("reads_ranges")
    async def test_ranges_continue_where_leases_ended_and_leases_where_ranges_did(self, sandbox: Sandbox) -> None:
        topic, at, consumer = await sandbox.consumed(9)
        lane = Lane(topic, 0)
        await consumer.commit(lane, Commit(at[3], (Run(at[5], at[6]),)))
        await consumer.close()
        cursor = await sandbox.cursor(topic)
        assert dict((await cursor.fetch_state()).positions) == {lane: at[3]}
        token = (await cursor.attach("", 1)).token
        assert dict((await cursor.fetch_state()).positions) == {lane: at[3]}
        await cursor.commit(token, {lane: at[7]})
        await cursor.close()
        again = await sandbox.consume(topic)
        assert await again.take(2) == [b"7", b"8"]

    @scenario_with("reads_ranges")
    async def test_targets_are_located_without_a_group(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=2)
        lane, empty = Lane(topic, 0), Lane(topic, 1)
        messages = [Message(None, b"v", lane=0, timestamp_ms=1_700_000_000_000 + 1_000 * n) for n in range(5)]
        at = [place.position for place in await sandbox.broker.publish(topic, messages)]
        ends = await sandbox.broker.lane_ends(topic)
        for target, expected in (
            (SeekTo.START, at[0]),
            (SeekTo.END, at[-1] + 1),
            (AtTime(1_700_000_001_500), at[2]),
            (AtTime(0), at[0]),
            (AtTime(1_800_000_000_000), at[-1] + 1),
        ):
            found = await sandbox.broker.locate(topic, target)
            assert set(found) == {lane, empty}
            assert found[lane] == expected, target
            assert ends[empty].start <= found[empty] <= ends[empty].end

    @scenario_with("reads_ranges")
    async def test_an_estimate_never_leads_back_or_past_the_end(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        lane = Lane(topic, 0)
        at = await sandbox.publish(topic, *numbered(50))
        run = Run(at[10], at[-1] + 1)
        estimate = (await sandbox.broker.estimate({lane: run}))[lane]
        assert estimate.records > 0
        assert estimate.position_after(estimate.records) == run.stop
        last = run.start
        for records in range(1, estimate.records + 1):
            ahead = estimate.position_after(records)
            assert last <= ahead <= run.stop
            assert ahead > run.start
            last = ahead

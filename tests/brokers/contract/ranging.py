"""A group's positions without a member: what readers of ranges rely on."""

import pytest

from sidecar.brokers.base import AtTime, SeekTo
from sidecar.model.errors import Fenced, Refused
from sidecar.model.records import Commit, Lane, Message, Run
from tests.brokers.harness import Stage, claims, numbered, scenario


class Ranging:
    @scenario
    @claims("reads_ranges")
    async def test_a_new_group_has_no_position_and_no_reader(self, stage: Stage) -> None:
        topic = await stage.topic(lanes=2)
        at = await stage.publish(topic, *numbered(5), lane=1)
        cursor = await stage.cursor(topic)
        standing = await cursor.fetch_state()
        assert (dict(standing.positions), standing.attached) == ({}, None)
        lanes = await cursor.lanes()
        assert set(lanes) == {Lane(topic, 0), Lane(topic, 1)}
        assert (lanes[Lane(topic, 1)].start, lanes[Lane(topic, 1)].end) == (at[0], at[-1] + 1)

    @scenario
    @claims("reads_ranges")
    async def test_attaching_makes_a_group_that_has_no_position_yet(self, stage: Stage) -> None:
        topic = await stage.topic(lanes=2)
        cursor = await stage.cursor(topic)
        attached = await cursor.attach("clicks", 1_700_000_000_000)
        assert (attached.reader, attached.since_ms) == ("clicks", 1_700_000_000_000)
        await stage.restart()
        standing = await (await stage.cursor(topic)).fetch_state()
        assert (dict(standing.positions), standing.attached) == ({}, attached)

    @scenario
    @claims("reads_ranges")
    async def test_a_position_is_pinned_once(self, stage: Stage) -> None:
        topic = await stage.topic(lanes=2)
        first, second = Lane(topic, 0), Lane(topic, 1)
        at = await stage.publish(topic, *numbered(9), lane=0)
        beyond = await stage.publish(topic, *numbered(9), lane=1)
        cursor = await stage.cursor(topic)
        token = (await cursor.attach("", 1)).token
        await cursor.pin(token, {first: at[3], second: beyond[2]})
        await cursor.pin(token, {first: at[7], second: beyond[7]})
        assert dict((await cursor.fetch_state()).positions) == {first: at[3], second: beyond[2]}

    @scenario
    @claims("reads_ranges")
    async def test_commits_go_forward_only(self, stage: Stage) -> None:
        topic = await stage.topic()
        lane = Lane(topic, 0)
        at = await stage.publish(topic, *numbered(9))
        cursor = await stage.cursor(topic)
        token = (await cursor.attach("", 1)).token
        for position, expected in ((at[4], at[4]), (at[4], at[4]), (at[1], at[4]), (at[-1] + 1, at[-1] + 1)):
            await cursor.commit(token, {lane: position})
            assert dict((await cursor.fetch_state()).positions) == {lane: expected}

    @scenario
    @claims("reads_ranges")
    async def test_positions_and_reader_survive_a_restart(self, stage: Stage) -> None:
        topic = await stage.topic()
        lane = Lane(topic, 0)
        at = await stage.publish(topic, *numbered(9))
        cursor = await stage.cursor(topic)
        attached = await cursor.attach("clicks", 1_700_000_000_000)
        await cursor.commit(attached.token, {lane: at[4]})
        await stage.restart()
        again = await stage.cursor(topic)
        standing = await again.fetch_state()
        assert (dict(standing.positions), standing.attached) == ({lane: at[4]}, attached)
        await again.commit(attached.token, {lane: at[5]})
        assert (await again.fetch_state()).positions[lane] == at[5]

    @scenario
    @claims("reads_ranges")
    async def test_a_reader_that_was_replaced_is_fenced_at_every_sidecar(self, stage: Stage) -> None:
        topic = await stage.topic()
        lane = Lane(topic, 0)
        at = await stage.publish(topic, *numbered(9))
        here = await stage.cursor(topic)
        there = await stage.cursor(topic, broker=await stage.other_sidecar())
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

    @scenario
    @claims("reads_ranges")
    async def test_a_token_that_nobody_was_given_is_refused(self, stage: Stage) -> None:
        topic = await stage.topic()
        cursor = await stage.cursor(topic)
        await cursor.attach("", 1)
        for move in (cursor.pin, cursor.commit):
            with pytest.raises(Refused, match="never given out"):
                await move(12345, {})

    @scenario
    @claims("reads_ranges")
    async def test_an_operator_may_move_positions_back_whoever_is_attached(self, stage: Stage) -> None:
        topic = await stage.topic()
        lane = Lane(topic, 0)
        at = await stage.publish(topic, *numbered(9))
        cursor = await stage.cursor(topic)
        await cursor.move({lane: at[5]})
        standing = await cursor.fetch_state()
        assert (dict(standing.positions), standing.attached) == ({lane: at[5]}, None)
        attached = await cursor.attach("reader", 1)
        await cursor.move({lane: at[2]})
        standing = await cursor.fetch_state()
        assert (dict(standing.positions), standing.attached) == ({lane: at[2]}, attached)
        await cursor.commit(attached.token, {lane: at[3]})
        assert dict((await cursor.fetch_state()).positions) == {lane: at[3]}

    @scenario
    @claims("reads_ranges")
    async def test_a_group_that_has_members_is_refused(self, stage: Stage) -> None:
        topic = await stage.topic()
        lane = Lane(topic, 0)
        await stage.publish(topic, b"a")
        cursor = await stage.cursor(topic)
        token = (await cursor.attach("", 1)).token
        consumer = await stage.consume(topic)
        await consumer.take(1)
        for refused in (cursor.attach("", 2), cursor.commit(token, {lane: 0})):
            with pytest.raises(Refused, match="by leases"):
                await refused

    @scenario
    @claims("reads_ranges")
    async def test_ranges_go_on_where_leases_ended_and_leases_where_ranges_did(self, stage: Stage) -> None:
        topic = await stage.topic()
        lane = Lane(topic, 0)
        at = await stage.publish(topic, *numbered(9))
        consumer = await stage.consume(topic)
        await consumer.take(9)
        await consumer.commit(lane, Commit(at[3], (Run(at[5], at[6]),)))
        await consumer.close()
        cursor = await stage.cursor(topic)
        assert dict((await cursor.fetch_state()).positions) == {lane: at[3]}
        token = (await cursor.attach("", 1)).token
        assert dict((await cursor.fetch_state()).positions) == {lane: at[3]}
        await cursor.commit(token, {lane: at[7]})
        await cursor.close()
        again = await stage.consume(topic)
        assert await again.take(2) == [b"7", b"8"]

    @scenario
    @claims("reads_ranges")
    async def test_targets_are_found_without_a_group(self, stage: Stage) -> None:
        topic = await stage.topic(lanes=2)
        lane, empty = Lane(topic, 0), Lane(topic, 1)
        messages = [Message(None, b"v", lane=0, timestamp_ms=1_700_000_000_000 + 1_000 * n) for n in range(5)]
        at = [place.position for place in await stage.broker.publish(topic, messages)]
        ends = await stage.broker.lane_ends(topic)
        for target, expected in (
            (SeekTo.START, at[0]),
            (SeekTo.END, at[-1] + 1),
            (AtTime(1_700_000_001_500), at[2]),
            (AtTime(0), at[0]),
            (AtTime(1_800_000_000_000), at[-1] + 1),
        ):
            found = await stage.broker.locate(topic, target)
            assert set(found) == {lane, empty}
            assert found[lane] == expected, target
            assert ends[empty].start <= found[empty] <= ends[empty].end

    @scenario
    @claims("reads_ranges")
    async def test_a_stretch_leads_as_far_as_it_is_asked_to(self, stage: Stage) -> None:
        topic = await stage.topic()
        lane = Lane(topic, 0)
        at = await stage.publish(topic, *numbered(50))
        run = Run(at[10], at[-1] + 1)
        stretch = (await stage.broker.estimate({lane: run}))[lane]
        assert stretch.records > 0
        assert stretch.position_after(stretch.records) == run.stop
        last = run.start
        for records in range(1, stretch.records + 1):
            ahead = stretch.position_after(records)
            assert last <= ahead <= run.stop
            assert ahead > run.start
            last = ahead

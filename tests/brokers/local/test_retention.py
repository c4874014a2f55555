"""Retention of the embedded broker: what is removed, what is kept, and what a group that lost records is told."""

from pathlib import Path

import pytest

from sidecar.brokers.base import Advanced, LaneEnd
from sidecar.brokers.local import broker as broker_module
from sidecar.brokers.local.retention import Retention
from sidecar.model.records import Commit, Lane, Message, Run
from tests.brokers.harness import consuming, numbered, publish
from tests.brokers.local.harness import MINUTE_MS, SetClock, running, stored
from tests.event_loop import on_event_loop
from tests.promises.adjustable_time import until

LANE = Lane("topic", 0)
#: so large that each publish makes a block of its own
BULK = bytes(20_000)


@on_event_loop
async def test_old_records_are_removed_and_young_ones_kept(tmp_path: Path) -> None:
    clock = SetClock()
    async with running(tmp_path, clock, retention_age=600.0) as broker:
        await publish(broker, "topic", b"old" + BULK)
        clock.ms += 9 * MINUTE_MS
        await publish(broker, "topic", b"young" + BULK)
        await broker.run_retention()
        assert len(await stored(broker, "topic")) == 2
        clock.ms += 3 * MINUTE_MS
        await broker.run_retention()
        assert await stored(broker, "topic") == [b"young" + BULK]
        assert await broker.lane_ends("topic") == {
            LANE: LaneEnd(1, 2),
            **{Lane("topic", number): LaneEnd(0, 0) for number in (1, 2, 3)},
        }


@on_event_loop
async def test_the_age_of_a_record_is_counted_from_its_publish_and_not_from_its_timestamp(tmp_path: Path) -> None:
    clock = SetClock()
    async with running(tmp_path, clock, retention_age=600.0) as broker:
        await broker.publish("topic", [Message(None, b"value", timestamp_ms=1, lane=0)])
        await broker.run_retention()
        assert await stored(broker, "topic") == [b"value"]


@on_event_loop
async def test_records_that_a_group_has_not_settled_are_kept(tmp_path: Path) -> None:
    clock = SetClock()
    async with running(tmp_path, clock, retention_age=60.0, retention_bytes=1) as broker:
        for number in range(6):
            await publish(broker, "topic", b"%d" % number + BULK)
        async with consuming(broker, "topic", group="far") as far, consuming(broker, "topic", group="near") as near:
            await far.commit(LANE, Commit(5))
            await near.commit(LANE, Commit(2, (Run(3, 6),)))
        clock.ms += 10 * MINUTE_MS
        await broker.run_retention()
        assert (await broker.lane_ends("topic"))[LANE] == LaneEnd(2, 6)
        await broker.delete_group("near")
        await broker.run_retention()
        assert (await broker.lane_ends("topic"))[LANE] == LaneEnd(5, 6)


@on_event_loop
async def test_a_block_is_removed_only_when_all_of_it_is_settled(tmp_path: Path) -> None:
    clock = SetClock()
    async with running(tmp_path, clock, retention_age=60.0) as broker, consuming(broker, "topic") as consumer:
        await publish(broker, "topic", *numbered(10))
        clock.ms += 10 * MINUTE_MS
        await consumer.commit(LANE, Commit(9))
        await broker.run_retention()
        assert await stored(broker, "topic") == numbered(10)
        await consumer.commit(LANE, Commit(10))
        await broker.run_retention()
        assert await stored(broker, "topic") == []


@on_event_loop
async def test_a_topic_over_its_size_loses_its_oldest_records_of_all_lanes(tmp_path: Path) -> None:
    clock = SetClock()
    async with running(tmp_path, clock, lanes=2, retention_bytes=100_000) as broker:
        for lane in (0, 0, 1, 1, 0, 1):
            clock.ms += 1
            await publish(broker, "topic", BULK, lane=lane)
        await publish(broker, "other", BULK)
        await broker.run_retention()
        assert await broker.lane_ends("topic") == {LANE: LaneEnd(2, 3), Lane("topic", 1): LaneEnd(0, 3)}
        assert (await broker.lane_ends("other"))[Lane("other", 0)] == LaneEnd(0, 1)


@on_event_loop
async def test_nothing_is_removed_without_limits(tmp_path: Path) -> None:
    clock = SetClock()
    async with running(tmp_path, clock, retention_age=0.0, retention_bytes=0) as broker:
        await publish(broker, "topic", b"value")
        clock.ms += 1_000_000 * MINUTE_MS
        await broker.run_retention()
        assert await stored(broker, "topic") == [b"value"]


@on_event_loop
async def test_an_emptied_lane_keeps_counting_positions_after_a_restart(tmp_path: Path) -> None:
    clock = SetClock()
    async with running(tmp_path, clock, retention_age=60.0) as broker:
        await publish(broker, "topic", *numbered(5))
        clock.ms += 10 * MINUTE_MS
        await broker.run_retention()
        assert (await broker.lane_ends("topic"))[LANE] == LaneEnd(5, 5)
        await publish(broker, "topic", b"5")
    async with running(tmp_path, clock) as broker:
        assert (await broker.lane_ends("topic"))[LANE] == LaneEnd(5, 6)
        await publish(broker, "topic", b"6")
        async with consuming(broker, "topic") as consumer:
            assert await consumer.take(2) == [b"5", b"6"]
            assert [record.position for record in consumer.records] == [5, 6]


@on_event_loop
async def test_a_group_is_told_how_many_records_it_lost(tmp_path: Path) -> None:
    clock = SetClock()
    options = {"retention_age": 60.0, "retention_ignores_groups": True}
    async with running(tmp_path, clock, **options) as broker:
        await publish(broker, "topic", *numbered(10))
        async with consuming(broker, "topic") as consumer:
            await consumer.take(3, max_records=3)
            await consumer.commit(LANE, Commit(1, (Run(5, 7),)))
            clock.ms += 10 * MINUTE_MS
            await broker.run_retention()
            await publish(broker, "topic", b"10")
            assert (await consumer.take(4))[3:] == [b"10"]
            # It had read up to 2, and never gets 3 to 9.
            assert consumer.events[-1] == Advanced(LANE, 10, lost=7)
        async with consuming(broker, "topic") as consumer:
            assert await consumer.take(1) == [b"10"]
            # 1 and 2 were never committed; 5 and 6 were settled.
            assert consumer.assigned()[LANE].start == 1
            assert consumer.events[-1] == Advanced(LANE, 10, lost=7)


@on_event_loop
async def test_removing_many_records_shrinks_the_file(tmp_path: Path) -> None:
    clock = SetClock()
    async with running(tmp_path, clock, retention_age=60.0) as broker:
        for _ in range(8):
            await publish(broker, "topic", *[bytes(1 << 20)] * 4)
        clock.ms += 10 * MINUTE_MS
        await publish(broker, "topic", b"young")
        await broker.run_retention()
        assert await stored(broker, "topic") == [b"young"]
    assert (tmp_path / "offramp.db").stat().st_size < 20 << 20


@on_event_loop
async def test_consumers_read_while_retention_runs(tmp_path: Path) -> None:
    clock = SetClock()
    options = {"lanes": 1, "retention_age": 60.0}
    async with running(tmp_path, clock, **options) as broker, consuming(broker, "topic") as consumer:
        values = numbered(300)
        for at in range(0, 300, 10):
            await publish(broker, "topic", *values[at : at + 10])
            await consumer.take(at + 10)
            await consumer.commit(LANE, Commit(at + 5))
            clock.ms += 2 * MINUTE_MS
            await broker.run_retention()
        assert consumer.values == values
        assert (await broker.lane_ends("topic"))[LANE].start > 200


@on_event_loop
async def test_a_trickle_of_records_does_not_keep_old_ones(tmp_path: Path) -> None:
    clock = SetClock()
    async with running(tmp_path, clock, retention_age=600.0) as broker:
        for number in range(60):
            await publish(broker, "topic", b"%d" % number)
            clock.ms += MINUTE_MS // 2
        await broker.run_retention()
        kept = await stored(broker, "topic")
        assert kept[-1] == b"59"
        assert 20 <= len(kept) <= 24


@on_event_loop
async def test_retention_continues_after_an_unexpected_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "_RETENTION_INTERVAL", 0.01)
    step, errors = Retention.step, [RuntimeError("a bug"), RuntimeError("a bug"), OSError("another")]

    def fail_at_first(retention: Retention, now_ms: int) -> bool:
        if errors:
            raise errors.pop(0)
        return step(retention, now_ms)

    monkeypatch.setattr(Retention, "step", fail_at_first)
    clock = SetClock()
    async with running(tmp_path, clock, retention_age=60.0) as broker:
        await publish(broker, "topic", b"old" + BULK)
        clock.ms += 10 * MINUTE_MS
        await until(lambda: broker.view(LANE).start)

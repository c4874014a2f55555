"""`LogService` on a real sidecar: who may commit, where a reader starts, what it commits, what operators see."""

import asyncio
from pathlib import Path

import grpc
import pytest

from offramp.v1 import admin_pb2, consumer_pb2, log_pb2, publish_pb2
from sidecar.settings import SubscriptionSettings
from tests.unit.server.grpc.log_kit import (
    ABORTED,
    INVALID,
    OUT_OF_RANGE,
    RANGES,
    TOPIC,
    UNAVAILABLE,
    UNMET,
    Reader,
    local,
    numbered,
    ranged,
    refused,
    with_reader,
)
from tests.unit.server.grpc.service_kit import Kit, in_loop, serving, with_sidecar


@with_reader()
async def test_a_reader_goes_round(kit: Kit, reader: Reader) -> None:
    await kit.publish(numbered(10))
    assert await reader.attach() == {}
    start = await reader.resolve_start()
    until = await reader.until(start, max_records=6)
    assert (start, until) == ({0: 0}, {0: 6})
    assert await reader.values(start[0], until[0]) == numbered(10)[:6]
    assert await reader.commit(until) == {0: 6}
    assert await reader.attach() == {0: 6}


# Attach


@with_reader()
async def test_the_newest_reader_wins_and_older_ones_are_aborted(kit: Kit, first: Reader) -> None:
    await kit.publish(numbered(10))
    second = Reader(kit.channel)
    await first.attach("first")
    await second.attach("second")
    assert second.token > first.token
    for late in (first.resolve_start, lambda: first.plan({0: 0}), lambda: first.commit({0: 9})):
        async with refused(ABORTED, "second"):
            await late()
    assert await Reader(kit.channel).until({0: 0}) == {0: 10}, "one that only looks needs no token"
    await second.resolve_start()
    assert await second.commit({0: 3}) == {0: 3}


@in_loop
async def test_a_token_outlives_the_sidecar(tmp_path: Path) -> None:
    async with ranged(tmp_path) as (kit, old):
        await kit.publish(numbered(10))
        await old.attach("old")
        await old.resolve_start()
    async with ranged(tmp_path) as (kit, again):
        again.token = old.token
        assert await again.commit({0: 4}) == {0: 4}
        new = Reader(kit.channel)
        assert await new.attach("new") == {0: 4}
    async with ranged(tmp_path) as (_, again):
        again.token = old.token
        async with refused(ABORTED, "new"):
            await again.commit({0: 5})


@pytest.mark.parametrize(("token", "status"), [(0, INVALID), (7, UNMET), (2**63, UNMET)])
@with_reader()
async def test_a_token_that_nobody_was_given_is_refused(
    kit: Kit, reader: Reader, token: int, status: grpc.StatusCode
) -> None:
    await reader.attach()
    reader.token = token
    for call in (reader.resolve_start, lambda: reader.commit({0: 0})):
        async with refused(status, "Attach"):
            await call()


@in_loop
async def test_the_token_of_a_deleted_group_is_refused(tmp_path: Path) -> None:
    async with ranged(tmp_path) as (kit, reader):
        await kit.publish(numbered(3))
        await reader.attach()
    async with serving(tmp_path, subscriptions={}) as kit:
        await kit.admin.DeleteGroup(admin_pb2.DeleteGroupRequest(broker="local", group="orders"))
    async with ranged(tmp_path) as (kit, again):
        again.token = reader.token
        async with refused(UNMET, "deleted"):
            await again.commit({0: 1})
        other = Reader(kit.channel)
        await other.attach()
        assert other.token != reader.token
        async with refused(ABORTED) if again.token < other.token else refused(UNMET):
            await again.commit({0: 1})


# ResolveStart


@in_loop
async def test_a_start_is_pinned_and_asking_again_gives_the_same(tmp_path: Path) -> None:
    async with ranged(tmp_path) as (kit, reader):
        await kit.publish(numbered(5))
        await reader.attach()
        assert await reader.resolve_start(latest=log_pb2.StartLatest()) == {0: 5}
        await kit.publish(numbered(5))
        assert await reader.resolve_start(latest=log_pb2.StartLatest()) == {0: 5}
        assert await reader.resolve_start(earliest=log_pb2.StartEarliest()) == {0: 5}
    async with ranged(tmp_path) as (_, reader):
        assert await reader.attach() == {0: 5}
        assert await reader.resolve_start(earliest=log_pb2.StartEarliest()) == {0: 5}


@with_reader()
async def test_a_reader_can_start_at_a_time(kit: Kit, reader: Reader) -> None:
    messages = [publish_pb2.Message(value=b"v", lane=0, timestamp_ms=1_000 * n) for n in range(1, 8)]
    await kit.publisher.Publish(publish_pb2.PublishRequest(broker="local", topic=TOPIC, messages=messages))
    await reader.attach()
    assert await reader.resolve_start(timestamp_ms=3_500) == {0: 3}


@pytest.mark.parametrize("start", ["earliest", "latest"])
@in_loop
async def test_committed_starts_as_the_subscription_says_where_nothing_is_committed(tmp_path: Path, start: str) -> None:
    async with ranged(tmp_path, start=start) as (kit, reader):
        await kit.publish(numbered(5))
        await reader.attach()
        expected = {"earliest": 0, "latest": 5}[start]
        assert await reader.resolve_start(committed=log_pb2.StartCommitted()) == {0: expected}


@with_reader()
async def test_lanes_that_come_later_start_at_their_first_record(kit: Kit, reader: Reader) -> None:
    await kit.publish(numbered(5))
    await reader.attach()
    await reader.resolve_start(latest=log_pb2.StartLatest())
    await local(kit).add_lanes(TOPIC, 2)
    await kit.publish(numbered(3), lane=1)
    assert await reader.resolve_start(latest=log_pb2.StartLatest()) == {0: 5, 1: 0}
    # In a plan they first come with where they begin, and so enter the reader's offsets.
    assert await reader.until({0: 5}) == {0: 5, 1: 0}
    assert await reader.until({0: 5, 1: 0}) == {0: 5, 1: 3}


# CommitUpTo


@with_reader()
async def test_commits_only_go_forward(kit: Kit, reader: Reader) -> None:
    await kit.publish(numbered(9))
    await reader.attach()
    assert await reader.commit({0: 6}) == {0: 6}
    assert await reader.commit({0: 6}) == {0: 6}
    assert await reader.commit({0: 2}) == {0: 6}
    async with refused(OUT_OF_RANGE, "ends at 9"):
        await reader.commit({0: 10})


@with_reader()
async def test_an_operator_can_move_what_is_committed(kit: Kit, reader: Reader) -> None:
    await kit.publish(numbered(9))
    await reader.attach()
    await reader.commit({0: 6})
    answer = await kit.admin.Seek(admin_pb2.SeekRequest(subscription="orders", position=2))
    assert [(lane.lane, lane.position) for lane in answer.lanes] == [(0, 2)]
    assert await reader.resolve_start(latest=log_pb2.StartLatest()) == {0: 2}
    assert await reader.commit({0: 3}) == {0: 3}


# Modes


@with_sidecar(mode=RANGES)
async def test_a_ranged_subscription_gives_out_no_leases(kit: Kit) -> None:
    opened = kit.consumer.Open(consumer_pb2.OpenRequest(subscription="orders"))
    consumed = kit.consumer.Consume()
    hello = consumer_pb2.Hello(subscription="orders")
    await consumed.write(consumer_pb2.ConsumeRequest(hello=hello))
    for call in (
        kit.consumer.Fetch(consumer_pb2.FetchRequest(subscription="orders")),
        opened.read(),
        consumed.read(),
        kit.admin.Redrive(admin_pb2.RedriveRequest(subscription="orders", all=True)).read(),
    ):
        async with refused(UNMET, "`mode: ranges`", "LogService"):
            await call


@with_sidecar()
async def test_a_leased_subscription_gives_out_no_ranges(kit: Kit) -> None:
    reader = Reader(kit.channel)
    reader.token = 1
    for call in (
        reader.attach,
        reader.resolve_start,
        lambda: reader.until({}),
        lambda: reader.commit({}),
    ):
        async with refused(UNMET, "`mode: leases`", "Consume, or Open and Fetch"):
            await call()


@in_loop
async def test_a_group_that_workers_consume_cannot_be_read_by_ranges(tmp_path: Path) -> None:
    subscriptions = {
        "orders": SubscriptionSettings(topics=(TOPIC,), group="g"),
        "spark": SubscriptionSettings(topics=(TOPIC,), group="g", mode=RANGES),
    }
    async with serving(tmp_path, subscriptions=subscriptions) as kit:
        await kit.until(lambda status: len(status.lanes) > 0)
        async with refused(UNMET, "consumed by leases"):
            await Reader(kit.channel, "spark").attach()


# What operators see


@with_reader()
async def test_the_status_tells_of_the_reader_and_the_lag(kit: Kit, reader: Reader) -> None:
    await kit.publish(numbered(9))
    await kit.until(lambda status: len(status.lanes) == 1)
    status = await kit.status()
    mode = admin_pb2.MODE_RANGES
    assert (status.mode, status.HasField("reader"), status.lanes[0].committed) == (mode, False, -1)
    await reader.attach("clicks")
    await reader.commit({0: 4})
    await kit.publish(numbered(1))
    await kit.until(lambda status: status.lanes[0].end == 10)
    status = await kit.status()
    lane = status.lanes[0]
    assert (lane.committed, lane.lag, status.counters.commits) == (4, 6, 1)
    assert (status.reader.name, status.reader.token) == ("clicks", reader.token)
    assert status.state == admin_pb2.SUBSCRIPTION_STATE_RUNNING


@with_reader()
async def test_a_stopping_sidecar_lets_a_range_come_to_its_end(kit: Kit, reader: Reader) -> None:
    for _ in range(8):
        await kit.publish([bytes(1000)] * 1000)
    answers = aiter(reader.range(0, 8000))
    first = await anext(answers)
    stopping = asyncio.create_task(kit.sidecar.stop(20))
    await kit.until(lambda status: status.state == admin_pb2.SUBSCRIPTION_STATE_DRAINING)
    async with refused(UNAVAILABLE, "stopping"):
        await reader.attach()
    rest = [len(answer.records) async for answer in answers]
    assert len(first.records) + sum(rest) == 8000
    await stopping

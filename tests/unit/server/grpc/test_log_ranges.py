"""`LogService` on a real sidecar: planning and reading ranges, and every mistake in a request."""

import asyncio
from pathlib import Path

import grpc
import pytest

from offramp.v1 import admin_pb2, log_pb2, publish_pb2
from sidecar.model.errors import Removed
from sidecar.model.records import Lane, Run
from sidecar.server.grpc import log_service, read_slots
from sidecar.settings import SubscriptionSettings
from tests.unit.server.grpc.log_kit import (
    EXHAUSTED,
    INVALID,
    NOT_FOUND,
    OUT_OF_RANGE,
    RANGES,
    TOPIC,
    Reader,
    by_lane,
    local,
    numbered,
    positions,
    ranged,
    refused,
    with_reader,
)
from tests.unit.server.grpc.service_kit import Kit, in_loop, with_sidecar

# Plan


@with_reader()
async def test_a_plan_changes_nothing_and_tells_the_ends(kit: Kit, reader: Reader) -> None:
    await kit.publish(numbered(9))
    first = await reader.plan({0: 2}, max_records=3)
    assert (by_lane(first.until), by_lane(first.ends)) == ({0: 5}, {0: 9})
    assert await reader.plan({0: 2}, max_records=3) == first
    assert await reader.attach() == {}


@with_reader()
async def test_a_plan_stops_at_its_ceiling_and_never_goes_back(kit: Kit, reader: Reader) -> None:
    await kit.publish(numbered(9))
    assert await reader.until({0: 2}, ceiling={0: 4}) == {0: 4}
    assert await reader.until({0: 6}, ceiling={0: 4}) == {0: 6}
    assert await reader.until({0: 9}) == {0: 9}


@with_reader()
async def test_a_limit_of_bytes_is_kept_by_the_average_size_of_records(kit: Kit, reader: Reader) -> None:
    await kit.publish([bytes(1000)] * 100)
    until = await reader.until({0: 0}, max_bytes=20_000)
    assert 18 <= until[0] <= 20
    assert await reader.until({0: 0}, max_bytes=1) == {0: 1}


@with_reader()
async def test_records_that_become_larger_are_seen_though_others_read_them(kit: Kit, reader: Reader) -> None:
    await kit.publish([bytes(10)] * 1000)
    assert (await reader.until({0: 0}, max_bytes=20_000))[0] > 500
    await kit.publish([bytes(1000)] * 1000)
    planned = [(await reader.until({0: 1000}, max_bytes=20_000))[0] - 1000 for _ in range(30)]
    assert planned[0] > 500, "it goes by what it has seen"
    assert 18 <= planned[-1] <= 20, "and looks again now and then"


@with_reader()
async def test_a_start_beyond_the_end_is_out_of_range(kit: Kit, reader: Reader) -> None:
    await kit.publish(numbered(3))
    async with refused(OUT_OF_RANGE, "ends at 3", "recreated"):
        await reader.until({0: 4})


@with_reader()
async def test_while_paused_nothing_is_planned(kit: Kit, reader: Reader) -> None:
    await kit.publish(numbered(3))
    await kit.admin.Pause(admin_pb2.PauseRequest(subscription="orders", reason="a migration"))
    assert await reader.until({0: 1}) == {0: 1}
    status = await kit.status()
    assert list(status.trouble) == ["paused: a migration"]
    await kit.admin.Resume(admin_pb2.ResumeRequest(subscription="orders"))
    assert await reader.until({0: 1}) == {0: 3}


# ReadRange


@with_reader()
async def test_a_range_can_be_read_again_byte_for_byte(kit: Kit, reader: Reader) -> None:
    await kit.publish(numbered(5000))
    once = b"".join([answer.SerializeToString() async for answer in reader.range(10, 4000)])
    await kit.publish(numbered(10))
    assert b"".join([answer.SerializeToString() async for answer in reader.range(10, 4000)]) == once


@with_reader()
async def test_a_range_ends_with_the_lane(kit: Kit, reader: Reader) -> None:
    await kit.publish(numbered(5))
    assert await reader.values(3, 100) == [b"3", b"4"]
    assert await reader.values(5, 100) == []
    assert await reader.values(2, 2) == []
    async with refused(OUT_OF_RANGE, "ends at 5"):
        await reader.values(6, 100)


@with_reader()
async def test_a_range_tells_in_the_end_where_its_lane_ended(kit: Kit, reader: Reader) -> None:
    await kit.publish(numbered(5))
    for start, until in ((0, 3), (3, 100), (5, 5)):
        call = reader.range(start, until)
        assert len([record async for answer in call for record in answer.records]) == min(until, 5) - start
        said = dict(await call.trailing_metadata())
        assert (said["offramp-first-position"], said["offramp-end-position"]) == ("0", "5")


@with_reader()
async def test_a_large_range_comes_in_messages_of_about_a_mebibyte(kit: Kit, reader: Reader) -> None:
    for _ in range(4):
        await kit.publish([bytes(1000)] * 1000)
    sizes = [answer.ByteSize() async for answer in reader.range(0, 4000)]
    assert max(sizes) <= 1 << 20
    assert len(sizes) <= 8


@with_reader()
async def test_a_message_is_never_larger_than_the_reader_takes(kit: Kit, reader: Reader) -> None:
    await kit.publish([bytes(1000)] * 20 + [bytes(9000)])
    sizes = [answer.ByteSize() async for answer in reader.range(0, 20, max_message_bytes=4096)]
    assert max(sizes) <= 4096
    async with refused(EXHAUSTED, "the record at 20 of orders/0", "max_message_bytes"):
        await reader.values(0, 21, max_message_bytes=8000)
    assert len(await reader.values(20, 21, max_message_bytes=10_000)) == 1


@with_reader()
async def test_what_retention_has_removed_is_out_of_range_and_says_what_is_left(kit: Kit, reader: Reader) -> None:
    for _ in range(20):
        await kit.publish([bytes(1000)] * 100)
    broker = local(kit)
    object.__setattr__(broker._options, "retention_bytes", 500_000)
    await broker.run_retention()
    first = (await reader.locate(earliest=log_pb2.StartEarliest())).positions[0].position
    assert 0 < first < 2000
    call = reader.range(first - 10, 2000)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        [answer async for answer in call]
    assert caught.value.code() is OUT_OF_RANGE
    assert f"begins at {first}" in (caught.value.details() or "")
    assert f"has removed {first - 10} to {first - 1}" in (caught.value.details() or "")
    trailing = dict(caught.value.trailing_metadata())
    assert (trailing["offramp-first-position"], trailing["offramp-end-position"]) == (str(first), "2000")
    assert len(await reader.values(first, 2000)) == 2000 - first
    # A plan goes on with what is there.
    assert await reader.until({0: 0}, max_records=5) == {0: first + 5}


@in_loop
async def test_a_client_that_does_not_read_holds_up_nobody_and_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_service, "MAX_READS", 1)
    async with ranged(tmp_path) as (kit, reader):
        for _ in range(8):
            await kit.publish([bytes(1000)] * 1000)
        # More than gRPC takes in before anybody reads it.
        slow = [aiter(reader.range(0, 8000)) for _ in range(3)]
        firsts = [(await anext(answers)).records for answers in slow]
        assert len(await reader.values(0, 1)) == 1
        for first, answers in zip(firsts, slow, strict=True):
            rest = [record.position async for answer in answers for record in answer.records]
            assert [*(record.position for record in first), *rest] == list(range(8000))


@in_loop
async def test_reads_of_one_subscription_do_not_wait_for_those_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_service, "MAX_READS", 1)
    monkeypatch.setattr(read_slots, "_BLOCKED_AFTER", 3600.0)
    both = {name: SubscriptionSettings(topics=(TOPIC,), group=name, mode=RANGES) for name in ("orders", "other")}
    async with ranged(tmp_path, subscriptions=both) as (kit, reader):
        for _ in range(8):
            await kit.publish([bytes(1000)] * 1000)
        first = aiter(reader.range(0, 8000))
        await anext(first)
        second = asyncio.create_task(reader.values(0, 1))
        assert len(await Reader(kit.channel, "other").values(0, 1)) == 1
        assert not second.done(), "one at a time"
        assert [_ async for _ in first]
        assert len(await second) == 1


@with_reader()
async def test_what_was_removed_before_a_read_goes_on_is_told(kit: Kit, reader: Reader) -> None:
    for _ in range(4):
        await kit.publish([bytes(1000)] * 1000)
    log = kit.sidecar._registry.ranged["orders"].log
    run = Run(0, 4000)
    end = await log.bounds(Lane(TOPIC, 0), run)
    chunks = log.read(Lane(TOPIC, 0), run, end, 1 << 20, lambda: True)
    chunk = await anext(chunks)
    assert 0 < len(chunk.frames) < 4000
    object.__setattr__(local(kit)._options, "retention_bytes", 100_000)
    await local(kit).run_retention()
    with pytest.raises(Removed, match=f"has removed {chunk.positions[-1] + 1} to"):
        await anext(chunks)


@with_reader()
async def test_what_is_removed_while_it_is_read_is_told(kit: Kit, reader: Reader) -> None:
    for _ in range(12):
        await kit.publish([bytes(1000)] * 1000)
    answers = aiter(reader.range(0, 12_000))
    seen = [record.position for record in (await anext(answers)).records]
    object.__setattr__(local(kit)._options, "retention_bytes", 500_000)
    await local(kit).run_retention()
    async with refused(OUT_OF_RANGE, "the broker has removed", "of what was to be read"):
        async for answer in answers:
            seen += [record.position for record in answer.records]
    # What came before it is in order.
    assert seen == sorted(seen)
    assert len(seen) < 12_000


@with_sidecar()
async def test_dead_letters_of_a_leased_subscription_can_be_read_by_range(kit: Kit) -> None:
    reader = Reader(kit.channel)
    await kit.publish(numbered(3), topic="orders.offramp.dead")
    end = (await reader.locate("orders.offramp.dead", latest=log_pb2.StartLatest())).positions
    assert [(one.topic, one.lane, one.position) for one in end] == [("orders.offramp.dead", 0, 3)]
    assert await reader.values(0, 3, topic="orders.offramp.dead") == numbered(3)


@with_sidecar()
async def test_dead_letters_are_found_without_knowing_their_topic(kit: Kit) -> None:
    reader = Reader(kit.channel)
    none = await reader.locate(dead_letters=True, latest=log_pb2.StartLatest())
    assert (list(none.positions), none.group) == ([], "orders")
    await kit.publish(numbered(3), topic="orders.offramp.dead")
    found = await reader.locate(dead_letters=True, latest=log_pb2.StartLatest())
    assert [(one.topic, one.position) for one in found.positions] == [("orders.offramp.dead", 3)]
    async with refused(INVALID, "topics or dead_letters"):
        await reader.locate("orders", dead_letters=True, latest=log_pb2.StartLatest())


@with_reader()
async def test_other_topics_cannot_be_read(kit: Kit, reader: Reader) -> None:
    await kit.publish(numbered(3), topic="secrets")
    for call in (
        lambda: reader.values(0, 3, topic="secrets"),
        lambda: reader.locate("secrets", latest=log_pb2.StartLatest()),
    ):
        async with refused(NOT_FOUND, '"secrets"', "orders, orders.offramp.dead, orders.offramp.retry"):
            await call()


@with_reader()
async def test_positions_by_time_are_found_without_pinning_them(kit: Kit, reader: Reader) -> None:
    messages = [publish_pb2.Message(value=b"v", lane=0, timestamp_ms=1_000 * n) for n in range(1, 8)]
    await kit.publisher.Publish(publish_pb2.PublishRequest(broker="local", topic=TOPIC, messages=messages))
    assert by_lane((await reader.locate(timestamp_ms=2_000)).positions) == {0: 1}
    assert by_lane((await reader.locate(TOPIC, timestamp_ms=99_000)).positions) == {0: 7}
    assert await reader.attach() == {}


# What is wrong with a request


@with_reader()
async def test_every_mistake_is_told(kit: Kit, reader: Reader) -> None:
    await kit.publish(numbered(3))
    await reader.attach()
    stub = reader.stub
    twice = positions({0: 1}) + positions({0: 2})
    calls = (
        (INVALID, "subscription must be given", stub.Attach(log_pb2.AttachRequest())),
        (NOT_FOUND, "there are: orders", stub.Attach(log_pb2.AttachRequest(subscription="order"))),
        (INVALID, "start: -1 of orders/0 is negative", reader.until({0: -1})),
        (INVALID, "named twice", stub.Plan(log_pb2.PlanRequest(subscription="orders", start=twice))),
        (NOT_FOUND, "no lane orders/7; it has orders/0", reader.until({7: 0})),
        (NOT_FOUND, "no lane orders/7; it has orders/0", reader.until({}, ceiling={7: 0})),
        (NOT_FOUND, "no lane orders/7; it has orders/0", reader.commit({7: 0})),
        (INVALID, "positions: -3 of orders/0 is negative", reader.commit({0: -3})),
        (INVALID, "earliest, latest or timestamp_ms", reader.locate()),
        (INVALID, "timestamp_ms: -1 is negative", reader.locate(timestamp_ms=-1)),
        (INVALID, "topic must be given", reader.values(0, 1, topic="")),
        (INVALID, "start: -1 is negative", reader.values(-1, 1)),
        (INVALID, "until: 1 is before start, which is 2", reader.values(2, 1)),
        (NOT_FOUND, "has no lane 7; it has 1, counted from 0", reader.values(0, 1, lane=7)),
        (INVALID, "max_message_bytes", reader.values(0, 1, max_message_bytes=10)),
    )
    for status, text, call in calls:
        async with refused(status, text):
            await call


@pytest.mark.parametrize("method", [one.name for one in log_pb2.DESCRIPTOR.services_by_name["LogService"].methods])
@with_sidecar(mode=RANGES)
async def test_bytes_that_are_no_message_are_refused(kit: Kit, method: str) -> None:
    path = f"/offramp.v1.LogService/{method}"
    async with refused(INVALID, method, "bytes are not"):
        if method == "ReadRange":
            [_ async for _ in kit.channel.unary_stream(path)(b"\xff\xff")]
        else:
            await kit.channel.unary_unary(path)(b"\xff\xff")

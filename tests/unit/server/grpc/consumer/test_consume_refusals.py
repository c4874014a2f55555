"""Why a stream is refused: broken rules, garbage, too much of anything."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from offramp.v1 import consumer_pb2, error_pb2, record_pb2
from tests.unit.server.grpc.service_kit import (
    ACK,
    NACK,
    ONE,
    Kit,
    Stream,
    ended,
    in_loop,
    serving,
    settlement,
    with_sidecar,
)

BROKEN = {
    "an unspecified outcome": record_pb2.Settlement(outcome=record_pb2.OUTCOME_UNSPECIFIED),
    "an unknown outcome": record_pb2.Settlement.FromString(b"\x10\x63"),
    "a part beyond the batch": record_pb2.Settlement(
        outcome=ACK, parts=[record_pb2.Part(first=1, count=1, outcome=NACK)]
    ),
    "a part of an unspecified outcome": record_pb2.Settlement(outcome=ACK, parts=[record_pb2.Part(count=1)]),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
@with_sidecar(batch=ONE)
async def test_a_settlement_that_breaks_a_rule_is_refused_and_the_others_of_its_request_count(
    kit: Kit, broken: record_pb2.Settlement
) -> None:
    await kit.publish([b"a", b"b"])
    stream = await kit.stream(batches=2)
    good, bad = await stream.batch(), await stream.batch()
    wrong = record_pb2.Settlement()
    wrong.CopyFrom(broken)
    wrong.lease = bad.lease
    await stream.settle(wrong, settlement(good))
    refused, settled = await stream.result(), await stream.result()
    assert (refused.lease, refused.status) == (bad.lease, record_pb2.SETTLE_STATUS_REFUSED)
    assert refused.reason in (error_pb2.ERROR_REASON_UNKNOWN_OUTCOME, error_pb2.ERROR_REASON_INVALID_PARTS)
    assert refused.detail
    assert (settled.lease, settled.status) == (good.lease, record_pb2.SETTLE_STATUS_SETTLED)
    status = await kit.status()
    assert (status.counters.acked, status.counters.refused_settlements, status.leases) == (1, 1, 1)
    # Its records are still in hand.
    await stream.settle(settlement(bad))
    assert (await stream.result()).status == record_pb2.SETTLE_STATUS_SETTLED


FIRST_REQUESTS = {
    "no hello": (consumer_pb2.ConsumeRequest(draining=True), grpc.StatusCode.INVALID_ARGUMENT, "hello"),
    "an unknown subscription": (
        consumer_pb2.ConsumeRequest(hello=consumer_pb2.Hello(subscription="ordres")),
        grpc.StatusCode.NOT_FOUND,
        "orders",
    ),
    "no subscription": (
        consumer_pb2.ConsumeRequest(hello=consumer_pb2.Hello()),
        grpc.StatusCode.INVALID_ARGUMENT,
        "orders",
    ),
    "a newer protocol": (
        consumer_pb2.ConsumeRequest(
            hello=consumer_pb2.Hello(subscription="orders", client=consumer_pb2.Client(needs_protocol_minor=99))
        ),
        grpc.StatusCode.FAILED_PRECONDITION,
        "99",
    ),
    "a tiny message limit": (
        consumer_pb2.ConsumeRequest(hello=consumer_pb2.Hello(subscription="orders", max_message_bytes=1)),
        grpc.StatusCode.INVALID_ARGUMENT,
        "max_message_bytes",
    ),
}


@pytest.mark.parametrize(("first", "code", "word"), FIRST_REQUESTS.values(), ids=FIRST_REQUESTS.keys())
@with_sidecar()
async def test_a_first_request_that_breaks_a_rule_is_refused_with_a_reason(
    kit: Kit, first: consumer_pb2.ConsumeRequest, code: grpc.StatusCode, word: str
) -> None:
    stream = Stream(kit.consumer)
    await stream.call.write(first)
    assert await stream.end() == code
    assert word in await stream.call.details()


@with_sidecar()
async def test_a_second_hello_is_refused(kit: Kit) -> None:
    stream = await kit.stream()
    await stream.send(hello=consumer_pb2.Hello(subscription="orders"))
    assert await stream.end() == grpc.StatusCode.INVALID_ARGUMENT


@in_loop
async def test_a_rule_that_is_broken_while_the_welcome_is_being_written_is_answered_too(tmp_path: Path) -> None:
    hello = consumer_pb2.ConsumeRequest(hello=consumer_pb2.Hello(subscription="orders"))

    async def two_hellos() -> AsyncIterator[consumer_pb2.ConsumeRequest]:
        yield hello
        yield hello
        # A client that says no more, but has not left.
        await asyncio.Event().wait()

    async with serving(tmp_path) as kit:
        for _ in range(30):
            assert await ended(kit.consumer.Consume(two_hellos())) == grpc.StatusCode.INVALID_ARGUMENT


@with_sidecar()
async def test_a_stream_that_ends_before_its_hello_is_refused(kit: Kit) -> None:
    stream = Stream(kit.consumer)
    await stream.call.done_writing()
    assert await stream.end() == grpc.StatusCode.INVALID_ARGUMENT


@with_sidecar()
async def test_garbage_gets_invalid_argument_and_disturbs_nobody(kit: Kit) -> None:
    bystander = await kit.stream()
    method = kit.channel.stream_stream("/offramp.v1.ConsumerService/Consume")
    for garbage in (b"\xff" * 50, b"GET / HTTP/1.1\r\n\r\n"):
        call = method()
        await call.write(garbage)
        assert await call.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "Consume" in await call.details()
    await kit.publish([b"a"])
    await bystander.batch()


@with_sidecar()
async def test_garbage_in_the_middle_of_a_stream_ends_that_stream_only(kit: Kit) -> None:
    await kit.publish([b"a"])
    call = kit.channel.stream_stream("/offramp.v1.ConsumerService/Consume")()
    hello = consumer_pb2.Hello(subscription="orders", credit=consumer_pb2.Credit(batches=1))
    await call.write(consumer_pb2.ConsumeRequest(hello=hello).SerializeToString())
    await kit.until(lambda status: status.leases == 1)
    await call.write(b"\xff\xff\xff")
    assert await ended(call) == grpc.StatusCode.INVALID_ARGUMENT
    other = await kit.stream()
    assert (await other.batch()).records[0].value == b"a"


@with_sidecar(listen={"max_request_bytes": 64 << 10})
async def test_a_request_over_the_size_limit_ends_the_stream(kit: Kit) -> None:
    stream = await kit.stream()
    await stream.settle(record_pb2.Settlement(lease=bytes(16), outcome=NACK, reason="x" * 70_000))
    assert await stream.end(by_grpc=True) == grpc.StatusCode.RESOURCE_EXHAUSTED
    await kit.until(lambda status: not status.sessions)


@with_sidecar(listen={"max_sessions": 2})
async def test_one_session_too_many_is_refused_and_room_is_made_when_one_leaves(kit: Kit) -> None:
    first = await kit.stream()
    await kit.stream()
    third = Stream(kit.consumer)
    await third.send(hello=consumer_pb2.Hello(subscription="orders"))
    assert await third.end() == grpc.StatusCode.RESOURCE_EXHAUSTED
    first.call.cancel()
    await kit.until(lambda status: len(status.sessions) == 1)
    await kit.stream()


@with_sidecar()
async def test_a_client_that_settles_but_never_reads_is_not_read_without_end(kit: Kit) -> None:
    call = kit.consumer.Consume()
    await call.write(consumer_pb2.ConsumeRequest(hello=consumer_pb2.Hello(subscription="orders")))
    nonsense = [record_pb2.Settlement(lease=bytes(16), outcome=ACK)] * 10_000
    sent = 0

    async def flood() -> None:
        nonlocal sent
        while True:
            await call.write(consumer_pb2.ConsumeRequest(settlements=nonsense))
            sent += 1

    flooding = asyncio.create_task(flood())
    last = -1

    def stalled() -> bool:
        nonlocal last
        same, last = sent == last, sent
        return same

    for _ in range(200):
        await asyncio.sleep(0.1)
        if stalled():
            break
    else:
        raise AssertionError(f"{sent} requests were read without one answer being taken")
    flooding.cancel()
    call.cancel()

"""`ConsumerService.Consume`, over a real connection within one process."""

import asyncio
from pathlib import Path

import grpc
import pytest

from offramp.v1 import consumer_pb2, record_pb2
from sidecar.settings import BatchSettings, Bytes, RetrySettings, Seconds, SubscriptionSettings
from tests.unit.server.grpc.service_kit import (
    ACK,
    NACK,
    ONE,
    SETTLED,
    STALE,
    UNKNOWN,
    Kit,
    Stream,
    in_loop,
    serving,
    settlement,
    with_sidecar,
)


@with_sidecar()
async def test_a_batch_is_delivered_and_an_ack_of_it_is_settled_and_committed(kit: Kit) -> None:
    await kit.publish([b"a", b"b"])
    stream = await kit.stream()
    batch = await stream.batch()
    assert [record.value for record in batch.records] == [b"a", b"b"]
    await stream.settle(settlement(batch))
    result = await stream.result()
    assert (result.lease, result.status) == (batch.lease, SETTLED)
    await kit.until(lambda status: status.lanes[0].committed == 2)


@with_sidecar(batch=BatchSettings(records=7))
async def test_the_welcome_comes_first_and_says_what_holds_here(kit: Kit) -> None:
    await kit.publish([b"a"])
    stream = await kit.stream()
    assert stream.responses == 1
    assert len(stream.welcome.session) == 16
    assert len(stream.welcome.boot) == 8
    assert stream.welcome.limits.batch_records == 7
    assert stream.welcome.limits.max_request_bytes == 4 << 20
    batch = await stream.batch()
    assert batch.lease.startswith(stream.welcome.boot)


@with_sidecar(batch=ONE)
async def test_every_settlement_gets_one_result_in_its_order(kit: Kit) -> None:
    await kit.publish([b"%d" % n for n in range(20)])
    stream = await kit.stream(batches=20)
    batches = [await stream.batch() for _ in range(20)]
    for batch in reversed(batches):
        await stream.settle(settlement(batch))
    results = [await stream.result() for _ in range(20)]
    assert [result.lease for result in results] == [batch.lease for batch in reversed(batches)]


@with_sidecar(batch=ONE)
async def test_no_more_batches_are_unsettled_than_the_credit_allows(kit: Kit) -> None:
    await kit.publish([b"%d" % n for n in range(10)])
    stream = await kit.stream(batches=2)
    first = await stream.batch()
    await stream.batch()
    await stream.no_batch()
    await stream.settle(settlement(first))
    await stream.batch()
    await stream.no_batch()


@with_sidecar(batch=ONE)
async def test_zero_credit_pauses_and_more_credit_goes_on(kit: Kit) -> None:
    await kit.publish([b"a", b"b"])
    stream = await kit.stream(batches=0)
    await stream.no_batch()
    await stream.send(credit=consumer_pb2.Credit(batches=1))
    batch = await stream.batch()
    await stream.send(credit=consumer_pb2.Credit(batches=0), settlements=[settlement(batch)])
    await stream.result()
    await stream.no_batch()


@with_sidecar(batch=ONE)
async def test_several_batches_share_a_frame(kit: Kit) -> None:
    await kit.publish([b"%d" % n for n in range(200)])
    await kit.until(lambda status: status.counters.fetched == 200)
    stream = await kit.stream(batches=200)
    for _ in range(200):
        await stream.batch()
    assert stream.responses < 20


@with_sidecar(batch=BatchSettings(records=1_000, bytes=Bytes(1 << 20)))
async def test_no_response_is_larger_than_the_client_says_it_takes(kit: Kit) -> None:
    await kit.publish([bytes(3_000)] * 100)
    await kit.until(lambda status: status.counters.fetched == 100)
    channel = grpc.aio.insecure_channel(kit.target, options=[("grpc.max_receive_message_length", 10_000)])
    async with channel:
        from offramp.v1 import consumer_pb2_grpc

        stream = Stream(consumer_pb2_grpc.ConsumerServiceStub(channel))
        await stream.hello(batches=100, max_message_bytes=10_000)
        records = 0
        while records < 100:
            records += len((await stream.batch()).records)


@with_sidecar(batch=ONE)
async def test_a_half_close_releases_what_is_held_without_counting_it(kit: Kit) -> None:
    await kit.publish([b"a", b"b"])
    leaving = await kit.stream(batches=2)
    first = await leaving.batch()
    await leaving.batch()
    await leaving.settle(settlement(first))
    await leaving.call.done_writing()
    assert (await leaving.result()).status == SETTLED
    assert await leaving.end() == grpc.StatusCode.OK
    staying = await kit.stream()
    again = await staying.batch()
    assert again.records[0].value == b"b"
    assert all(one.attempt <= 1 for one in again.redeliveries)
    assert (await kit.status()).counters.abandoned == 0


@with_sidecar()
async def test_a_cancelled_stream_is_a_lost_session_whose_batch_comes_back_counted(kit: Kit) -> None:
    await kit.publish([b"a"])
    lost = await kit.stream()
    await lost.batch()
    staying = await kit.stream()
    lost.call.cancel()
    again = await staying.batch()
    assert (again.redeliveries[0].attempt, again.redeliveries[0].possibly_processed) == (2, True)


@with_sidecar(batch=ONE)
async def test_after_draining_no_further_batch_is_sent(kit: Kit) -> None:
    await kit.publish([b"%d" % n for n in range(10)])
    stream = await kit.stream()
    batch = await stream.batch()
    await stream.send(draining=True, settlements=[settlement(batch)], credit=consumer_pb2.Credit(batches=10))
    await stream.result()
    await stream.no_batch()
    await stream.call.done_writing()
    assert await stream.end() == grpc.StatusCode.OK
    await stream.no_batch()


@with_sidecar(batch=BatchSettings(records=1, bytes=Bytes(1 << 20)))
async def test_batches_that_were_never_written_do_not_count_as_attempts_of_a_lost_client(kit: Kit) -> None:
    # Far more than the connection takes in while nobody reads.
    for _ in range(40):
        await kit.publish([bytes(500_000)])
    deaf = kit.consumer.Consume()
    hello = consumer_pb2.Hello(subscription="orders", credit=consumer_pb2.Credit(batches=40))
    await deaf.write(consumer_pb2.ConsumeRequest(hello=hello))
    # What the connection has taken in, and what waits for it to take in more.
    await kit.until(lambda status: status.leases >= 16)
    deaf.cancel()
    await kit.until(lambda status: not status.sessions)
    counters = (await kit.status()).counters
    assert counters.released > 0
    assert counters.released + counters.abandoned == counters.delivered


@with_sidecar()
async def test_settling_twice_gets_the_same_answer_and_settling_otherwise_is_stale(kit: Kit) -> None:
    await kit.publish([b"a"])
    stream = await kit.stream()
    batch = await stream.batch()
    await stream.settle(settlement(batch), settlement(batch), settlement(batch, NACK))
    assert [(await stream.result()).status for _ in range(3)] == [SETTLED, SETTLED, STALE]


@pytest.mark.parametrize("lease", [b"", b"short", bytes(16), bytes(100)])
@with_sidecar()
async def test_a_lease_that_never_was_is_unknown(kit: Kit, lease: bytes) -> None:
    stream = await kit.stream()
    await stream.settle(record_pb2.Settlement(lease=lease, outcome=ACK))
    result = await stream.result()
    assert (result.lease, result.status) == (lease, UNKNOWN)
    await stream.send(extensions=[record_pb2.Extension(lease=lease, lease_for_ms=1_000)])
    assert (await stream.extended()).status == UNKNOWN


@in_loop
async def test_a_lease_ends_at_its_time_and_lasts_longer_if_it_is_extended(tmp_path: Path) -> None:
    retry = RetrySettings(first=Seconds(0.0))
    async with serving(tmp_path, batch=ONE, retry=retry) as kit:
        await kit.publish([b"a", b"b"])
        stream = await kit.stream(batches=2, lease_ms=2_000)
        kept, expiring = await stream.batch(), await stream.batch()
        assert kept.lease_for_ms == 2_000
        await stream.send(extensions=[record_pb2.Extension(lease=kept.lease, lease_for_ms=60_000)])
        extended = await stream.extended()
        assert extended.lease == kept.lease
        assert 59_000 < extended.lease_for_ms <= 60_000
        again = await stream.batch()
        assert again.records[0].value == b"b"
        await stream.settle(settlement(kept), settlement(expiring))
        assert [(await stream.result()).status for _ in range(2)] == [SETTLED, STALE]


@in_loop
async def test_a_session_may_settle_leases_of_another_subscription(tmp_path: Path) -> None:

    subscriptions = {name: SubscriptionSettings(topics=(name,)) for name in ("one", "two")}
    async with serving(tmp_path, subscriptions=subscriptions) as kit:
        await kit.publish([b"a"], "one")
        await kit.publish([b"b"], "two")
        one, two = await kit.stream("one"), await kit.stream("two")
        first, second = await one.batch(), await two.batch()
        await two.settle(settlement(second), settlement(first))
        assert [(await two.result()).lease for _ in range(2)] == [second.lease, first.lease]
        assert (await kit.status("one")).counters.acked == 1


@in_loop
async def test_a_paused_subscription_says_so_to_its_workers_and_when_it_goes_on(tmp_path: Path) -> None:
    from offramp.v1 import admin_pb2

    async with serving(tmp_path) as kit:
        stream = await kit.stream()
        await kit.admin.Pause(admin_pb2.PauseRequest(subscription="orders", reason="the moon is full"))
        notice = await stream.notice()
        assert (notice.kind, notice.detail) == (consumer_pb2.NOTICE_KIND_PAUSED, "the moon is full")
        await kit.publish([b"a"])
        await stream.no_batch()
        await kit.admin.Resume(admin_pb2.ResumeRequest(subscription="orders"))
        assert (await stream.notice()).kind == consumer_pb2.NOTICE_KIND_RESUMED
        await stream.batch()


@with_sidecar()
async def test_when_the_sidecar_stops_workers_are_told_may_settle_and_then_get_unavailable(kit: Kit) -> None:
    await kit.publish([b"a"])
    stream = await kit.stream()
    batch = await stream.batch()
    stop = asyncio.create_task(kit.sidecar.stop(10.0))
    assert (await stream.notice()).kind == consumer_pb2.NOTICE_KIND_DRAINING
    late = Stream(kit.consumer)
    await late.send(hello=consumer_pb2.Hello(subscription="orders"))
    assert await late.end() == grpc.StatusCode.UNAVAILABLE
    await stream.settle(settlement(batch))
    assert (await stream.result()).status == SETTLED
    assert await stream.end() == grpc.StatusCode.UNAVAILABLE
    await stop


@with_sidecar()
async def test_the_status_shows_who_is_connected(kit: Kit) -> None:
    client = consumer_pb2.Client(language="python", library="kit", pid=42, name="worker-1")
    stream = await kit.stream(client=client)
    (session,) = (await kit.status()).sessions
    assert (session.name, session.language, session.library, session.pid) == ("worker-1", "python", "kit", 42)
    assert session.session == stream.welcome.session
    await kit.stream(client=consumer_pb2.Client(pid=43))
    names = [session.name for session in (await kit.status()).sessions]
    assert any(name.endswith("-43") for name in names)


@with_sidecar(batch=BatchSettings(records=10))
async def test_a_client_gets_batches_of_no_more_records_than_it_asks_for(kit: Kit) -> None:
    await kit.publish([b"%d" % number for number in range(5)])
    stream = await kit.stream(batches=2, max_batch_records=2)
    assert [len((await stream.batch()).records) for _ in range(2)] == [2, 2]


@with_sidecar()
async def test_without_any_credit_in_hello_it_is_one_batch(kit: Kit) -> None:
    await kit.publish([b"a"])
    stream = Stream(kit.consumer)
    await stream.send(hello=consumer_pb2.Hello(subscription="orders"))
    await stream.batch()
    status = await kit.status()
    assert [session.credit_batches for session in status.sessions] == [1]


TOPIC = "😀" * 240


@with_sidecar(subscriptions={"orders": SubscriptionSettings(topics=(TOPIC,))})
async def test_the_name_of_a_topic_makes_no_response_larger_than_the_client_takes(kit: Kit) -> None:
    limit = 4_096
    await kit.publish([b"x" * size for size in range(2_000, 2_500, 20)], topic=TOPIC)
    stream = await kit.stream(batches=100, max_message_bytes=limit)
    for _ in range(3):
        batch = await stream.batch()
        assert consumer_pb2.ConsumeResponse(batches=[batch]).ByteSize() <= limit


@with_sidecar(batch=ONE)
async def test_a_notice_says_how_long_leases_can_be_settled(kit: Kit) -> None:
    await kit.publish([b"a"])
    stream = await kit.stream()
    batch = await stream.batch()
    stop = asyncio.create_task(kit.sidecar.stop(30.0))
    notice = await stream.notice()
    assert notice.kind == consumer_pb2.NOTICE_KIND_DRAINING
    assert 20_000 < notice.settle_for_ms <= 30_000
    await stream.settle(settlement(batch))
    await stop

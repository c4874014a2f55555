"""`ConsumerService.Open` and `Fetch`, over a real connection within one process."""

import asyncio
import gc
from pathlib import Path
from typing import Any

import grpc
import pytest

from offramp.v1 import admin_pb2, consumer_pb2, record_pb2
from sidecar.model.records import Notice, NoticeKind
from sidecar.server.grpc.consumer.fetch_session import FetchSession
from sidecar.server.grpc.consumer.pending_notices import PendingNotices
from sidecar.settings import BatchSettings, Bytes, LeaseSettings, Seconds
from tests.unit.server.grpc.consumer.fetch_kit import Session, alone, leave_unread_while_waiting, refused, values
from tests.unit.server.grpc.service_kit import (
    ACK,
    NACK,
    ONE,
    SETTLED,
    STALE,
    UNKNOWN,
    Kit,
    ended,
    in_loop,
    serving,
    settlement,
    with_sidecar,
)


@with_sidecar(batch=ONE)
async def test_one_call_settles_what_was_leased_before_and_leases_what_comes_next(kit: Kit) -> None:
    await kit.publish([b"a", b"b"])
    session = await Session.open(kit)
    first = await session.fetch()
    assert values(first) == [b"a"]
    second = await session.fetch(settlement(first.batches[0]))
    assert [result.status for result in second.results] == [SETTLED]
    assert values(second) == [b"b"]
    assert (await kit.status()).leases == 1


@with_sidecar()
async def test_a_fetch_waits_for_a_batch_and_answers_as_soon_as_there_is_one(kit: Kit) -> None:
    session = await Session.open(kit)
    call = session.fetch()
    await kit.until(lambda status: status.sessions[0].credit_batches == 1)
    await kit.publish([b"a"])
    assert values(await call) == [b"a"]


@pytest.mark.parametrize("wait_ms", [0, 30])
@with_sidecar()
async def test_a_fetch_that_finds_nothing_in_time_answers_without_batches(kit: Kit, wait_ms: int) -> None:
    session = await Session.open(kit)
    assert values(await session.fetch(wait_ms=wait_ms)) == []
    assert values(await alone(kit, wait_ms=wait_ms)) == []


@with_sidecar()
async def test_a_session_that_ended_keeps_nothing_of_its_answers_although_its_leases_are_remembered(kit: Kit) -> None:
    await kit.publish([b"a"])
    session = await Session.open(kit)
    fetched = await session.fetch()
    said = consumer_pb2.SettleRequest(settlements=[settlement(fetched.batches[0])])
    assert [result.status for result in (await kit.consumer.Settle(said)).results] == [SETTLED]
    session.call.cancel()
    await kit.until(lambda status: not status.sessions)
    gc.collect()
    assert not [thing for thing in gc.get_objects() if isinstance(thing, FetchSession)]


@with_sidecar()
async def test_a_session_keeps_no_response_whose_batches_are_all_settled(kit: Kit) -> None:
    await kit.publish([b"x" * 100_000])
    session = await Session.open(kit)
    fetched = await session.fetch()
    (kept,) = (thing for thing in gc.get_objects() if isinstance(thing, FetchSession) and thing.id == session.id)
    assert len(kept.remembered) > 100_000
    said = consumer_pb2.SettleRequest(settlements=[settlement(fetched.batches[0])])
    assert [result.status for result in (await kit.consumer.Settle(said)).results] == [SETTLED]
    assert len(kept.remembered) < 1_000
    assert values(await session.fetch(seq=session.seq)) == []


@with_sidecar()
async def test_a_name_that_nobody_would_choose_gets_the_status_that_it_should(kit: Kit) -> None:
    request = consumer_pb2.FetchRequest(subscription="\N{GRINNING FACE}" * 3_000)
    code, details = await refused(kit.consumer.Fetch(request))
    assert code is grpc.StatusCode.NOT_FOUND
    assert details


@with_sidecar(batch=ONE)
async def test_a_fetch_that_does_not_wait_gets_what_is_there(kit: Kit) -> None:
    await kit.publish([b"a", b"b"])
    await kit.until(lambda status: status.counters.fetched == 2)
    session = await Session.open(kit)
    assert values(await session.fetch(wait_ms=0)) == [b"a"]
    assert values(await alone(kit, wait_ms=0)) == [b"b"]


@with_sidecar(batch=ONE)
async def test_a_fetch_brings_as_many_batches_as_it_wants_and_none_if_it_only_settles(kit: Kit) -> None:
    await kit.publish([b"%d" % n for n in range(5)])
    await kit.until(lambda status: status.counters.fetched == 5)
    session = await Session.open(kit)
    three = await session.fetch(want=consumer_pb2.Credit(batches=3))
    assert values(three) == [b"0", b"1", b"2"]
    only = await session.fetch(*map(settlement, three.batches), want=consumer_pb2.Credit(batches=0))
    assert [result.status for result in only.results] == [SETTLED] * 3
    assert values(only) == []
    assert values(await session.fetch(want=consumer_pb2.Credit(batches=9))) == [b"3", b"4"]


@with_sidecar(batch=BatchSettings(records=10, bytes=Bytes(1 << 20)))
async def test_a_fetch_wants_bytes_on_top_of_what_is_held_already(kit: Kit) -> None:
    await kit.publish([bytes(1_000)] * 8)
    await kit.until(lambda status: status.counters.fetched == 8)
    session = await Session.open(kit)
    want = consumer_pb2.Credit(batches=1, bytes=2_500)
    for _ in range(3):
        assert len(values(await session.fetch(want=want))) == 2


@with_sidecar(batch=BatchSettings(records=2))
async def test_no_answer_is_larger_than_the_client_says_it_takes(kit: Kit) -> None:
    await kit.publish([bytes(3_000)] * 20)
    await kit.until(lambda status: status.counters.fetched == 20)
    want = consumer_pb2.Credit(batches=20)
    session = await Session.open(kit, max_message_bytes=16_000)
    seen = 0
    while seen < 10:
        response = await session.fetch(want=want)
        assert response.ByteSize() <= 16_000
        seen += len(values(response))
    smaller = await session.fetch(want=want, max_message_bytes=8_000)
    assert 0 < smaller.ByteSize() <= 8_000
    assert (await alone(kit, want=want, max_message_bytes=5_000)).ByteSize() <= 5_000
    # What did not fit is not lost, and nobody is blamed for it.
    assert (await kit.status()).counters.abandoned == 0


@with_sidecar(batch=ONE)
async def test_a_session_has_no_credit_between_its_calls(kit: Kit) -> None:
    await kit.publish([b"a", b"b"])
    session = await Session.open(kit)
    first = await session.fetch()
    await session.fetch(settlement(first.batches[0]), want=consumer_pb2.Credit())
    status = await kit.status()
    assert (status.sessions[0].credit_batches, status.leases) == (0, 0)


@with_sidecar()
async def test_when_the_session_ends_its_batch_comes_back_at_once_counted(kit: Kit) -> None:
    await kit.publish([b"a"])
    session = await Session.open(kit)
    await session.fetch()
    session.call.cancel()
    other = await Session.open(kit)
    response = await other.fetch()
    assert response.batches[0].redeliveries[0].attempt == 2
    code, details = await refused(session.fetch())
    assert code == grpc.StatusCode.NOT_FOUND
    assert session.id.hex() in details


@with_sidecar(batch=ONE, lease=LeaseSettings(max=Seconds(600)))
async def test_under_a_session_a_lease_lasts_as_long_as_was_asked_for(kit: Kit) -> None:
    await kit.publish([b"%d" % n for n in range(4)])
    session = await Session.open(kit, lease_ms=5_000)
    assert (await session.fetch()).batches[0].lease_for_ms == 5_000
    assert (await session.fetch(lease_ms=7_000)).batches[0].lease_for_ms == 7_000
    assert (await session.fetch()).batches[0].lease_for_ms == 5_000
    assert (await alone(kit)).batches[0].lease_for_ms == 30_000


@with_sidecar()
async def test_without_a_session_a_lease_is_given_back_when_its_time_is_over(kit: Kit) -> None:
    await kit.publish([b"a"])
    first = await alone(kit, lease_ms=50)
    assert first.batches[0].lease_for_ms == 50
    assert not (await kit.status()).sessions
    again = await alone(kit)
    assert again.batches[0].redeliveries[0].possibly_processed
    late = await alone(kit, settlement(first.batches[0]), want=consumer_pb2.Credit())
    assert late.results[0].status == STALE


@with_sidecar(batch=ONE)
async def test_without_a_session_a_batch_is_settled_by_the_next_call(kit: Kit) -> None:
    await kit.publish([b"a", b"b"])
    first = await alone(kit)
    second = await alone(kit, settlement(first.batches[0]))
    assert (second.results[0].status, values(second)) == (SETTLED, [b"b"])


@with_sidecar()
async def test_a_waiting_call_without_a_session_that_is_given_up_leaves_nothing_behind(kit: Kit) -> None:
    call = alone(kit)
    await kit.until(lambda status: status.sessions)
    call.cancel()
    await kit.until(lambda status: not status.sessions)
    await kit.publish([b"a"])
    response = await alone(kit)
    assert all(one.attempt <= 1 for batch in response.batches for one in batch.redeliveries)


WRONG: dict[str, tuple[dict[str, Any], grpc.StatusCode]] = {
    "a number without a session": ({"subscription": "orders", "seq": 1}, grpc.StatusCode.INVALID_ARGUMENT),
    "an unknown subscription": ({"subscription": "nope"}, grpc.StatusCode.NOT_FOUND),
    "neither session nor subscription": ({}, grpc.StatusCode.INVALID_ARGUMENT),
    "an unknown session": ({"session": bytes(16), "seq": 1}, grpc.StatusCode.NOT_FOUND),
    "a newer protocol": (
        {"subscription": "orders", "client": consumer_pb2.Client(needs_protocol_minor=99)},
        grpc.StatusCode.FAILED_PRECONDITION,
    ),
}


@pytest.mark.parametrize(("fields", "code"), WRONG.values(), ids=WRONG.keys())
@with_sidecar()
async def test_a_fetch_that_breaks_a_rule_is_refused(kit: Kit, fields: dict[str, Any], code: grpc.StatusCode) -> None:
    assert (await refused(kit.consumer.Fetch(consumer_pb2.FetchRequest(**fields))))[0] == code


@with_sidecar()
async def test_a_fetch_for_another_subscription_than_the_sessions_is_refused(kit: Kit) -> None:
    session = await Session.open(kit)
    code, details = await refused(session.fetch(subscription="payments"))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "orders" in details


@with_sidecar()
async def test_garbage_gets_invalid_argument_from_every_method(kit: Kit) -> None:
    for method in ("Fetch", "Settle", "ExtendLease"):
        call = kit.channel.unary_unary(f"/offramp.v1.ConsumerService/{method}")(b"\xff\xff")
        code, details = await refused(call)
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert method in details
    opened = kit.channel.unary_stream("/offramp.v1.ConsumerService/Open")(b"\xff\xff")
    assert await opened.code() == grpc.StatusCode.INVALID_ARGUMENT


@with_sidecar(listen={"max_sessions": 1})
async def test_one_session_too_many_is_refused(kit: Kit) -> None:
    await Session.open(kit)
    assert (await refused(alone(kit)))[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
    call = kit.consumer.Open(consumer_pb2.OpenRequest(subscription="orders"))
    assert await call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


@with_sidecar()
async def test_notices_come_over_the_sessions_stream_and_with_the_next_answer(kit: Kit) -> None:
    session = await Session.open(kit)
    await kit.admin.Pause(admin_pb2.PauseRequest(subscription="orders", reason="the moon is full"))
    response = await session.call.read()
    assert [notice.detail for notice in response.notices] == ["the moon is full"]
    answer = await session.fetch(wait_ms=0)
    assert [notice.kind for notice in answer.notices] == [consumer_pb2.NOTICE_KIND_PAUSED]
    assert not (await session.fetch(wait_ms=0)).notices


@with_sidecar(batch=ONE)
async def test_a_waiting_fetch_is_answered_when_the_sidecar_stops_and_what_is_held_may_still_be_settled(
    kit: Kit,
) -> None:
    await kit.publish([b"a", b"b"])
    session = await Session.open(kit)
    held = await session.fetch(want=consumer_pb2.Credit(batches=1))
    held_alone = await alone(kit)
    waiting = session.fetch()
    await kit.until(lambda status: status.sessions[0].credit_batches == 2)
    stop = asyncio.create_task(kit.sidecar.stop(10.0))
    answer = await waiting
    assert [notice.kind for notice in answer.notices] == [consumer_pb2.NOTICE_KIND_DRAINING]
    assert (await refused(alone(kit)))[0] == grpc.StatusCode.UNAVAILABLE
    settled_alone = await alone(kit, settlement(held_alone.batches[0]))
    assert settled_alone.results[0].status == SETTLED
    assert [notice.kind for notice in settled_alone.notices] == [consumer_pb2.NOTICE_KIND_DRAINING]
    settled = await session.fetch(settlement(held.batches[0]))
    assert settled.results[0].status == SETTLED
    assert [notice.kind for notice in settled.notices] == [consumer_pb2.NOTICE_KIND_DRAINING]
    assert await ended(session.call) == grpc.StatusCode.UNAVAILABLE
    await stop


@with_sidecar(batch=ONE)
async def test_settle_and_extend_work_from_any_connection(kit: Kit) -> None:
    await kit.publish([b"a", b"b"])
    session = await Session.open(kit)
    held = (await session.fetch(want=consumer_pb2.Credit(batches=2))).batches
    elsewhere = Kit(kit.sidecar, kit.target)
    extension = record_pb2.Extension(lease=held[0].lease, lease_for_ms=5_000)
    never = record_pb2.Extension(lease=bytes(16), lease_for_ms=5_000)
    extended = await elsewhere.consumer.ExtendLease(consumer_pb2.ExtendLeaseRequest(extensions=[extension, never]))
    assert [one.status for one in extended.results] == [
        record_pb2.EXTEND_STATUS_EXTENDED,
        record_pb2.EXTEND_STATUS_UNKNOWN,
    ]
    said = [settlement(held[1]), record_pb2.Settlement(lease=b"never", outcome=ACK), settlement(held[0], NACK)]
    settled = await elsewhere.consumer.Settle(consumer_pb2.SettleRequest(settlements=said))
    assert [one.status for one in settled.results] == [SETTLED, UNKNOWN, SETTLED]
    assert [one.lease for one in settled.results] == [one.lease for one in said]
    await elsewhere.channel.close()


@in_loop
async def test_a_call_alone_that_may_have_no_answer_now_gives_its_batch_back_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_unread_while_waiting(monkeypatch)
    async with serving(tmp_path, batch=ONE) as kit:
        await kit.publish([b"a"])
        assert (await refused(alone(kit)))[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
        again = await alone(kit)
        assert (values(again), len(again.batches[0].redeliveries)) == ([b"a"], 0)


def test_a_pause_that_is_over_is_not_told() -> None:
    notices = PendingNotices()
    notices.add(Notice(NoticeKind.PAUSED, detail="why"))
    notices.add(Notice(NoticeKind.RESUMED))
    assert [notice.kind for notice in notices.take()] == [NoticeKind.RESUMED]
    assert not notices


def test_revoked_leases_add_up_and_are_bounded() -> None:
    notices = PendingNotices()
    for number in range(5_000):
        notices.add(Notice(NoticeKind.REVOKED, (number.to_bytes(16),)))
    (notice,) = notices.take()
    assert notice.leases[-1] == (4_999).to_bytes(16)
    assert len(notice.leases) == 1_000


def test_different_kinds_are_told_in_the_order_in_which_they_came() -> None:
    notices = PendingNotices()
    kinds = [NoticeKind.PAUSED, NoticeKind.REVOKED, NoticeKind.DRAINING]
    for kind in kinds:
        notices.add(Notice(kind, (b"lease",) if kind is NoticeKind.REVOKED else ()))
    assert [notice.kind for notice in notices.take()] == kinds


@with_sidecar()
async def test_a_call_may_ask_for_fewer_records_than_its_session(kit: Kit) -> None:
    await kit.publish([b"%d" % number for number in range(6)])
    session = await Session.open(kit, max_batch_records=3)
    assert len(values(await session.fetch())) == 3
    assert len(values(await session.fetch(max_batch_records=1))) == 1
    assert len(values(await alone(kit, max_batch_records=1))) == 1

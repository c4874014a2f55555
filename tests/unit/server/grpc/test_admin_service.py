"""`AdminService`, over a real connection within one process."""

import asyncio
from dataclasses import fields
from pathlib import Path
from typing import Any

import grpc
import pytest

from offramp.v1 import admin_pb2, consumer_pb2, record_pb2
from sidecar.observability.counters import Counters
from sidecar.observability.status import (
    BrokerStatus,
    LaneStatus,
    ReaderStatus,
    SessionStatus,
    Status,
    SubscriptionStatus,
)
from sidecar.settings import OutageSettings
from tests.unit.server.grpc.service_kit import ONE, Kit, ended, in_loop, serving, settlement, with_sidecar

#: rejecting everything is what these tests do, so that must not pause the subscription
FEARLESS = OutageSettings(reject_share=1.0)


async def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return raised.value.code(), raised.value.details() or ""


async def dead_letters(kit: Kit, **request: Any) -> list[admin_pb2.DeadLetter]:
    call = kit.admin.ListDeadLetters(admin_pb2.ListDeadLettersRequest(subscription="orders", **request))
    return [letter async for response in call for letter in response.dead_letters]


async def redriven(kit: Kit, **request: Any) -> tuple[int, int]:
    """How many were redriven, and how many left out."""
    steps = [step async for step in kit.admin.Redrive(admin_pb2.RedriveRequest(subscription="orders", **request))]
    return steps[-1].redriven, steps[-1].skipped


async def rejected(kit: Kit, values: list[bytes]) -> None:
    """Publishes records and has a worker reject them."""
    await kit.publish(values)
    stream = await kit.stream(client=consumer_pb2.Client(name="critic"))
    for _ in values:
        batch = await stream.batch()
        await stream.settle(settlement(batch, record_pb2.OUTCOME_REJECT, reason="not to my taste"))
    await kit.until(lambda status: status.counters.dead_lettered == len(values))
    stream.call.cancel()


@with_sidecar()
async def test_the_status_tells_of_all_subscriptions_and_brokers(kit: Kit) -> None:
    await kit.publish([b"a"] * 3)
    stream = await kit.stream()
    await stream.batch()
    status = (await kit.admin.GetStatus(admin_pb2.GetStatusRequest())).status
    assert len(status.boot) == 8
    assert not status.draining
    (broker,) = status.brokers
    assert (broker.name, broker.type, broker.trouble) == ("local", "local", "")
    (orders,) = status.subscriptions
    assert orders.state == admin_pb2.SUBSCRIPTION_STATE_RUNNING
    assert (orders.counters.fetched, orders.counters.delivered) == (3, 3)
    assert (orders.leases, orders.in_flight_records, orders.would_be_replayed) == (1, 3, 3)
    lane = next(lane for lane in orders.lanes if not lane.parked)
    assert (lane.topic, lane.lane, lane.committed, lane.end) == ("orders", 0, 0, 3)


@with_sidecar()
async def test_the_status_can_be_watched(kit: Kit) -> None:
    call = kit.admin.WatchStatus(admin_pb2.WatchStatusRequest(subscription="orders", interval_ms=100))
    first = (await call.read()).status
    second = (await call.read()).status
    assert second.uptime_ms - first.uptime_ms >= 90
    stop = asyncio.create_task(kit.sidecar.stop(0.0))
    assert await ended(call) == grpc.StatusCode.OK
    await stop


WRONG: dict[str, tuple[str, Any, grpc.StatusCode]] = {
    "the status of an unknown subscription": (
        "GetStatus",
        admin_pb2.GetStatusRequest(subscription="ordres"),
        grpc.StatusCode.NOT_FOUND,
    ),
    "a pause without a subscription": ("Pause", admin_pb2.PauseRequest(), grpc.StatusCode.INVALID_ARGUMENT),
    "a resume of an unknown one": ("Resume", admin_pb2.ResumeRequest(subscription="x"), grpc.StatusCode.NOT_FOUND),
    "a seek to nowhere": ("Seek", admin_pb2.SeekRequest(subscription="orders"), grpc.StatusCode.INVALID_ARGUMENT),
    "a seek to a negative position": (
        "Seek",
        admin_pb2.SeekRequest(subscription="orders", position=-1),
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "a seek to a time before 1970": (
        "Seek",
        admin_pb2.SeekRequest(subscription="orders", timestamp_ms=-1),
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "a seek of an unknown lane": (
        "Seek",
        admin_pb2.SeekRequest(subscription="orders", lane=99, start=admin_pb2.SeekStart()),
        grpc.StatusCode.NOT_FOUND,
    ),
    "a redrive of nothing": (
        "Redrive",
        admin_pb2.RedriveRequest(subscription="orders"),
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "a redrive of some and all": (
        "Redrive",
        admin_pb2.RedriveRequest(subscription="orders", ids=["x"], all=True),
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "a redrive of some by reason": (
        "Redrive",
        admin_pb2.RedriveRequest(subscription="orders", ids=["x"], filter=admin_pb2.DeadLetterFilter(reason="r")),
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "deleting no dead letter": (
        "DeleteDeadLetters",
        admin_pb2.DeleteDeadLettersRequest(subscription="orders"),
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "dead letters before 1970": (
        "ListDeadLetters",
        admin_pb2.ListDeadLettersRequest(subscription="orders", filter=admin_pb2.DeadLetterFilter(since_ms=-1)),
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "a page that is none": (
        "ListDeadLetters",
        admin_pb2.ListDeadLettersRequest(subscription="orders", page="x"),
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "deleting a group of an unknown broker": (
        "DeleteGroup",
        admin_pb2.DeleteGroupRequest(broker="kafka", group="g"),
        grpc.StatusCode.NOT_FOUND,
    ),
    "deleting no group": (
        "DeleteGroup",
        admin_pb2.DeleteGroupRequest(broker="local"),
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "deleting an unknown group": (
        "DeleteGroup",
        admin_pb2.DeleteGroupRequest(broker="local", group="nobody"),
        grpc.StatusCode.NOT_FOUND,
    ),
    "deleting a group in use": (
        "DeleteGroup",
        admin_pb2.DeleteGroupRequest(broker="local", group="orders"),
        grpc.StatusCode.FAILED_PRECONDITION,
    ),
}


@pytest.mark.parametrize(("method", "request_", "code"), WRONG.values(), ids=WRONG.keys())
@with_sidecar()
async def test_what_cannot_be_done_is_refused_with_a_reason(
    kit: Kit, method: str, request_: Any, code: grpc.StatusCode
) -> None:
    await kit.until(lambda status: status.lanes)
    call = getattr(kit.admin, method)(request_)
    found, details = await refused(call if hasattr(call, "__await__") else call.read())
    assert (found, bool(details)) == (code, True)


@with_sidecar()
async def test_a_watch_that_is_too_eager_is_refused(kit: Kit) -> None:
    call = kit.admin.WatchStatus(admin_pb2.WatchStatusRequest(interval_ms=10))
    assert await call.code() == grpc.StatusCode.INVALID_ARGUMENT


@with_sidecar(batch=ONE)
async def test_a_seek_delivers_again_from_there_and_makes_older_leases_stale(kit: Kit) -> None:
    await kit.publish([b"%d" % n for n in range(5)])
    stream = await kit.stream()
    for _ in range(3):
        batch = await stream.batch()
        await stream.settle(settlement(batch))
        await stream.result()
    held = await stream.batch()
    request = admin_pb2.SeekRequest(subscription="orders", topic="orders", lane=0, position=1)
    (sought,) = (await kit.admin.Seek(request)).lanes
    assert (sought.topic, sought.lane, sought.position) == ("orders", 0, 1)
    assert (await stream.notice()).kind == consumer_pb2.NOTICE_KIND_REVOKED
    await stream.settle(settlement(held))
    assert (await stream.result()).status == record_pb2.SETTLE_STATUS_STALE
    assert (await stream.batch()).records[0].value == b"1"


@pytest.mark.parametrize(
    ("target", "position"),
    [({"start": admin_pb2.SeekStart()}, 0), ({"end": admin_pb2.SeekEnd()}, 2), ({"timestamp_ms": 1}, 0)],
)
@with_sidecar()
async def test_a_seek_goes_to_the_start_the_end_or_a_time(kit: Kit, target: dict[str, Any], position: int) -> None:
    await kit.publish([b"a", b"b"])
    await kit.until(lambda status: status.counters.fetched == 2)
    response = await kit.admin.Seek(admin_pb2.SeekRequest(subscription="orders", **target))
    assert [(lane.topic, lane.lane, lane.position) for lane in response.lanes] == [("orders", 0, position)]


@with_sidecar(batch=ONE, outage=FEARLESS)
async def test_dead_letters_are_listed_with_where_why_and_who(kit: Kit) -> None:
    await rejected(kit, [b"a", b"b"])
    letters = await dead_letters(kit)
    assert [letter.id for letter in letters] == ["orders/0/0", "orders/0/1"]
    first = letters[0]
    assert (first.topic, first.lane, first.position, first.worker) == ("orders", 0, 0, "critic")
    assert "not to my taste" in first.reason
    assert first.record.value == b"a"
    assert [letter.id for letter in await dead_letters(kit, limit=1)] == ["orders/0/0"]
    assert [letter.id for letter in await dead_letters(kit, id="orders/0/1")] == ["orders/0/1"]
    (bare,) = await dead_letters(kit, id="orders/0/1", without_payload=True)
    assert not bare.record.HasField("value")


@with_sidecar(batch=ONE, outage=FEARLESS)
async def test_many_dead_letters_come_in_responses_that_every_client_takes(kit: Kit) -> None:
    await rejected(kit, [bytes([number]) * 400_000 for number in range(8)])
    assert len(await dead_letters(kit)) == 8


@with_sidecar()
async def test_a_subscription_without_dead_letters_lists_none(kit: Kit) -> None:
    assert await dead_letters(kit) == []


@with_sidecar(batch=ONE, outage=FEARLESS)
async def test_a_redriven_dead_letter_is_delivered_again(kit: Kit) -> None:
    await rejected(kit, [b"a", b"b", b"c"])
    assert await redriven(kit, ids=["orders/0/1"]) == (1, 0)
    stream = await kit.stream()
    batch = await stream.batch()
    record = batch.records[0]
    assert (batch.topic, record.lane, record.position, record.value) == ("orders", 0, 1, b"b")
    await stream.settle(settlement(batch))
    assert [letter.redriven for letter in await dead_letters(kit)] == [False, True, False]
    assert await redriven(kit, all=True) == (2, 1)
    assert await redriven(kit, all=True, again=True) == (3, 0)


@with_sidecar(batch=ONE, outage=FEARLESS)
async def test_dead_letters_come_in_pages_and_by_reason_and_time(kit: Kit) -> None:
    await rejected(kit, [b"a", b"b", b"c"])
    request = admin_pb2.ListDeadLettersRequest(subscription="orders", limit=2)
    pages = [[response async for response in kit.admin.ListDeadLetters(request)]]
    request.page = pages[0][-1].next_page
    pages.append([response async for response in kit.admin.ListDeadLetters(request)])
    ids = [[letter.id for response in page for letter in response.dead_letters] for page in pages]
    assert ids == [["orders/0/0", "orders/0/1"], ["orders/0/2"]]
    assert not pages[1][-1].next_page
    died = (await dead_letters(kit))[0].dead_lettered_ms
    for filter_, count in (
        (admin_pb2.DeadLetterFilter(reason="my taste"), 3),
        (admin_pb2.DeadLetterFilter(reason="your taste"), 0),
        (admin_pb2.DeadLetterFilter(since_ms=died), 3),
        (admin_pb2.DeadLetterFilter(until_ms=died), 0),
    ):
        assert len(await dead_letters(kit, filter=filter_)) == count


@with_sidecar(batch=ONE, outage=FEARLESS)
async def test_a_deleted_dead_letter_is_gone(kit: Kit) -> None:
    await rejected(kit, [b"a", b"b", b"c"])
    request = admin_pb2.DeleteDeadLettersRequest(subscription="orders", ids=["orders/0/1"])
    assert [step.deleted async for step in kit.admin.DeleteDeadLetters(request)] == [1]
    assert [letter.id for letter in await dead_letters(kit)] == ["orders/0/0", "orders/0/2"]
    assert await redriven(kit, all=True) == (2, 0)
    request = admin_pb2.DeleteDeadLettersRequest(subscription="orders", all=True)
    assert [step.deleted async for step in kit.admin.DeleteDeadLetters(request)] == [2]
    assert await dead_letters(kit) == []


@in_loop
async def test_a_group_that_nobody_uses_can_be_deleted(tmp_path: Path) -> None:
    from sidecar.settings import SubscriptionSettings

    old = {"old": SubscriptionSettings(topics=("orders",))}
    async with serving(tmp_path, subscriptions=old) as kit:
        await kit.until(lambda status: status.lanes, "old")
    async with serving(tmp_path) as kit:
        await kit.admin.DeleteGroup(admin_pb2.DeleteGroupRequest(broker="local", group="old"))
        again = kit.admin.DeleteGroup(admin_pb2.DeleteGroupRequest(broker="local", group="old"))
        assert (await refused(again))[0] == grpc.StatusCode.NOT_FOUND


STATUSES: list[tuple[type, Any]] = [
    (Counters, admin_pb2.Counters),
    (LaneStatus, admin_pb2.LaneStatus),
    (SessionStatus, admin_pb2.SessionStatus),
    (ReaderStatus, admin_pb2.ReaderStatus),
    (SubscriptionStatus, admin_pb2.SubscriptionStatus),
    (BrokerStatus, admin_pb2.BrokerStatus),
    (Status, admin_pb2.Status),
]


@pytest.mark.parametrize(("status", "message"), STATUSES, ids=[status.__name__ for status, _ in STATUSES])
def test_a_status_and_its_message_have_the_same_fields_with_milliseconds_for_seconds(
    status: type, message: Any
) -> None:
    assert {f"{one.name}_ms" if one.type is float else one.name for one in fields(status)} == {
        one.name for one in message.DESCRIPTOR.fields
    }

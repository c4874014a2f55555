"""Publishing, with and without asyncio."""

import asyncio
from datetime import datetime, timedelta, timezone
from pathlib import Path

import grpc
import pytest

import offramp
from offramp import aio
from offramp.v1 import publish_pb2 as pb
from tests.clients.python.conftest import Blocking
from tests.clients.python.fake_sidecar import FakeSidecar, fake_sidecar


def test_a_message_travels_whole_and_its_place_comes_back(sidecar: Blocking) -> None:
    with offramp.Publisher(subscription="orders", address=sidecar.address) as publisher:
        place = publisher.publish("invoices", "täglich", key=b"k", headers={"a": "1", "b": None}, lane=7)
    assert place == (1, 0)
    (request,) = sidecar.fake.published
    assert (request.WhichOneof("target"), request.subscription, request.topic) == ("subscription", "orders", "invoices")
    (message,) = request.messages
    assert (message.key, message.value, message.lane) == (b"k", "täglich".encode(), 7)
    assert [(one.name, one.HasField("value"), one.value) for one in message.headers] == [
        ("a", True, b"1"),
        ("b", False, b""),
    ]


def test_null_and_empty_stay_apart(sidecar: Blocking) -> None:
    with offramp.Publisher(broker="local", address=sidecar.address) as publisher:
        publisher.publish("orders", None)
        publisher.publish("orders", b"", key=b"")
    null, empty = (request.messages[0] for request in sidecar.fake.published)
    assert (null.HasField("value"), null.HasField("key"), null.HasField("lane")) == (False, False, False)
    assert (empty.HasField("value"), empty.HasField("key")) == (True, True)


def test_many_messages_travel_in_one_call_and_keep_their_order(tmp_path: Path) -> None:
    async def body() -> list[pb.PublishRequest]:
        async with (
            fake_sidecar(tmp_path) as sidecar,
            aio.Publisher(broker="local", address=sidecar.address) as publisher,
        ):
            messages = [offramp.Message(b"%d" % number, headers=[("h", b"1"), ("h", b"2")]) for number in range(3)]
            assert await publisher.publish_many("orders", messages) == [(1, 0), (1, 1), (1, 2)]
            assert await publisher.publish("orders", b"x") == (1, 0)
            return sidecar.published

    many, _ = asyncio.run(body())
    assert [message.value for message in many.messages] == [b"0", b"1", b"2"]
    assert [header.value for header in many.messages[0].headers] == [b"1", b"2"]


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (grpc.StatusCode.NOT_FOUND, "TOPIC_NOT_FOUND", offramp.errors.NotFound),
        (grpc.StatusCode.INVALID_ARGUMENT, "MESSAGE_TOO_LARGE", offramp.errors.InvalidRequest),
        (grpc.StatusCode.FAILED_PRECONDITION, "BROKER_REFUSED", offramp.errors.Refused),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "BROKER_FULL", offramp.errors.OutOfRoom),
        (grpc.StatusCode.UNAVAILABLE, "BROKER_UNAVAILABLE", offramp.errors.Unavailable),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "", offramp.errors.Unavailable),
    ],
)
def test_each_kind_of_failure_has_an_error_of_its_own(
    sidecar: Blocking, code: grpc.StatusCode, reason: str, kind: type[offramp.OfframpError]
) -> None:
    sidecar.fake.refuse, sidecar.fake.reason = (code, "because"), reason
    sidecar.fake.retryable = issubclass(kind, offramp.errors.Unavailable)
    with (
        offramp.Publisher(broker="local", address=sidecar.address) as publisher,
        pytest.raises(kind, match="because") as caught,
    ):
        publisher.publish("orders", b"x")
    assert (type(caught.value), caught.value.reason) == (kind, reason)


FULL = pb.Published(
    status=pb.PUBLISH_STATUS_REFUSED, reason="ERROR_REASON_BROKER_FULL", detail="no space", retryable=True
)
LARGE = pb.Published(status=pb.PUBLISH_STATUS_REFUSED, reason="ERROR_REASON_MESSAGE_TOO_LARGE", detail="too large")
UNKNOWN = pb.Published(status=pb.PUBLISH_STATUS_UNKNOWN, detail="no answer")


def test_each_message_has_a_result_of_its_own(sidecar: Blocking) -> None:
    sidecar.fake.not_published = {1: FULL, 2: LARGE, 3: UNKNOWN, 4: pb.Published()}
    with offramp.Publisher(broker="local", address=sidecar.address) as publisher:
        with pytest.raises(offramp.errors.PartlyPublished, match="4 of 5 messages are not published") as caught:
            publisher.publish_many("orders", [offramp.Message(b"x")] * 5)
        first, *failed = caught.value.results
        assert first == (1, 0)
        assert [type(each) for each in failed] == [
            offramp.errors.OutOfRoom,
            offramp.errors.InvalidRequest,
            offramp.errors.Unavailable,
            offramp.errors.Unavailable,
        ]
        assert not caught.value.retryable
        sidecar.fake.not_published = {1: FULL}
        with pytest.raises(offramp.errors.PartlyPublished) as caught:
            publisher.publish_many("orders", [offramp.Message(b"x")] * 2)
        assert caught.value.retryable
        sidecar.fake.not_published = {0: LARGE}
        with pytest.raises(offramp.errors.InvalidRequest, match="too large"):
            publisher.publish("orders", b"x")


def test_a_message_says_when_it_happened_how_it_is_encoded_and_when_to_deliver_it(sidecar: Blocking) -> None:
    happened = datetime(2025, 6, 1, 14, tzinfo=timezone(timedelta(hours=2)))
    message = offramp.Message(
        b"{}",
        headers={"a": "1"},
        event_time=happened,
        content_type="application/json",
        deliver_after=1.5,
        deduplication_id="one",
    )
    with offramp.Publisher(broker="local", address=sidecar.address) as publisher:
        publisher.publish_many("orders", [message])
    ((sent,),) = (request.messages for request in sidecar.fake.published)
    assert [(one.name, one.value) for one in sent.headers] == [
        ("a", b"1"),
        ("ce_time", b"2025-06-01T12:00:00Z"),
        ("content-type", b"application/json"),
    ]
    assert (sent.deliver_after_ms, sent.deduplication_id) == (1_500, "one")


def test_a_request_that_the_sidecar_does_not_take_is_not_sent(sidecar: Blocking) -> None:
    with offramp.Publisher(broker="local", address=sidecar.address) as publisher:
        for size in (5 << 20, 4 << 20):
            with pytest.raises(
                offramp.errors.InvalidRequest, match=r"listen\.max_request_bytes.*publish fewer or smaller"
            ):
                publisher.publish("orders", b"x" * size)
        with pytest.raises(offramp.errors.InvalidRequest, match="10,001 messages"):
            publisher.publish_many("orders", [offramp.Message(b"x")] * 10_001)
        publisher.publish("orders", b"x" * 4_000_000)
    assert len(sidecar.fake.published) == 1
    assert sidecar.fake.limits_asked == 1


def test_a_small_request_asks_nothing(sidecar: Blocking) -> None:
    with offramp.Publisher(broker="local", address=sidecar.address) as publisher:
        publisher.publish_many("orders", [offramp.Message(b"x" * 50)] * 1_000)
    assert sidecar.fake.limits_asked == 0


def test_limits_are_asked_for_again_of_a_sidecar_that_has_changed(sidecar: Blocking) -> None:
    with offramp.Publisher(broker="local", address=sidecar.address) as publisher:
        publisher.publish("orders", b"x" * 100_000)
        # As gRPC itself refuses what is too large: without a reason.
        sidecar.fake.refuse = (grpc.StatusCode.RESOURCE_EXHAUSTED, "too large")
        with pytest.raises(offramp.errors.Unavailable):
            publisher.publish("orders", b"x" * 100_000)
        sidecar.fake.max_request_bytes = 65_536
        with pytest.raises(offramp.errors.InvalidRequest, match="65,536"):
            publisher.publish("orders", b"x" * 100_000)


def test_the_same_failures_come_out_of_asyncio(tmp_path: Path) -> None:
    async def body() -> None:
        async with (
            fake_sidecar(tmp_path) as sidecar,
            aio.Publisher(broker="local", address=sidecar.address) as publisher,
        ):
            sidecar.refuse = (grpc.StatusCode.NOT_FOUND, "because")
            with pytest.raises(offramp.errors.NotFound, match="because"):
                await publisher.publish("orders", b"x")

    asyncio.run(body())


def test_a_sidecar_that_is_not_there_is_waited_for_until_the_timeout(tmp_path: Path) -> None:
    async def body() -> None:
        sidecar = FakeSidecar(tmp_path / "s")
        async with aio.Publisher(broker="local", address=sidecar.address, timeout=0.2) as publisher:
            with pytest.raises(offramp.errors.Unavailable, match="may have been published"):
                await publisher.publish("orders", b"x")
        async with aio.Publisher(broker="local", address=sidecar.address) as publisher:
            publishing = asyncio.create_task(publisher.publish("orders", b"x"))
            await sidecar.start()
            await publishing
        await sidecar.stop()

    asyncio.run(body())


@pytest.mark.parametrize("target", [{}, {"broker": "local", "subscription": "orders"}])
def test_a_publisher_must_be_told_one_place_to_publish_to(target: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="subscription"):
        offramp.Publisher(**target)

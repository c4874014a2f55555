"""`PublishService`, over a real connection within one process."""

from typing import Any

import grpc
import pytest

from offramp.v1 import error_pb2, publish_pb2, record_pb2
from sidecar.brokers.local import LocalBroker
from sidecar.model import errors
from sidecar.model.records import Place
from tests.unit.server.grpc.service_kit import Kit, with_sidecar


async def publish(kit: Kit, **request: Any) -> publish_pb2.PublishResponse:
    return await kit.publisher.Publish(publish_pb2.PublishRequest(**request))


@with_sidecar()
async def test_what_is_published_is_delivered_as_it_was(kit: Kit) -> None:
    headers = [record_pb2.Header(name="a", value=b"1"), record_pb2.Header(name="a")]
    messages = [
        publish_pb2.Message(key=b"", value=b"", headers=headers, timestamp_ms=1_234),
        publish_pb2.Message(),
    ]
    response = await publish(kit, subscription="orders", topic="orders", messages=messages)
    assert [(one.lane, one.position) for one in response.published] == [(0, 0), (0, 1)]
    stream = await kit.stream()
    full, empty = (await stream.batch()).records
    assert (full.HasField("key"), full.HasField("value"), full.timestamp_ms) == (True, True, 1_234)
    assert [(one.name, one.HasField("value")) for one in full.headers] == [("a", True), ("a", False)]
    assert (empty.HasField("key"), empty.HasField("value")) == (False, False)


@with_sidecar()
async def test_nothing_to_publish_is_no_error(kit: Kit) -> None:
    assert not (await publish(kit, broker="local", topic="orders")).published


@with_sidecar()
async def test_each_message_has_a_result_and_only_what_concerns_all_is_a_status(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: list[Place | errors.BrokerError] = []

    async def publish_each(_: LocalBroker, topic: str, messages: Any) -> list[Place | errors.BrokerError]:
        return outcomes

    monkeypatch.setattr(LocalBroker, "publish_each", publish_each)
    messages = [publish_pb2.Message()] * 3
    outcomes[:] = [Place(2, 7), errors.TooLarge("larger than a megabyte"), errors.Unavailable("no answer")]
    placed, large, unknown = (await publish(kit, broker="local", topic="orders", messages=messages)).published
    assert placed == publish_pb2.Published(lane=2, position=7, status=publish_pb2.PUBLISH_STATUS_PUBLISHED)
    assert large == publish_pb2.Published(
        status=publish_pb2.PUBLISH_STATUS_REFUSED,
        reason=error_pb2.ERROR_REASON_MESSAGE_TOO_LARGE,
        detail="larger than a megabyte",
    )
    assert unknown == publish_pb2.Published(
        status=publish_pb2.PUBLISH_STATUS_UNKNOWN,
        reason=error_pb2.ERROR_REASON_BROKER_UNAVAILABLE,
        detail="no answer",
        retryable=True,
    )
    outcomes[:] = [errors.TooLarge("larger")] * 3
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await publish(kit, broker="local", topic="orders", messages=messages)
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    outcomes[:] = [errors.TooLarge("larger"), errors.Unavailable("no answer"), errors.Unavailable("no answer")]
    results = (await publish(kit, broker="local", topic="orders", messages=messages)).published
    assert publish_pb2.PUBLISH_STATUS_PUBLISHED not in {one.status for one in results}


@with_sidecar()
async def test_what_the_broker_can_do_is_told_and_what_it_cannot_is_refused_before_anything_is_written(
    kit: Kit,
) -> None:
    limits = await kit.publisher.GetLimits(publish_pb2.GetLimitsRequest(broker="local"))
    assert (limits.delays, limits.deduplicates) == (False, True)
    messages = [publish_pb2.Message(), publish_pb2.Message(deliver_after_ms=1)]
    with pytest.raises(grpc.aio.AioRpcError, match="deliver_after_ms") as raised:
        await publish(kit, broker="local", topic="orders", messages=messages)
    assert raised.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    messages = [publish_pb2.Message(deduplication_id="one")]
    first = await publish(kit, broker="local", topic="orders", messages=messages)
    assert await publish(kit, broker="local", topic="orders", messages=messages) == first
    assert first.published[0].position == 0


MESSAGE = [publish_pb2.Message(value=b"x")]
WRONG: dict[str, tuple[dict[str, Any], grpc.StatusCode, str]] = {
    "no target": ({"topic": "t", "messages": MESSAGE}, grpc.StatusCode.INVALID_ARGUMENT, "target"),
    "no topic": ({"broker": "local", "messages": MESSAGE}, grpc.StatusCode.INVALID_ARGUMENT, "topic"),
    "an unknown broker": ({"broker": "kafka", "topic": "t"}, grpc.StatusCode.NOT_FOUND, "local"),
    "an empty broker": ({"broker": "", "topic": "t"}, grpc.StatusCode.INVALID_ARGUMENT, "local"),
    "an unknown subscription": ({"subscription": "x", "topic": "t"}, grpc.StatusCode.NOT_FOUND, "orders"),
    "a negative time": (
        {"broker": "local", "topic": "t", "messages": [publish_pb2.Message(timestamp_ms=-1)]},
        grpc.StatusCode.INVALID_ARGUMENT,
        "messages[0]",
    ),
    "a delay of years": (
        {"broker": "local", "topic": "t", "messages": [publish_pb2.Message(deliver_after_ms=1 << 40)]},
        grpc.StatusCode.INVALID_ARGUMENT,
        "366 days",
    ),
    "a long id": (
        {"broker": "local", "topic": "t", "messages": [publish_pb2.Message(deduplication_id="ä" * 129)]},
        grpc.StatusCode.INVALID_ARGUMENT,
        "256 bytes",
    ),
}


@pytest.mark.parametrize(("request_", "code", "word"), WRONG.values(), ids=WRONG.keys())
@with_sidecar()
async def test_what_cannot_be_published_is_refused_with_a_reason(
    kit: Kit, request_: dict[str, Any], code: grpc.StatusCode, word: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await publish(kit, **request_)
    assert raised.value.code() == code
    assert word in (raised.value.details() or "")

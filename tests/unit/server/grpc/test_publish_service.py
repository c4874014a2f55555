"""`PublishService`, over a real connection within one process."""

from typing import Any

import grpc
import pytest

from offramp.v1 import publish_pb2, record_pb2
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

"""`PublishService`, health, reflection and what is not served, over a real connection within one process."""

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from offramp.v1 import publish_pb2, record_pb2
from sidecar.model import errors
from sidecar.model.records import Lane
from sidecar.server.grpc.statuses import code_of
from tests.unit.server.grpc.service_kit import Kit, ended, with_sidecar

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


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


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.Unavailable("x"), grpc.StatusCode.UNAVAILABLE),
        (errors.OutOfRoom("x"), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (errors.TooLarge("x"), grpc.StatusCode.INVALID_ARGUMENT),
        (errors.Refused("x"), grpc.StatusCode.FAILED_PRECONDITION),
        (errors.NotFound("x"), grpc.StatusCode.NOT_FOUND),
        (errors.LaneGone([Lane("t", 0)]), grpc.StatusCode.ABORTED),
        (errors.Corrupt("x"), grpc.StatusCode.DATA_LOSS),
        (errors.OutOfTurn("x"), grpc.StatusCode.FAILED_PRECONDITION),
        (errors.Superseded("x"), grpc.StatusCode.ABORTED),
        (errors.Stopping("x"), grpc.StatusCode.UNAVAILABLE),
    ],
)
def test_every_error_has_its_status(error: errors.OfframpError, code: grpc.StatusCode) -> None:
    assert code_of(error) == code


@with_sidecar()
async def test_health_knows_the_sidecar_its_services_and_its_subscriptions(kit: Kit) -> None:
    await kit.until(lambda status: status.lanes)
    health = health_pb2_grpc.HealthStub(kit.channel)
    for name in ("", "offramp.v1.ConsumerService", "offramp.v1.AdminService", "subscription/orders"):
        answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
        assert (name, answer.status) == (name, SERVING)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await health.Check(health_pb2.HealthCheckRequest(service="subscription/nope"))
    assert raised.value.code() == grpc.StatusCode.NOT_FOUND


@with_sidecar()
async def test_health_can_be_watched_and_says_when_the_sidecar_drains(kit: Kit) -> None:
    await kit.publish([b"a"])
    stream = await kit.stream()
    await stream.batch()
    watch = health_pb2_grpc.HealthStub(kit.channel).Watch(health_pb2.HealthCheckRequest())
    assert (await watch.read()).status == SERVING
    stop = asyncio.create_task(kit.sidecar.stop(1.0))
    assert (await watch.read()).status == NOT_SERVING
    assert await ended(watch) == grpc.StatusCode.OK
    await stop


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
@with_sidecar()
async def test_reflection_tells_of_all_services(kit: Kit, version: str) -> None:
    call = kit.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    names = {service.name for service in (await call.read()).list_services_response.service}
    assert names >= {
        "offramp.v1.ConsumerService",
        "offramp.v1.PublishService",
        "offramp.v1.AdminService",
        "offramp.v1.LogService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    for name in names:
        await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=name))
        (told, *_) = (await call.read()).file_descriptor_response.file_descriptor_proto
        file = descriptor_pb2.FileDescriptorProto.FromString(told)
        assert name in {f"{file.package}.{service.name}" for service in file.service}
    await call.done_writing()


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
@with_sidecar()
async def test_bytes_that_are_no_request_for_reflection_are_refused(kit: Kit, version: str) -> None:
    call = kit.channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")()
    await call.write(b"\xff\xff")
    assert await ended(call) == grpc.StatusCode.INVALID_ARGUMENT

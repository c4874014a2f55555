"""Server reflection, over a real connection within one process."""

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2

from tests.unit.server.grpc.service_kit import Kit, ended, with_sidecar


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

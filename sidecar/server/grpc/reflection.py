"""Server reflection, which tells tools what there is to call: as v1, and as v1alpha for older tools.

The two differ in their names alone, and the library has only v1alpha.
"""

from collections.abc import Iterable

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from grpc_reflection.v1alpha import reflection as v1alpha
from grpc_reflection.v1alpha import reflection_pb2

from sidecar.server.grpc.rpc import service

NAMES = ("grpc.reflection.v1.ServerReflection", v1alpha.SERVICE_NAME)


def register(server: grpc.aio.Server, services: Iterable[str]) -> None:
    """Serve descriptions of these services, and of reflection itself."""
    _describe_v1()
    servicer = v1alpha.aio.ReflectionServicer((*services, *NAMES))
    method = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers(service(name, {"ServerReflectionInfo": method}) for name in NAMES)


def _describe_v1() -> None:
    """Tools also ask for the description of the service that answers them."""
    alpha = descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(alpha)
    v1 = text_format.Parse(
        text_format.MessageToString(alpha).replace("v1alpha", "v1"), descriptor_pb2.FileDescriptorProto()
    )
    try:
        descriptor_pool.Default().FindFileByName(v1.name)
    except KeyError:
        descriptor_pool.Default().Add(v1)

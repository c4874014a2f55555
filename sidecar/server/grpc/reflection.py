"""Server reflection, which tells tools what there is to call: as v1, and as v1alpha for older tools.

The two differ in their names alone, and the library has only v1alpha.
"""

from collections.abc import AsyncIterator, Iterable

import grpc.aio
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from grpc_reflection.v1alpha import reflection as v1alpha
from grpc_reflection.v1alpha import reflection_pb2 as pb

from sidecar.server.grpc.rpc import Context, both_stream, parse, read, service

NAMES = ("grpc.reflection.v1.ServerReflection", v1alpha.SERVICE_NAME)

_METHOD = "ServerReflectionInfo"


def register(server: grpc.aio.Server, services: Iterable[str]) -> None:
    """Serve descriptions of these services, and of reflection itself."""
    _describe_v1()
    servicer = v1alpha.aio.ReflectionServicer((*services, *NAMES))

    async def reflect(context: Context) -> None:
        async for response in servicer.ServerReflectionInfo(_requests(context), context):
            await context.write(response.SerializeToString())

    method = both_stream(_METHOD, reflect)
    server.add_generic_rpc_handlers(service(name, {_METHOD: method}) for name in NAMES)


async def _requests(context: Context) -> AsyncIterator[pb.ServerReflectionRequest]:
    while (raw := await read(context)) is not None:
        yield parse(pb.ServerReflectionRequest, raw, _METHOD)


def _describe_v1() -> None:
    """Tools also ask for the description of the service that answers them."""
    alpha = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(alpha)
    v1 = text_format.Parse(
        text_format.MessageToString(alpha).replace("v1alpha", "v1"), descriptor_pb2.FileDescriptorProto()
    )
    try:
        descriptor_pool.Default().FindFileByName(v1.name)
    except KeyError:
        descriptor_pool.Default().Add(v1)

"""`LogService`: ranges instead of leases. Defined, and not served yet."""

from collections.abc import AsyncIterator

import grpc

from offramp.v1 import log_pb2 as pb
from sidecar.service.rpc import Context, Handler

_SERVICE = pb.DESCRIPTOR.services_by_name["LogService"]
NAME: str = _SERVICE.full_name
_ANSWER = "this sidecar does not serve ranges yet; consume by leases: Consume, or Open and Fetch"


async def _refuse(_: bytes, context: Context) -> bytes:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, _ANSWER)


async def _refuse_stream(_: bytes, context: Context) -> AsyncIterator[bytes]:
    await _refuse(_, context)
    yield b""


def methods() -> dict[str, Handler]:
    return {
        method.name: grpc.unary_stream_rpc_method_handler(_refuse_stream)
        if method.server_streaming
        else grpc.unary_unary_rpc_method_handler(_refuse)
        for method in _SERVICE.methods
    }

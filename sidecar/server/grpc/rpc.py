"""How a call begins and ends: bytes in, bytes out, and every error as one status.

Requests are parsed here rather than by gRPC, which ends a call with INTERNAL if its bytes are not a message. Responses
leave as bytes, so that encoded records are never decoded again.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from sidecar.model import errors
from sidecar.observability.logs import Log
from sidecar.server.auth.caller import admitted, over, proven_by
from sidecar.server.grpc.entries import check_entries
from sidecar.server.grpc.statuses import abort

Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]
#: in quotes because gRPC's own class is not generic at run time
Handler: TypeAlias = "grpc.RpcMethodHandler[bytes, bytes]"
M = TypeVar("M", bound=Message)

log = Log("service")


def parse(kind: type[M], raw: bytes, method: str) -> M:
    """Raises `InvalidRequest` for bytes that are not such a message, and `TooManyEntries`."""
    check_entries(kind, raw)
    try:
        return kind.FromString(raw)
    except DecodeError as error:
        name = kind.DESCRIPTOR.full_name
        raise errors.InvalidRequest(f"{method}: these {len(raw)} bytes are not a {name}") from error


@asynccontextmanager
async def answer_errors(context: Context, method: str) -> AsyncIterator[None]:
    """End the call with the status of an `OfframpError`. Any other exception is INTERNAL, and logged."""
    try:
        proven_by(context.peer_identities)
        over(context.peer)
        with admitted().calling():
            yield
    except errors.OfframpError as error:
        await abort(context, error)
    except (grpc.aio.AbortError, grpc.aio.BaseError):
        raise
    except Exception as error:
        log.bug("unhandled exception in RPC", error, method=method)
        await abort(context, errors.OfframpError(f"{method}: internal error; see the sidecar's log"))


def unary(
    method: str,
    kind: type[M],
    handle: Callable[[M], Awaitable[bytes]],
    on_response: Callable[[bytes, Context], None] | None = None,
) -> Handler:
    """One request, one response. `handle` is cancelled when the client goes away. `on_response` is called with the
    response, which gRPC keeps until the client reads it."""

    async def call(raw: bytes, context: Context) -> bytes:
        async with answer_errors(context, method):
            response = await handle(parse(kind, raw, method))
            if on_response is not None:
                on_response(response, context)
            return response
        raise AssertionError("an aborted call has raised")

    return grpc.unary_unary_rpc_method_handler(call)


def server_stream(method: str, kind: type[M], handle: Callable[[M, Context], Awaitable[None]]) -> Handler:
    """One request; `handle` writes the responses to the context."""

    async def call(raw: bytes, context: Context) -> None:
        async with answer_errors(context, method):
            await handle(parse(kind, raw, method), context)

    return grpc.unary_stream_rpc_method_handler(call)


def both_stream(method: str, handle: Callable[[Context], Awaitable[None]]) -> Handler:
    """`handle` reads requests from the context, as bytes, and writes responses to it."""

    async def call(_: AsyncIterator[bytes], context: Context) -> None:
        async with answer_errors(context, method):
            await handle(context)

    return grpc.stream_stream_rpc_method_handler(call)


async def read(context: Context) -> bytes | None:
    """The next request of a stream; None at its end, and also if the client died."""
    raw: object = await context.read()
    return raw if isinstance(raw, bytes) else None


def service(name: str, methods: Mapping[str, Handler]) -> grpc.GenericRpcHandler:
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = dict(methods)
    return grpc.method_handlers_generic_handler(name, handlers)

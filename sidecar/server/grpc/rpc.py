"""How a call begins and ends: bytes in, bytes out, and every error as one status.

Requests are parsed here and not by gRPC, which would answer INTERNAL to bytes that are no message; answers leave as
bytes, so that encoded records are never taken apart again.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NoReturn, TypeAlias, TypeVar
from urllib.parse import quote

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from sidecar.model import errors
from sidecar.observability.logs import Log
from sidecar.server.auth.caller import admitted

Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]
#: in quotes because gRPC's own class takes no types while it runs
Handler: TypeAlias = "grpc.RpcMethodHandler[bytes, bytes]"
M = TypeVar("M", bound=Message)

log = Log("service")

#: the first that fits counts, so children stand before their parents
_STATUSES: tuple[tuple[type[errors.OfframpError], grpc.StatusCode], ...] = (
    (errors.OutOfRoom, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.Unavailable, grpc.StatusCode.UNAVAILABLE),
    (errors.TooLarge, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.Refused, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.NotFound, grpc.StatusCode.NOT_FOUND),
    (errors.LaneGone, grpc.StatusCode.ABORTED),
    (errors.Fenced, grpc.StatusCode.ABORTED),
    (errors.Corrupt, grpc.StatusCode.DATA_LOSS),
)

#: characters of a status text: it travels in a header, and clients refuse large ones
_MOST_DETAILS = 2_000


def status_of(error: errors.OfframpError) -> grpc.StatusCode:
    if isinstance(error, errors.ProtocolError):
        return grpc.StatusCode[error.status]
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), grpc.StatusCode.INTERNAL)


def parse(kind: type[M], raw: bytes, method: str) -> M:
    """Raises `InvalidRequest` for bytes that are not such a message."""
    try:
        return kind.FromString(raw)
    except DecodeError as error:
        name = kind.DESCRIPTOR.full_name
        raise errors.InvalidRequest(f"{method}: these {len(raw)} bytes are not a {name}") from error


@asynccontextmanager
async def answering(context: Context, method: str) -> AsyncIterator[None]:
    """Ends the call with the status that an error stands for. What nobody foresaw is INTERNAL, and logged."""
    try:
        with admitted().calling():
            yield
    except errors.OfframpError as error:
        await abort(context, error)
    except (grpc.aio.AbortError, grpc.aio.BaseError):
        raise
    except Exception as error:
        log.bug("a call failed in a way that nobody foresaw", error, method=method)
        await context.abort(grpc.StatusCode.INTERNAL, f"{method}: a bug in the sidecar; its log says more")


async def abort(context: Context, error: errors.OfframpError) -> NoReturn:
    """End the call with the status that the error stands for. Returns never, and not before the client has it."""
    await context.abort(status_of(error), _cut(str(error)))


def _cut(text: str) -> str:
    """As it travels, where all but plain ASCII takes three bytes for each of its own."""
    text = text[:_MOST_DETAILS]
    while len(quote(text, errors="replace")) > 3 * _MOST_DETAILS:
        text = text[: len(text) // 2]
    return text


def unary(
    method: str,
    kind: type[M],
    handle: Callable[[M], Awaitable[bytes]],
    answered: Callable[[bytes, Context], None] | None = None,
) -> Handler:
    """One request, one answer. `handle` is cancelled when the client goes away. `answered` is told of the answer, which
    gRPC keeps until the client takes it."""

    async def call(raw: bytes, context: Context) -> bytes:
        async with answering(context, method):
            answer = await handle(parse(kind, raw, method))
            if answered is not None:
                answered(answer, context)
            return answer
        raise AssertionError("an aborted call has raised")

    return grpc.unary_unary_rpc_method_handler(call)


def server_stream(method: str, kind: type[M], handle: Callable[[M, Context], Awaitable[None]]) -> Handler:
    """One request; `handle` writes the answers to the context."""

    async def call(raw: bytes, context: Context) -> None:
        async with answering(context, method):
            await handle(parse(kind, raw, method), context)

    return grpc.unary_stream_rpc_method_handler(call)


def both_stream(method: str, handle: Callable[[Context], Awaitable[None]]) -> Handler:
    """`handle` reads requests from the context, as bytes, and writes answers to it."""

    async def call(_: AsyncIterator[bytes], context: Context) -> None:
        async with answering(context, method):
            await handle(context)

    return grpc.stream_stream_rpc_method_handler(call)


async def read(context: Context) -> bytes | None:
    """The next request of a stream; None at its end, which is also what a client leaves that died."""
    raw: object = await context.read()
    return raw if isinstance(raw, bytes) else None


def service(name: str, methods: Mapping[str, Handler]) -> grpc.GenericRpcHandler:
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = dict(methods)
    return grpc.method_handlers_generic_handler(name, handlers)

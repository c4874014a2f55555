"""Authenticates the calls of a listener.

    no token          where none is required, the caller has the rights of `listen.rights`
    a valid token     the caller has the rights of its client, at every listener
    an invalid token  UNAUTHENTICATED, before a byte of the request is read

`Health/Check` is open to everybody: a call without a valid token is told whether the sidecar serves, whatever it asks
about. Its request is not read, since strangers could otherwise fill the sidecar's memory with endless requests.
`Health/Watch` requires a token like everything else, since strangers could otherwise keep the sidecar busy.
"""

import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc
import grpc.aio

from sidecar.model.errors import Unauthenticated
from sidecar.observability.logs import Log
from sidecar.server.auth.caller import Caller, enter
from sidecar.server.auth.tokens import Tokens
from sidecar.server.grpc.statuses import abort

_HEALTH = "/grpc.health.v1.Health/Check"
_SCHEME = "bearer "
#: seconds between two log lines about refused calls, so that callers cannot fill the disk
_LOG_INTERVAL = 10.0

log = Log("access")


class Guard(grpc.aio.ServerInterceptor):
    """One for each listener."""

    def __init__(
        self,
        listener: str,
        tokens: Callable[[], Tokens] | None,
        without_token: Caller | None,
        health: Callable[[], bytes],
    ) -> None:
        """`tokens` is None if no client is configured; `without_token` is None if a token is required. `health` returns
        the response to `Health/Check` without a valid token."""
        self.listener = listener
        self._health = health
        self._tokens = tokens
        self._without_token = without_token
        #: calls that were refused, and how many of them were logged
        self.refused = 0
        self._logged = 0
        self._next_log = 0.0

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any] | None"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        details = handler_call_details
        try:
            enter(self._identify(details.invocation_metadata))
        except Unauthenticated as error:
            if details.method == _HEALTH:
                return _without_request(self._respond_health)
            self._count_refused()
            return _refusal(error)
        return await continuation(details)

    def _identify(self, metadata: Iterable[tuple[str, str | bytes]]) -> Caller:
        header = next((value for name, value in metadata if name == "authorization"), None)
        if header is None or self._tokens is None:
            if self._without_token is None:
                raise Unauthenticated("a token is required: authorization: Bearer TOKEN")
            return self._without_token
        text = header.decode("latin-1") if isinstance(header, bytes) else header
        if not text.lower().startswith(_SCHEME):
            raise Unauthenticated("the authorization header is not: Bearer TOKEN")
        caller = self._tokens().caller(text[len(_SCHEME) :].strip().encode("utf-8", "replace"))
        if caller is None:
            raise Unauthenticated("no client has this token")
        return caller

    async def _respond_health(self, _: object, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        await context.write(self._health())

    def _count_refused(self) -> None:
        self.refused += 1
        if time.monotonic() >= self._next_log:
            calls = self.refused - self._logged
            log.warning("calls refused: no token, or an invalid one", listener=self.listener, calls=calls)
            self._logged = self.refused
            self._next_log = time.monotonic() + _LOG_INTERVAL


Handle = Callable[[object, "grpc.aio.ServicerContext[Any, Any]"], Awaitable[None]]


def _refusal(error: Unauthenticated) -> "grpc.RpcMethodHandler[Any, Any]":
    async def refuse(_: object, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        await abort(context, error)

    return _without_request(refuse)


def _without_request(handle: Handle) -> "grpc.RpcMethodHandler[Any, Any]":
    """Responds without the request. A stream whatever the method is: other handlers wait for the request first."""
    return grpc.stream_stream_rpc_method_handler(handle)

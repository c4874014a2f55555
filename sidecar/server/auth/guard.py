"""Lets callers in at a listener.

    no token      where none is needed, one gets what `listen.rights` says
    a token       one gets the rights of its client, at whichever listener
    a wrong one   UNAUTHENTICATED, before a byte of the request is read

Health can be asked by everybody: whoever has no token is told whether the sidecar serves, whatever they asked about.
What they ask is not read, or strangers could fill the sidecar's memory with requests that never end. Watching it takes
a token like everything else, or they could keep it busy.
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

_HEALTH = "/grpc.health.v1.Health/Check"
_SCHEME = "bearer "
#: seconds between two lines on callers that were turned away: whoever knocks must not fill the disk
_EVERY = 10.0

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
        """`tokens` is None where nobody has a token; `without_token` is None where everybody needs one. `health` is
        the answer to strangers who ask for it."""
        self.listener = listener
        self._health = health
        self._tokens = tokens
        self._without_token = without_token
        #: calls that were turned away, and how many of them the log has told of
        self.refused = 0
        self._told = 0
        self._next_line = 0.0

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
                return _unread(self._tell_health)
            self._note()
            return _refusal(str(error))
        return await continuation(details)

    def _identify(self, metadata: Iterable[tuple[str, str | bytes]]) -> Caller:
        shown = next((value for name, value in metadata if name == "authorization"), None)
        if shown is None or self._tokens is None:
            if self._without_token is None:
                raise Unauthenticated("a token is needed here: authorization: Bearer TOKEN")
            return self._without_token
        text = shown.decode("latin-1") if isinstance(shown, bytes) else shown
        if not text.lower().startswith(_SCHEME):
            raise Unauthenticated("what is in authorization is not: Bearer TOKEN")
        caller = self._tokens().caller(text[len(_SCHEME) :].strip().encode("utf-8", "replace"))
        if caller is None:
            raise Unauthenticated("no client has this token")
        return caller

    async def _tell_health(self, _: object, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        await context.write(self._health())

    def _note(self) -> None:
        self.refused += 1
        if time.monotonic() >= self._next_line:
            calls = self.refused - self._told
            log.warning("callers were turned away: no token, or a wrong one", listener=self.listener, calls=calls)
            self._told = self.refused
            self._next_line = time.monotonic() + _EVERY


Handle = Callable[[object, "grpc.aio.ServicerContext[Any, Any]"], Awaitable[None]]


def _refusal(why: str) -> "grpc.RpcMethodHandler[Any, Any]":
    async def refuse(_: object, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, why)

    return _unread(refuse)


def _unread(handle: Handle) -> "grpc.RpcMethodHandler[Any, Any]":
    """Answers without the request. A stream whatever the method is: the others would wait for the request first."""
    return grpc.stream_stream_rpc_method_handler(handle)

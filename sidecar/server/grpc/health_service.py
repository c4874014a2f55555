"""`grpc.health.v1`: the sidecar as a whole (""), each service by its name, each subscription as `subscription/<name>`.

A caller without any right to a subscription is told that it does not exist. Nothing is cached, so no response is out
of date.
"""

import asyncio
from collections.abc import Callable

from grpc_health.v1 import health_pb2 as pb

from sidecar.model.errors import Unknown
from sidecar.model.reasons import Reason
from sidecar.server.grpc.rpc import Context, Handler, server_stream, unary

NAME = "grpc.health.v1.Health"
#: seconds between two checks of what a client watches
_WATCH_INTERVAL = 0.5

#: whether the named thing serves; None: it does not exist for this caller
Serving = Callable[[str], bool | None]


class HealthService:
    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._stopped = asyncio.Event()

    def methods(self) -> dict[str, Handler]:
        return {
            "Check": unary("Check", pb.HealthCheckRequest, self._check),
            "Watch": server_stream("Watch", pb.HealthCheckRequest, self._watch),
        }

    def stop(self) -> None:
        """End the watches."""
        self._stopped.set()

    def overall(self) -> bytes:
        """The response to Check for the sidecar as a whole."""
        return _response(self._serving(""))

    async def _check(self, request: pb.HealthCheckRequest) -> bytes:
        serving = self._serving(request.service)
        if serving is None:
            raise Unknown(f'there is no service "{request.service}" here', Reason.SERVICE_NOT_FOUND)
        return _response(serving)

    async def _watch(self, request: pb.HealthCheckRequest, context: Context) -> None:
        last: bytes | None = None
        while not self._stopped.is_set():
            now = _response(self._serving(request.service))
            if now != last:
                await context.write(now)
                last = now
            try:
                async with asyncio.timeout(_WATCH_INTERVAL):
                    await self._stopped.wait()
            except TimeoutError:
                continue


def _response(serving: bool | None) -> bytes:
    kinds = pb.HealthCheckResponse
    status = {True: kinds.SERVING, False: kinds.NOT_SERVING, None: kinds.SERVICE_UNKNOWN}[serving]
    response: bytes = kinds(status=status).SerializeToString()
    return response

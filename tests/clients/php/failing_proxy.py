"""A proxy between two unix sockets that answers the first calls of Fetch itself with these statuses, except for OK:
`python -m tests.clients.php.failing_proxy LISTEN TARGET STATUS...`. One with a plus, as ABORTED+, is repeated forever.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio


class Proxy(grpc.GenericRpcHandler):
    def __init__(self, channel: grpc.aio.Channel, statuses: list[str]) -> None:
        self._channel = channel
        self._statuses = statuses

    def service(self, call: grpc.HandlerCallDetails) -> Any:
        method = call.method
        if method.endswith("/Open"):

            async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
                async for response in self._channel.unary_stream(method)(request):
                    yield response

            return grpc.unary_stream_rpc_method_handler(stream)

        async def unary(request: bytes, context: Any) -> Any:
            status = self._next() if method.endswith("/Fetch") and self._statuses else "OK"
            if status != "OK":
                await context.abort(grpc.StatusCode[status], "as the test says")
            try:
                return await self._channel.unary_unary(method)(request)
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "")

        return grpc.unary_unary_rpc_method_handler(unary)

    def _next(self) -> str:
        if self._statuses[0].endswith("+"):
            return self._statuses[0].removesuffix("+")
        return self._statuses.pop(0)


async def main(listen: str, target: str, *statuses: str) -> None:
    async with grpc.aio.insecure_channel(f"unix:{target}") as channel:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((Proxy(channel, list(statuses)),))
        server.add_insecure_port(f"unix:{listen}")
        await server.start()
        print("ready", flush=True)
        await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

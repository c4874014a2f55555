"""The gRPC server of a unix socket, and another one whenever somebody removes or replaces the socket.

A gRPC server that has started cannot bind again. So the new socket gets a new server, with the same guard and services;
the one before tells its clients to reconnect, and ends with its last call.
"""

import asyncio
import time
from collections.abc import Callable

import grpc.aio

from sidecar.observability.logs import Log
from sidecar.server.unix_socket import UnixSocket

#: seconds between two checks of the socket
_CHECK_INTERVAL = 1.0
#: seconds for which the status says that the socket was bound again
_NOTICE_TIME = 3_600.0
#: seconds that the calls of a server without a socket may take
_UNLIMITED = 1e9

log = Log("server")


class SocketServer:
    """Call `prepare`, `open`, `stop` and `close` in this order, and `watch` from `open` to `stop`."""

    def __init__(self, socket: UnixSocket, make_server: Callable[[], grpc.aio.Server]) -> None:
        self._socket = socket
        self._make_server = make_server
        #: the last one has the socket, the others still have calls
        self._servers: list[grpc.aio.Server] = []
        self._ending: dict[grpc.aio.Server, asyncio.Task[None]] = {}
        self._stopped = False
        #: why nobody can connect, or ""
        self.trouble = ""
        self._lost = 0
        #: in seconds since 1970
        self._bound_at = 0.0

    @property
    def notice(self) -> str:
        """That the socket was lost and is bound again, or ""."""
        if not self._lost or self.trouble or time.time() - self._bound_at > _NOTICE_TIME:
            return ""
        times = f"{self._lost} times, last " if self._lost > 1 else ""
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._bound_at))
        return (
            f"{self._socket} was removed or replaced {times}at {when}, and is bound again. "
            "Let apps mount its folder read-only: connecting works"
        )

    def prepare(self) -> None:
        """Take the path; nobody can connect yet. Raises `StartError`."""
        self._socket.prepare(self._bind)

    async def open(self) -> None:
        """Let callers connect. Raises `StartError`."""
        await self._servers[-1].start()
        self._socket.show()

    async def watch(self) -> None:
        """Bind the socket again whenever it is lost."""
        while True:
            await asyncio.sleep(_CHECK_INTERVAL)
            await self.check()

    async def check(self) -> None:
        """Bind the socket again if it is lost."""
        if self._stopped:
            return
        try:
            if not self._socket.keep():
                await self._replace()
            if self.trouble:
                log.info("the socket can be used again", socket=self._socket.path)
            self.trouble = ""
        except Exception as error:
            # Whatever it was, it may be over by the next check.
            why = str(error) or repr(error)
            if self.trouble != why:
                log.error("the socket is lost; it is bound again as soon as this can be done", error=why)
            self.trouble = why

    async def stop(self, grace: float | None) -> None:
        """Accept no more calls; those under way get this many seconds."""
        self._stopped = True
        await asyncio.gather(*(server.stop(grace) for server in self._servers))

    def close(self) -> None:
        """Called after `stop`, and whether or not `prepare` succeeded."""
        self._socket.close()

    def _bind(self, path: str) -> None:
        server = self._make_server()
        server.add_insecure_port(f"unix:{path}")
        self._servers.append(server)

    async def _replace(self) -> None:
        former = [*self._servers]
        try:
            self.prepare()
            await self.open()
        except Exception:
            # Those before still serve whoever is connected.
            for server in self._servers[len(former) :]:
                # A server that was never started would keep its socket open.
                await server.start()
                await self._end(server, None)
            raise
        log.warning("the socket was removed or replaced, and is bound again", socket=self._socket.path)
        self._lost += 1
        self._bound_at = time.time()
        for server in former:
            if server not in self._ending:
                self._ending[server] = asyncio.create_task(self._end(server, _UNLIMITED))

    async def _end(self, server: grpc.aio.Server, grace: float | None) -> None:
        await server.stop(grace)
        self._servers.remove(server)
        self._ending.pop(server, None)

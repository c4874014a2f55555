"""A small HTTP server for probes, metrics and the status page.

It serves GET and HEAD of a few fixed paths, one request per connection. It runs on the sidecar's own event loop, so
that a response to a liveness probe proves that the loop is not blocked.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from sidecar.model.addresses import join_address, parse_address
from sidecar.model.errors import StartError
from sidecar.observability.logs import Log
from sidecar.server.tcp_port import cannot_listen

#: bytes of a request's first line and headers
_MAX_HEAD = 16 << 10
#: seconds that a client may take to send its request, and again to read the response
_REQUEST_TIMEOUT = 5.0
#: connections at a time
_MAX_CONNECTIONS = 64

log = Log("http")


@dataclass(frozen=True, slots=True)
class Response:
    body: str
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"
    #: further headers; names and values must be constants
    headers: Mapping[str, str] = field(default_factory=dict)


Route = Callable[[], Response | Awaitable[Response]]


class HttpServer:
    """Serves `routes` by path. A route must respond within `_REQUEST_TIMEOUT`; one that raises is a bug, and a 500."""

    def __init__(self, address: str, routes: Mapping[str, Route]) -> None:
        self._address = address
        self._routes = dict(routes)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        #: those of them that have not sent their request yet, oldest first
        self._silent: dict[asyncio.Task[None], None] = {}

    async def start(self) -> str:
        """Returns the address it listens on, with its real port. Raises `StartError`."""
        host, port = parse_address(self._address)
        try:
            self._server = await asyncio.start_server(self._accept, host, port, limit=_MAX_HEAD)
        except OSError as error:
            raise StartError(cannot_listen("http.address", self._address, error)) from error
        return join_address(host, self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= _MAX_CONNECTIONS and not self._drop_oldest_silent():
            writer.transport.abort()
            return
        connection = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(connection)
        self._silent[connection] = None
        connection.add_done_callback(self._forget)

    def _drop_oldest_silent(self) -> bool:
        """Drop the connection that has been silent for longest; False if none is. A client that holds many connections
        and sends nothing must not keep the kubelet's probes out: the pod would be restarted."""
        if not self._silent:
            return False
        oldest = next(iter(self._silent))
        self._forget(oldest)
        oldest.cancel()
        return True

    def _forget(self, connection: asyncio.Task[None]) -> None:
        self._connections.discard(connection)
        self._silent.pop(connection, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT):
                head = await self._head(reader)
                method, response = await self._respond(head)
            async with asyncio.timeout(_REQUEST_TIMEOUT):
                writer.write(_encode(method, response))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            # A slow or vanished client needs no operator.
            pass
        finally:
            writer.transport.abort()

    async def _head(self, reader: asyncio.StreamReader) -> bytes | None:
        """The first line and the headers of a request; None if they are too long."""
        try:
            return await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return None
        finally:
            connection = asyncio.current_task()
            assert connection is not None
            self._silent.pop(connection, None)

    async def _respond(self, head: bytes | None) -> tuple[str, Response]:
        if head is None:
            return "GET", Response("request headers too large\n", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return "GET", Response("not an HTTP/1.1 request\n", HTTPStatus.BAD_REQUEST)
        method, target, _ = words
        path = target.partition("?")[0]
        route = self._routes.get(path)
        if route is None:
            return method, Response(f"not found; paths: {', '.join(self._routes)}\n", HTTPStatus.NOT_FOUND)
        if method not in ("GET", "HEAD"):
            return method, Response("only GET and HEAD are allowed\n", HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            response = route()
            return method, response if isinstance(response, Response) else await response
        except Exception as error:
            log.bug("unhandled exception in HTTP route", error, address=path)
            return method, Response("internal error; see the sidecar's log\n", HTTPStatus.INTERNAL_SERVER_ERROR)


def _encode(method: str, response: Response) -> bytes:
    body = response.body.encode()
    head = [
        f"HTTP/1.1 {response.status.value} {response.status.phrase}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        *(f"{name}: {value}" for name, value in response.headers.items()),
        "Connection: close",
    ]
    if response.status is HTTPStatus.METHOD_NOT_ALLOWED:
        head.append("Allow: GET, HEAD")
    return "\r\n".join([*head, "", ""]).encode("latin-1") + (b"" if method == "HEAD" else body)

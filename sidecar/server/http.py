"""A small HTTP server for probes, metrics and the status page.

GET and HEAD of a few fixed paths, one request for each connection.

It runs on the sidecar's own loop, so that a liveness probe that is answered shows that the loop turns.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from sidecar.model.errors import StartError
from sidecar.observability.logs import Log
from sidecar.server.sockets import cannot_listen, join_address, split_address

#: bytes of a request's first line and headers
_MOST_HEAD = 16 << 10
#: seconds that a client may take to send its request, and then to read the answer
_PATIENCE = 5.0
#: connections at a time
_MOST_CONNECTIONS = 64

log = Log("http")


@dataclass(frozen=True, slots=True)
class Response:
    body: str
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"
    #: further headers; both names and values are constants of ours
    headers: Mapping[str, str] = field(default_factory=dict)


Route = Callable[[], Response | Awaitable[Response]]


class HttpServer:
    """Serves `routes` by their paths. A route answers at once, or within the patience of its client; one that raises is
    a bug, and a 500."""

    def __init__(self, address: str, routes: Mapping[str, Route]) -> None:
        self._address = address
        self._routes = dict(routes)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        #: those of them whose request has not come so far, the oldest first
        self._silent: dict[asyncio.Task[None], None] = {}

    async def start(self) -> str:
        """Answers the address it listens on, with its real port. Raises `StartError`."""
        host, port = split_address(self._address)
        try:
            self._server = await asyncio.start_server(self._accept, host, port, limit=_MOST_HEAD)
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
        if len(self._connections) >= _MOST_CONNECTIONS and not self._make_room():
            writer.transport.abort()
            return
        connection = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(connection)
        self._silent[connection] = None
        connection.add_done_callback(self._forget)

    def _make_room(self) -> bool:
        """Drop the connection that has been silent for longest: whoever holds many of them and asks nothing must not
        keep the kubelet's probes out, which would restart the pod."""
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
            async with asyncio.timeout(_PATIENCE):
                head = await self._head(reader)
                method, response = await self._answer(head)
            async with asyncio.timeout(_PATIENCE):
                writer.write(_encode(method, response))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            # A client that is slow or gone is no event for an operator.
            pass
        finally:
            writer.transport.abort()

    async def _head(self, reader: asyncio.StreamReader) -> bytes | None:
        """The first line and the headers of the request; None if they are too long."""
        try:
            return await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return None
        finally:
            connection = asyncio.current_task()
            assert connection is not None
            self._silent.pop(connection, None)

    async def _answer(self, head: bytes | None) -> tuple[str, Response]:
        if head is None:
            return "GET", Response("too many headers\n", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return "GET", Response("this is not HTTP/1.1\n", HTTPStatus.BAD_REQUEST)
        method, target, _ = words
        path = target.partition("?")[0]
        route = self._routes.get(path)
        if route is None:
            return method, Response(f"there is {', '.join(self._routes)}\n", HTTPStatus.NOT_FOUND)
        if method not in ("GET", "HEAD"):
            return method, Response("only GET and HEAD\n", HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            response = route()
            return method, response if isinstance(response, Response) else await response
        except Exception as error:
            log.bug("a page could not be made", error, address=path)
            return method, Response("a bug in the sidecar; its log says more\n", HTTPStatus.INTERNAL_SERVER_ERROR)


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

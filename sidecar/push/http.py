"""An app that is called over HTTP/1.1. Loads aiohttp: import it only where something is pushed."""

import asyncio
import io
import ssl
from errno import EAGAIN
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp.client_exceptions import UnixClientConnectorError

from sidecar.model import files
from sidecar.model.clock import Clock
from sidecar.model.errors import StartError
from sidecar.model.limits import kept_reason
from sidecar.model.records import Delivery, Outcome
from sidecar.model.version import VERSION
from sidecar.push import formats
from sidecar.push.answers import Answer, Rules, judge
from sidecar.push.app import App
from sidecar.push.batch import PushedBatch
from sidecar.push.formats import Payload
from sidecar.push.own_headers import OwnHeaders
from sidecar.push.verdict import Died, NotReached, Settled, TimedOut, Verdict
from sidecar.settings import PushSettings

_UNIX = "http+unix"
#: seconds for a connection; within them nothing was sent
_CONNECT_TIMEOUT = 5.0
#: seconds that an idle connection is kept: less than any server does, so that no call meets a connection that closes
_KEEP_ALIVE = 1.0
#: bytes: aiohttp writes larger bodies in pieces, from a file
_MAX_PIECE = 1 << 20


class _UnixConnector(aiohttp.UnixConnector):
    """asyncio takes a full backlog for a connection that is under way, and then for one that is there."""

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.connector.Connection:
        connection = await super().connect(req, traces, timeout)
        if connection.transport is not None and _is_connected(connection.transport):
            return connection
        connection.close()
        raise UnixClientConnectorError(self.path, req.connection_key, OSError(EAGAIN, "its backlog is full"))


def _is_connected(transport: asyncio.BaseTransport) -> bool:
    try:
        socket: Any = transport.get_extra_info("socket")
        socket.getpeername()
    except OSError:
        return False
    return True


class HttpApp(App):
    protocol = "http"

    def __init__(self, subscription: str, settings: PushSettings, clock: Clock) -> None:
        """Raises `StartError` if a file of the settings cannot be used."""
        self.batch_records = 0 if settings.format.batches else 1
        self._subscription = subscription
        self._settings = settings
        self._clock = clock
        where = f"subscriptions.{subscription}.push"
        self._url, self.address, self._socket = _split(settings.url)
        self._own = OwnHeaders(where, settings)
        self._tls = _trust(f"{where}.tls_ca", settings.tls_ca) if settings.tls_ca else True
        self._client: aiohttp.ClientSession | None = None

    def open(self) -> None:
        settings = self._settings
        connect = min(_CONNECT_TIMEOUT, settings.timeout / 2)
        connector: aiohttp.BaseConnector = (
            _UnixConnector(self._socket, limit=0, keepalive_timeout=_KEEP_ALIVE)
            if self._socket
            else aiohttp.TCPConnector(limit=0, ssl=self._tls, keepalive_timeout=_KEEP_ALIVE)
        )
        self._client = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=settings.timeout, sock_connect=connect),
            # A compressed answer could be larger than any limit.
            auto_decompress=False,
            headers={"user-agent": f"offramp/{VERSION}", "accept-encoding": "identity"},
        )

    async def handle(self, delivery: Delivery, traceparent: str) -> Verdict:
        batch = PushedBatch.of(delivery, self._subscription)
        payload = formats.encode(batch, self._settings)
        try:
            answer = await self._call(payload, traceparent)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            # Nothing was sent.
            return NotReached(
                "refused", f"the app cannot be reached: {self.address}: {_text(error)}. One call at a time until it is"
            )
        except TimeoutError:
            return TimedOut("timeout", f"no answer within push.timeout ({self._settings.timeout:g} s)")
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, ConnectionError):
            return Died("cut")
        except aiohttp.ClientError as error:
            reason = kept_reason(f"what the app answers is not HTTP: {_text(error)}")
            return Settled("invalid", Outcome.NACK, reason, possibly_processed=True)
        settings = self._settings
        rules = Rules(settings.reject_statuses, bool(settings.reply_topic), self._clock.wall_ms())
        return judge(answer, batch, payload, rules)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _call(self, payload: Payload, traceparent: str) -> Answer:
        body = payload.body if len(payload.body) <= _MAX_PIECE else io.BytesIO(payload.body)
        headers = dict([*payload.headers, *self._own.of(payload, traceparent, self._clock.wall_ms())])
        assert self._client is not None
        async with self._client.post(self._url, data=body, headers=headers, allow_redirects=False) as response:
            content, too_large = await _read(response, self._settings.max_answer)
            found = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, found, content, too_large)


async def _read(response: aiohttp.ClientResponse, limit: int) -> tuple[bytes, bool]:
    """The body, and whether it is larger than the limit. Then the rest is not read, and the connection is closed."""
    pieces, size = [], 0
    async for piece in response.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            response.close()
            return b"".join(pieces)[:limit], True
    return b"".join(pieces), False


def _split(url: str) -> tuple[str, str, str]:
    """The URL to call, the address for people, and the unix socket; the last is empty for TCP."""
    parts = urlsplit(url)
    if parts.scheme != _UNIX:
        return url, f"{parts.netloc}{parts.path}", ""
    socket, _, path = parts.path.partition(":")
    query = f"?{parts.query}" if parts.query else ""
    return f"http://localhost{path or '/'}{query}", f"{socket}:{path or '/'}", socket


def _trust(setting: str, path: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=files.read(setting, path).decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise StartError(f"{setting}: {path} has no valid certificates in PEM: {error}") from error


def _text(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or str(error.os_error)
    return str(error) or type(error).__name__

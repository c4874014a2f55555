"""An app that is called over FastCGI: php-fpm.

A status says nothing there: with `display_errors`, a fatal error arrives as 200. So only an answer whose body repeats
the id of the batch is an ack, as the helper for PHP writes it.
"""

import asyncio
import json
import re
import socket
from dataclasses import replace

from sidecar.model.addresses import parse_address
from sidecar.model.clock import Clock
from sidecar.model.limits import kept_reason
from sidecar.model.records import Delivery, Outcome
from sidecar.model.text import clean
from sidecar.model.version import VERSION
from sidecar.observability.logs import Log
from sidecar.push import formats
from sidecar.push.answers import Answer, Rules, judge
from sidecar.push.app import App
from sidecar.push.batch import PushedBatch
from sidecar.push.fastcgi_protocol import AnswerReader, NotFastCgi, encode_request
from sidecar.push.formats import Payload
from sidecar.push.own_headers import OwnHeaders
from sidecar.push.verdict import Died, NotReached, Settled, TimedOut, Verdict
from sidecar.settings import PushFormat, PushSettings

#: seconds for a connection; within them nothing was sent
_CONNECT_TIMEOUT = 5.0
#: seconds that an idle connection is kept, with `fastcgi_keep`
_KEEP_ALIVE = 1.0
_READ_BYTES = 64 << 10
#: characters of what a script prints instead of an answer that are shown
_SHOWN = 200
_TAG = re.compile(r"<[^>]{0,200}>")

log = Log("push")


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.idle: asyncio.TimerHandle | None = None

    @property
    def usable(self) -> bool:
        return not (self.reader.at_eof() or self.writer.is_closing())


class _Refused(Exception):
    """Nobody took the connection. Its text is for people."""


class _Cut(Exception):
    """The connection ended before the answer did."""


class FastCgiApp(App):
    protocol = "fastcgi"
    batch_records = 0

    def __init__(self, subscription: str, settings: PushSettings, clock: Clock) -> None:
        """Raises `StartError` if a file of the settings cannot be used."""
        self._subscription = subscription
        self._settings = replace(settings, format=PushFormat.JSON)
        self._clock = clock
        self.address = f"{settings.fastcgi.removeprefix('unix:')} {settings.script}"
        self._own = OwnHeaders(f"subscriptions.{subscription}.push", settings)
        self._idle: list[_Connection] = []

    def open(self) -> None:
        """Connections are opened for calls."""

    async def close(self) -> None:
        for connection in [*self._idle]:
            self._drop(connection)

    async def handle(self, delivery: Delivery, traceparent: str) -> Verdict:
        batch = PushedBatch.of(delivery, self._subscription)
        payload = formats.encode(batch, self._settings)
        request = encode_request(self._params(payload, traceparent), payload.body, keep=self._settings.fastcgi_keep)
        try:
            connection = await self._connect()
        except _Refused as error:
            return NotReached("refused", f"the app cannot be reached: {error}. One call at a time until it is")
        reader = AnswerReader(self._settings.max_answer)
        try:
            async with asyncio.timeout(self._settings.timeout):
                await self._exchange(connection, request, reader)
            self._release(connection)
            return self._judge(reader, batch, payload)
        except TimeoutError:
            return TimedOut("timeout", f"no answer within push.timeout ({self._settings.timeout:g} s)")
        except _Cut:
            # The worker was killed, or ended by request_terminate_timeout, or the pool was stopped.
            return Died("cut")
        except NotFastCgi as error:
            return Settled("invalid", Outcome.NACK, kept_reason(str(error)), possibly_processed=True)
        finally:
            if connection not in self._idle:
                connection.writer.close()
            if reader.stderr:
                text = clean(reader.stderr.decode(errors="replace").strip())
                log.warning(
                    "the script wrote to stderr", subscription=self._subscription, batch=batch.id, error=text
                )  # fmt: skip

    # Connections

    async def _connect(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.idle is not None:
                connection.idle.cancel()
            if connection.usable:
                return connection
            connection.writer.close()
        path = self._settings.fastcgi.removeprefix("unix:")
        try:
            async with asyncio.timeout(min(_CONNECT_TIMEOUT, self._settings.timeout)):
                if path != self._settings.fastcgi:
                    return _Connection(*await asyncio.open_unix_connection(sock=_connected(path)))
                return _Connection(*await asyncio.open_connection(*parse_address(path)))
        except TimeoutError as error:
            raise _Refused(f"{path} takes no connection") from error
        except OSError as error:
            raise _Refused(f"{path}: {error.strerror or error}") from error

    async def _exchange(self, connection: _Connection, request: bytes, reader: AnswerReader) -> None:
        """Raises `_Cut` and `NotFastCgi`."""
        try:
            connection.writer.write(request)
            # Without waiting until all is written: a script may answer before it has read all.
            while not reader.ended:
                data = await connection.reader.read(_READ_BYTES)
                if not data:
                    raise _Cut
                reader.feed(data)
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            raise _Cut from error

    def _release(self, connection: _Connection) -> None:
        if self._settings.fastcgi_keep and connection.usable:
            # An idle connection occupies a worker.
            connection.idle = asyncio.get_running_loop().call_later(_KEEP_ALIVE, self._drop, connection)
            self._idle.append(connection)

    def _drop(self, connection: _Connection) -> None:
        if connection.idle is not None:
            connection.idle.cancel()
        self._idle.remove(connection)
        connection.writer.close()

    # Requests and answers

    def _params(self, payload: Payload, traceparent: str) -> dict[str, str]:
        script = self._settings.script
        folder, _, name = script.rpartition("/")
        params = {
            "SCRIPT_FILENAME": script,
            "SCRIPT_NAME": f"/{name}",
            "DOCUMENT_ROOT": folder or "/",
            "REQUEST_URI": f"/{name}",
            "REQUEST_METHOD": "POST",
            "QUERY_STRING": "",
            "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": str(len(payload.body)),
            "SERVER_PROTOCOL": "HTTP/1.1",
            "GATEWAY_INTERFACE": "CGI/1.1",
            "SERVER_SOFTWARE": f"offramp/{VERSION}",
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "REMOTE_ADDR": "127.0.0.1",
            "HTTP_HOST": "localhost",
        }
        for name, value in [*payload.headers, *self._own.of(payload, traceparent, self._clock.wall_ms())]:
            if name != "content-type":
                params[f"HTTP_{name.upper().replace('-', '_')}"] = value
        return params

    def _judge(self, reader: AnswerReader, batch: PushedBatch, payload: Payload) -> Verdict:
        """Raises `NotFastCgi`."""
        if reader.refused:
            return NotReached("refused", "the FastCGI server takes no call now. One call at a time until it does")
        answer = reader.answer()
        if 200 <= answer.status < 300 and not _confirms(answer, batch.id):
            said = " ".join(clean(_TAG.sub("", answer.body.decode(errors="replace"))).split())[:_SHOWN]
            reason = f"the script has not answered as the helper for PHP does: {said or 'nothing'}"
            return Settled("unconfirmed", Outcome.NACK, kept_reason(reason), possibly_processed=True)
        # No status rejects: a framework's 422 may be about anything.
        return judge(answer, batch, payload, Rules((), publishes_replies=False, now_ms=self._clock.wall_ms()))


def _connected(path: str) -> socket.socket:
    """Not by asyncio, which takes a full backlog (EAGAIN) for a connection that is under way, and then for one that is
    there. The kernel answers at once."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def _confirms(answer: Answer, batch: str) -> bool:
    try:
        body = json.loads(answer.body)
    except (ValueError, RecursionError):
        return False
    return isinstance(body, dict) and body.get("offramp") == 1 and body.get("batch") == batch

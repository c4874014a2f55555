"""One connection of nats-py at a time, requests with one timeout, and errors as ours.

The library's own reconnecting is off: what it sends after a connection was lost would go over the next one, so that an
answer there proved nothing of what went before. A `Link` is one connection and never another.
"""

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from sidecar.brokers.nats.options import NatsOptions
from sidecar.model.errors import BrokerError, NotFound, OutOfRoom, Refused, TooLarge, Unavailable
from sidecar.observability.logs import Log

log = Log("nats")

#: the begin of headers of a status, which are no message's
_STATUS = b"NATS/1.0 "
_PINGS = 2
#: what follows from the codes of the JetStream API
_BY_CODE: Mapping[int, type[BrokerError]] = {
    10014: NotFound,  # consumer
    10059: NotFound,  # stream
    10037: NotFound,  # message
    10023: OutOfRoom,  # the server's resources
    10028: OutOfRoom,  # memory of the account
    10047: OutOfRoom,  # storage of the account
    10077: OutOfRoom,  # the limits of the stream, with discard new
    10054: TooLarge,
    10008: Unavailable,
    10074: Unavailable,  # no suitable peers, or servers are down
}


class NoResponders(Unavailable):
    """Nobody has subscribed to the subject: there is no such stream or consumer, or JetStream is not up."""


class Headers(dict[str, str]):
    """Headers as the library returns them, with the block as it came: the library keeps one of a name."""

    block: bytes = b""


class HeaderList(dict[str, str]):
    """Headers as the library takes them, but a name may be there more than once."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def items(self) -> Any:
        return self._pairs


class Request(NamedTuple):
    subject: str
    payload: bytes = b""
    headers: Sequence[tuple[str, str]] = ()


class _Client(Client):
    def __init__(self, requires_tls: bool) -> None:
        super().__init__()
        self._requires_tls = requires_tls

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """The library would send the password in the clear to a server that offers no TLS."""
        if initial_connection and self._requires_tls and not info.get("tls_required"):
            raise errors.Error("the server offers no TLS")
        await super()._process_info(info, initial_connection)

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        if not headers:
            return None
        # Else a message with a header `Status` looks like a status.
        found = Headers((await super()._process_headers(headers) or {}) if headers.startswith(_STATUS) else {})
        found.block = bytes(headers)
        return found


class Link:
    """One connection. Once it has ended, it stays so."""

    def __init__(self, options: NatsOptions) -> None:
        self._options = options
        self._client = _Client(options.uses_tls)
        self._why = ""
        #: what the server says, by a subject that it does not let the user publish to
        self._denied: dict[str, str] = {}
        #: what it says if no answer can arrive
        self._deaf = ""
        self._inbox = ""
        self._numbers = 0
        #: by number: the answer to come, and the subject that was asked
        self._asked: dict[str, tuple[asyncio.Future[Msg], str]] = {}
        #: called when it ends, or when the server denies something
        self.listeners: set[Callable[[], None]] = set()

    async def open(self) -> None:
        options = self._options
        doing = f"connect to {options.address}"
        try:
            async with asyncio.timeout(options.timeout):
                await self._client.connect(
                    options.servers,
                    name="offramp",
                    error_cb=self._failed,
                    closed_cb=self._closed,
                    allow_reconnect=False,
                    # With 0 it never gives up.
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=max(1, int(options.timeout)),
                    # A server that has hung is found about when requests to it time out.
                    ping_interval=max(1, int(options.timeout / (_PINGS + 1))),
                    max_outstanding_pings=_PINGS,
                    inbox_prefix=options.inbox_prefix,
                    **self._credentials(),
                    **self._tls(),
                )
                self._inbox = self._client.new_inbox()
                await self.subscribe(f"{self._inbox}.*", self._answered)
        except (errors.Error, OSError, ValueError, TimeoutError) as error:
            await self.close()
            raise self._cannot_connect(error, doing) from error

    @property
    def is_open(self) -> bool:
        return self._client.is_connected and not self._deaf

    @property
    def facts(self) -> dict[str, str]:
        version = self._client.connected_server_version
        return {"server": f"NATS {version.major}.{version.minor}.{version.patch}"}

    @property
    def max_payload(self) -> int:
        return self._client.max_payload

    # Requests

    async def ask(self, doing: str, requests: Sequence[Request]) -> list[Msg]:
        """The answers, in order. All requests are sent in order, on this connection. `doing` is what is tried, such as
        "read orders". Raises errors of ours only."""
        numbers: list[str] = []
        answers: list[asyncio.Future[Msg]] = []
        try:
            async with asyncio.timeout(self._options.timeout):
                for request in requests:
                    self._numbers += 1
                    answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
                    number = str(self._numbers)
                    self._asked[number] = answer, request.subject
                    numbers.append(number)
                    answers.append(answer)
                    await self._client.publish(
                        request.subject,
                        request.payload,
                        f"{self._inbox}.{number}",
                        HeaderList(request.headers) if request.headers else None,
                    )
                self._raise_if_over(doing)
                await asyncio.wait(answers)
        except (errors.Error, OSError, TimeoutError) as error:
            raise self.translate(error, doing) from error
        finally:
            for number in numbers:
                del self._asked[number]
            for answer in answers:
                answer.cancel()
        found = []
        for answer in answers:
            if (wrong := answer.exception()) is not None:
                raise type(wrong)(f"NATS: cannot {doing}: {wrong}") from wrong
            found.append(answer.result())
        return found

    async def api(self, doing: str, subject: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The answer of the JetStream API. Raises errors of ours only."""
        (answer,) = await self.ask(doing, [Request(f"$JS.API.{subject}", json.dumps(body).encode() if body else b"")])
        return read_answer(answer, doing)

    async def send(self, doing: str, subject: str, payload: bytes, reply: str = "") -> None:
        """Returns once it is on its way; nobody answers. See `raise_if_denied`."""
        self._denied.pop(subject.lower(), None)
        try:
            await self._client.publish(subject, payload, reply)
        except (errors.Error, OSError) as error:
            raise self.translate(error, doing) from error

    def new_inbox(self) -> str:
        return self._client.new_inbox()

    async def subscribe(self, subject: str, callback: Callable[[Msg], Awaitable[None]]) -> Any:
        """Nothing is ever dropped: who subscribes sees to it that not too much comes."""
        return await self._client.subscribe(subject, cb=callback, pending_msgs_limit=0, pending_bytes_limit=0)

    async def close(self) -> None:
        """Never raises."""
        with contextlib.suppress(errors.Error, OSError, RuntimeError, TimeoutError):
            async with asyncio.timeout(2.0):
                await self._client.close()
        await self._closed()

    def raise_if_denied(self, subject: str, doing: str) -> None:
        """Raises `Refused` if the server has denied what was sent last to a subject, or what answers come to."""
        if text := self._deaf or self._denied.get(subject.lower()):
            raise Refused(f"NATS: cannot {doing}: {text}")

    # What the library calls

    async def _answered(self, message: Msg) -> None:
        answer, _ = self._asked.get(message.subject.rpartition(".")[2], (None, ""))
        if answer is None or answer.done():
            return
        if status_of(message)[0] == 503:
            answer.set_exception(NoResponders("nobody answers: there is no such stream, or JetStream is not up"))
        else:
            answer.set_result(message)

    async def _failed(self, error: Exception) -> None:
        text = str(error)
        if "permissions violation" not in text:
            self._why = _why_unreachable(error) or text
            return
        what = f"the user has no right to: {text.removeprefix('nats: ')}"
        if "subscription to" in text:
            self._deaf = what
        else:
            # The library tells it in lower case.
            self._denied[text.partition('"')[2].rpartition('"')[0]] = what
        for answer, subject in self._asked.values():
            denied = self._deaf or self._denied.get(subject.lower())
            if denied and not answer.done():
                answer.set_exception(Refused(denied))
        self._tell()

    async def _closed(self) -> None:
        for answer, _ in self._asked.values():
            if not answer.done():
                answer.set_exception(Unavailable(self._why or "the connection was lost"))
        self._tell()

    def _tell(self) -> None:
        for listener in [*self.listeners]:
            listener()

    def _raise_if_over(self, doing: str) -> None:
        if self._deaf:
            raise Refused(f"NATS: cannot {doing}: {self._deaf}")
        if not self.is_open:
            raise Unavailable(f"NATS: cannot {doing}: {self._why or 'the connection was lost'}")

    # Errors

    def translate(self, error: BaseException, doing: str) -> BrokerError:
        match error:
            case errors.MaxPayloadError():
                return TooLarge(f"NATS: cannot {doing}: the server takes {self.max_payload} bytes at most")
            case errors.ConnectionClosedError():
                return Unavailable(f"NATS: cannot {doing}: {self._why or 'the connection was lost'}")
            case TimeoutError() | errors.TimeoutError():
                return Unavailable(f"NATS: cannot {doing}: {self._options.address} does not answer")
        return Unavailable(f"NATS: cannot {doing}: {error or type(error).__name__}")

    def _cannot_connect(self, error: BaseException, doing: str) -> BrokerError:
        said = str(error).lower()
        if "authorization violation" in said or "authentication" in said:
            return Refused(f"NATS: cannot {doing}: the server does not take these credentials, or wants some")
        if "no tls" in said:
            return Refused(f"NATS: cannot {doing}: the server offers no TLS, and the url asks for it")
        if isinstance(error, OSError) and error.filename:
            return Refused(f"NATS: cannot {doing}: {error.filename}: {error.strerror}")
        if isinstance(error, TimeoutError) and not self._why:
            return self.translate(error, doing)
        why = _why_unreachable(error) or self._why or said.removeprefix("nats: ")
        kind = Refused if "certificate" in why else Unavailable
        return kind(f"NATS: cannot {doing}: {why}")

    # Settings of the library

    def _credentials(self) -> dict[str, Any]:
        options = self._options
        if options.username:
            return {"user": options.username, "password": options.read_password()}
        if token := options.read_token():
            return {"token": token}
        if options.credentials_file:
            return {"user_credentials": options.credentials_file}
        return {"nkeys_seed": options.nkey_file} if options.nkey_file else {}

    def _tls(self) -> dict[str, Any]:
        options = self._options
        if not options.uses_tls:
            return {}
        context = ssl.create_default_context(cafile=options.tls_ca or None)
        context.check_hostname = options.tls_check_hostname
        if options.tls_certificate:
            context.load_cert_chain(options.tls_certificate, options.tls_key)
        return {"tls": context}


class Connection:
    """The link there is, or a new one. Made anew when it is needed, never before."""

    def __init__(self, options: NatsOptions) -> None:
        #: seconds that the server may take to answer
        self.timeout = options.timeout
        self._options = options
        self._link: Link | None = None
        self._opening = asyncio.Lock()

    async def link(self) -> Link:
        """Raises `Unavailable` and `Refused`."""
        if self._link is not None and self._link.is_open:
            return self._link
        async with self._opening:
            if self._link is None or not self._link.is_open:
                if self._link is not None:
                    await self._link.close()
                link = Link(self._options)
                await link.open()
                self._link = link
            return self._link

    async def close(self) -> None:
        if self._link is not None:
            await self._link.close()


def status_of(message: Msg) -> tuple[int, str]:
    """The code and the text of a status; 0 for a message."""
    block = block_of(message)
    if not block.startswith(_STATUS):
        return 0, ""
    code, _, text = block[len(_STATUS) :].partition(b"\r\n")[0].decode(errors="replace").partition(" ")
    return int(code) if code.isdecimal() else 0, text


def block_of(message: Msg) -> bytes:
    """The headers of a message as they came."""
    return message.headers.block if isinstance(message.headers, Headers) else b""


def read_answer(answer: Msg, doing: str) -> dict[str, Any]:
    """What the JetStream API answers. Raises what it says is wrong."""
    try:
        found: dict[str, Any] = json.loads(answer.data)
    except ValueError as error:
        raise Refused(f"NATS: cannot {doing}: JetStream answers {answer.data[:100]!r}") from error
    if (wrong := found.get("error")) is not None:
        code, said = wrong.get("err_code", 0), wrong.get("description", "")
        by_status = Unavailable if wrong.get("code", 0) >= 500 else Refused
        raise _BY_CODE.get(code, by_status)(f"NATS: cannot {doing}: {said} ({code})")
    return found


def _why_unreachable(error: BaseException) -> str:
    """The library wraps what the system said."""
    cause: BaseException | None = error
    while cause is not None:
        match cause:
            case ssl.SSLCertVerificationError():
                return f"the certificate of the server is not trusted: {cause.verify_message}"
            case ssl.SSLError():
                return f"TLS fails: {cause.reason or cause}"
            case socket.gaierror():
                return "the host is not known"
            case ConnectionRefusedError():
                return "nobody listens there"
        cause = cause.__cause__ or cause.__context__
    return ""

"""Calls of redis-py: each with one timeout, never repeated, and with its errors as ours."""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from redis import exceptions
from redis.asyncio import Connection as TcpConnection
from redis.asyncio import ConnectionPool, Redis, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider

from sidecar.brokers.redis.options import RedisOptions
from sidecar.brokers.redis.scripts import Script
from sidecar.model.errors import BrokerError, NotFound, OutOfRoom, Refused, Unavailable


class GroupExists(Refused):
    """The group was there already."""


#: what the server says first, and what follows from it
_BY_WORD: dict[str, tuple[type[BrokerError], str]] = {
    "NOGROUP": (NotFound, "there is no such stream or group"),
    "BUSYGROUP": (GroupExists, "the group exists"),
    "UNBLOCKED": (NotFound, "the stream was deleted"),
    "WRONGTYPE": (Refused, "this key is not a stream"),
    "NOAUTH": (Refused, "the server wants a user and a password"),
    "MISCONF": (Unavailable, "the server cannot write to its disk, and takes no writes until it can"),
    "LOADING": (Unavailable, "the server loads its data"),
    "MASTERDOWN": (Unavailable, "the server is a replica that has lost its master"),
    "NOREPLICAS": (Unavailable, "the server has too few replicas"),
    "BUSY": (Unavailable, "the server runs a script of somebody's"),
}
_CLUSTER = "the server is a node of a cluster, which is not supported: take a server, or a proxy, that has all keys"


class Server:
    """One configured server. Connects when it is first asked for something, and again when a connection was lost."""

    def __init__(self, options: RedisOptions) -> None:
        self._address = options.address
        #: what may be wrong with the port, for as long as nothing was ever answered
        self._hint = (
            ". Is it the port for TLS?" if options.url.startswith("rediss:") else ". Does it want TLS (rediss://)?"
        )
        self._timeout = options.timeout
        # Half of what the library has is not typed.
        self._redis: Any = Redis.from_pool(_pool(options))
        # The library folds fields of the same name, and has shapes of its own.
        self._redis.response_callbacks.clear()

    async def call(self, doing: str, *command: Any, wait: float = 0.0) -> Any:
        """The answer to a command. `doing` is what is tried, such as "read orders"; `wait` is how long the server may
        take on purpose. Raises errors of ours only."""
        try:
            async with asyncio.timeout(self._timeout + wait):
                answer = await self._redis.execute_command(*command)
                self._hint = ""
                return answer
        except (exceptions.RedisError, OSError, TimeoutError) as error:
            raise self.translate(error, doing) from error

    async def run(self, doing: str, script: Script, stream: str, *arguments: Any) -> Any:
        """What a script answers. Raises errors of ours only."""
        try:
            async with asyncio.timeout(self._timeout):
                try:
                    return await self._redis.execute_command("EVALSHA", script.sha, 1, stream, *arguments)
                except exceptions.NoScriptError:
                    return await self._redis.execute_command("EVAL", script.text, 1, stream, *arguments)
        except (exceptions.RedisError, OSError, TimeoutError) as error:
            raise self.translate(error, doing) from error

    async def pipeline(self, doing: str, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The answers to all of them, sent together. Raises the first error there is."""
        pipe = self._redis.pipeline(transaction=False)
        for command in commands:
            pipe.execute_command(*command)
        try:
            async with asyncio.timeout(self._timeout):
                found: list[Any] = await pipe.execute()
        except (exceptions.RedisError, OSError, TimeoutError) as error:
            raise self.translate(error, doing) from error
        return found

    async def close(self) -> None:
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()

    def translate(self, error: BaseException, doing: str) -> BrokerError:
        kind, reason = self._reason(error)
        return kind(f"Redis: cannot {doing}: {reason}")

    def _reason(self, error: BaseException) -> tuple[type[BrokerError], str]:
        said = str(error)
        match error:
            case exceptions.AuthenticationError() | exceptions.AuthenticationWrongNumberOfArgsError():
                return Refused, "the server does not take this user and password, or wants some"
            case exceptions.NoPermissionError() | exceptions.AuthorizationError():
                return Refused, f"the user has no right to: {said}"
            case exceptions.OutOfMemoryError():
                return OutOfRoom, "the server's memory is full (maxmemory)"
            case exceptions.ReadOnlyError():
                return Unavailable, "the server is a replica now"
            case exceptions.BusyLoadingError():
                return Unavailable, "the server loads its data"
            case exceptions.MovedError() | exceptions.AskError() | exceptions.ClusterDownError():
                return Refused, _CLUSTER
            case exceptions.ResponseError():
                # With a code in front that the library does not know, or ERR.
                word = said.partition(" ")[0]
                if word in _BY_WORD:
                    return _BY_WORD[word]
                if "no such key" in said or "requires the key to exist" in said:
                    return NotFound, "there is no such stream"
                if said.startswith("unknown command") or "syntax error" in said:
                    return Refused, f"it takes Redis 7.0 or newer, or Valkey; the server says: {said}"
                return Refused, f"the server says: {said}"
            case exceptions.TimeoutError() | TimeoutError():
                return Unavailable, f"{self._address} does not answer{self._hint}"
        return Unavailable, _why_unreachable(
            error, self._address
        ) or f"the connection to {self._address} was lost{self._hint}"


class _Credentials(CredentialProvider):
    """Asked at each connect, so that a password in a file may be replaced."""

    def __init__(self, options: RedisOptions) -> None:
        self._options = options

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        password = self._options.read_password()
        return (self._options.username, password) if self._options.username else (password,)


def _pool(options: RedisOptions) -> ConnectionPool:
    found = urlsplit(options.url)
    settings: dict[str, Any] = {
        # With 3, and with the default, the same call may have other shapes.
        "protocol": 2,
        # By default it repeats writes, and hides an outage for half a minute.
        "retry": Retry(NoBackoff(), 0),
        # Every call has a timeout as a whole instead.
        "socket_timeout": None,
        "socket_connect_timeout": None,
        "client_name": "offramp",
    }
    if options.password or options.password_file:
        settings["credential_provider"] = _Credentials(options)
    if found.scheme == "unix":
        return ConnectionPool(UnixDomainSocketConnection, path=found.path, **settings)
    settings |= {
        "host": found.hostname,
        "port": found.port or 6379,
        "db": int(found.path.strip("/") or 0),
        "socket_keepalive": True,
    }
    if found.scheme == "redis":
        return ConnectionPool(TcpConnection, **settings)
    return ConnectionPool(
        SSLConnection,
        ssl_ca_certs=options.tls_ca or None,
        ssl_certfile=options.tls_certificate or None,
        ssl_keyfile=options.tls_key or None,
        ssl_check_hostname=options.tls_check_hostname,
        **settings,
    )


def _why_unreachable(error: BaseException, address: str) -> str:
    """What the system said, which the library wraps; empty if it did not."""
    cause: BaseException | None = error
    while cause is not None:
        match cause:
            case ssl.SSLCertVerificationError():
                return f"the certificate of {address} is not trusted: {cause.verify_message}"
            case ssl.SSLError():
                return f"TLS with {address} fails: {cause.reason or cause}"
            case socket.gaierror():
                return f"the host of {address} is not known"
            case ConnectionRefusedError():
                return f"nobody listens at {address}"
            case OSError() if cause.filename:
                return f"{cause.filename}: {cause.strerror}"
        cause = cause.__cause__ or cause.__context__
    return ""

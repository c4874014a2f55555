"""Where the sidecar is, the credentials to present, and gRPC channels made from both.

    with offramp.open_channel("offramp.shop:4770", token_file="/etc/offramp/token", ca="/etc/offramp/ca.crt") as to:
        LogServiceStub(to).Plan(...)

Everything that talks to a sidecar goes through here. Options that are not given come from the environment:

    address       OFFRAMP_ADDRESS      unix:/path, /path or host:port
    token         OFFRAMP_TOKEN        sent with every call
    token_file    OFFRAMP_TOKEN_FILE   a file whose first line is the token; read again for every call or session,
                                       so that it may be rotated
    ca            OFFRAMP_CA           a PEM file: the authorities to trust. Without it: those that gRPC knows
    certificate   OFFRAMP_CERTIFICATE  a PEM file: the client certificate, if the sidecar asks for one
    key           OFFRAMP_KEY          its private key
    server_name   OFFRAMP_SERVER_NAME  the name in the sidecar's certificate, if it is not the address's host, as when
                                       pods are called by their IP addresses

`ca`, `certificate` and `key` may also be the PEM text itself, for processes on machines without the file.

A sidecar beyond loopback accepts TLS only, so a connection to one is always TLS, and a token never leaves this machine
in clear text. To a socket or a loopback address it is TLS only if `ca` or `certificate` is given.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack

import grpc
import grpc.aio

from offramp._internal import fork_safety
from offramp.protocol import DEFAULT_ADDRESS, DEFAULT_MESSAGE_BYTES

_NEVER_MS = 2**31 - 1
#: servers close connections that ping more often than every five minutes, unless they are configured otherwise
_PING_MS = 330_000

#: of targets that are passed to gRPC as they are
_SCHEMES = ("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:")
_HOST = re.compile(r"[^\s:/]+")
_PORT = re.compile(r"[0-9]{1,5}")

Metadata = tuple[tuple[str, str], ...]
T = TypeVar("T")


class ProofOptions(TypedDict, total=False):
    """Credentials, and the authorities to trust; see the top of this file."""

    token: str | None
    token_file: str | None
    ca: str | None
    certificate: str | None
    key: str | None
    server_name: str | None


class AccessOptions(ProofOptions, total=False):
    """Keyword arguments of everything that calls a sidecar."""

    #: `unix:/path`, or `host:port`. Default: the environment's OFFRAMP_ADDRESS, or unix:/run/offramp/offramp.sock
    address: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """`AccessOptions`, completed from the environment and checked. Can be pickled, and opened in any process.

    Its methods raise `ValueError`, which names the option, for a file that cannot be read or is not what it should be.
    """

    address: str | None = None
    token: str | None = None
    token_file: str | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if self.token is None and self.token_file is None:
            self._complete("token")
            if self.token is None:
                self._complete("token_file")
        for name in ("ca", "certificate", "key", "server_name"):
            if getattr(self, name) is None:
                self._complete(name)
        address = self.address or os.environ.get("OFFRAMP_ADDRESS") or DEFAULT_ADDRESS
        object.__setattr__(self, "address", _target(address))
        # Raise now, rather than from the first call.
        self.metadata()
        self._credentials()

    def __repr__(self) -> str:
        # A log of this must not show a token.
        return f"Access({self.target})"

    def _complete(self, name: str) -> None:
        object.__setattr__(self, name, os.environ.get(f"OFFRAMP_{name.upper()}") or None)

    @property
    def target(self) -> str:
        """The sidecar's address in the form that gRPC expects."""
        assert self.address is not None
        return self.address

    def metadata(self) -> Metadata:
        """The token as metadata, for a call on a channel of `open_aio`. Empty without a token."""
        token = self.token if self.token is not None else self._token_of_file()
        if token is None:
            return ()
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError(f"{self._token_source()}: that is not a token: one line of printable ASCII without spaces")
        return (("authorization", f"Bearer {token}"),)

    def open(self, max_message_bytes: int = DEFAULT_MESSAGE_BYTES) -> grpc.Channel:
        """A channel whose calls all carry the token."""
        fork_safety.check_can_open()
        credentials, options = self._credentials(), self._options(max_message_bytes)
        if credentials is None:
            channel = grpc.insecure_channel(self.target, options)
        else:
            channel = grpc.secure_channel(self.target, credentials, options)
        if self.token is None and self.token_file is None:
            return channel
        return grpc.intercept_channel(channel, _TokenInterceptor(self.metadata))

    def open_aio(self, max_message_bytes: int = DEFAULT_MESSAGE_BYTES) -> grpc.aio.Channel:
        """A channel for asyncio. Callers pass `metadata()` themselves: an interceptor would add work to every message
        of a stream."""
        fork_safety.check_can_open()
        credentials, options = self._credentials(), self._options(max_message_bytes)
        if credentials is None:
            return grpc.aio.insecure_channel(self.target, options)
        return grpc.aio.secure_channel(self.target, credentials, options)

    def _credentials(self) -> grpc.ChannelCredentials | None:
        if bool(self.certificate) is not bool(self.key):
            raise ValueError("key: a certificate and its key go together; give both, or neither")
        if self.target.startswith(("unix:", "unix-abstract:")):
            return None
        if is_local(self.target) and not self.ca and not self.certificate:
            return None
        return grpc.ssl_channel_credentials(
            root_certificates=_pem("ca", self.ca),
            private_key=_pem("key", self.key),
            certificate_chain=_pem("certificate", self.certificate),
        )

    def _options(self, max_message_bytes: int) -> Sequence[tuple[str, Any]]:
        options: list[tuple[str, Any]] = [
            ("grpc.max_receive_message_length", max_message_bytes),
            # The sidecar enforces its own limit.
            ("grpc.max_send_message_length", -1),
            # A new channel connects at once, instead of waiting for the backoff of an earlier one: we have our own.
            ("grpc.use_local_subchannel_pool", 1),
            # The sidecar is in this pod or cluster; proxies are for traffic to the outside.
            ("grpc.enable_http_proxy", 0),
            # Between processes of one host the kernel reports a closed connection.
            ("grpc.keepalive_time_ms", _NEVER_MS if is_local(self.target) else _PING_MS),
        ]
        if self.server_name:
            options.append(("grpc.ssl_target_name_override", self.server_name))
        return options

    def _token_of_file(self) -> str | None:
        if self.token_file is None:
            return None
        lines = _read("token_file", self.token_file).decode("utf-8", "replace").split("\n")
        return next((line.strip() for line in lines if line.strip()), "")

    def _token_source(self) -> str:
        return "token" if self.token is not None else f"token_file: {self.token_file}"


def open_channel(
    address: str | None = None,
    *,
    max_message_bytes: int = DEFAULT_MESSAGE_BYTES,
    **proof: Unpack[ProofOptions],
) -> grpc.Channel:
    """A plain gRPC channel to a sidecar, for generated stubs: with TLS where it is needed, and with the token in every
    call. For the keyword arguments and their environment variables see the top of this file.

    Does not wait for the sidecar. Close it, or use it in a `with` block; open it after a fork, never before. Raises
    `ValueError`, which names the argument.
    """
    return Access(address=address, **proof).open(max_message_bytes)


def _target(address: str) -> str:
    """In the form that gRPC expects. Raises `ValueError` for what gRPC would try to reach forever."""
    if address.startswith(("/", "./", "../")):
        return f"unix:{address}"
    if address.startswith(_SCHEMES):
        good = address.rstrip("/") not in _SCHEMES
    else:
        host, _, port = address.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        good = bool(_HOST.fullmatch(host) or bracketed) and bool(_PORT.fullmatch(port)) and int(port) < 1 << 16
    if not good:
        raise ValueError(f'address: "{address}" is neither unix:/path nor host:port')
    return address


def is_local(to: str) -> bool:
    """Whether a gRPC target is a socket or a loopback address."""
    if to.startswith(("unix:", "unix-abstract:")):
        return True
    host = to.rpartition("/")[2].rpartition(":")[0].removeprefix("[").removesuffix("]")
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class _Details(NamedTuple):
    """The details of a call, with other metadata."""

    method: str
    timeout: float | None
    metadata: Any
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: Any


class _TokenInterceptor(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Adds the token to every call."""

    def __init__(self, metadata: Callable[[], Metadata]) -> None:
        self._metadata = metadata

    def _intercept(self, proceed: Callable[[Any, Any], T], details: Any, request: Any) -> T:
        metadata = (*(details.metadata or ()), *self._metadata())
        with_token = _Details(
            details.method,
            details.timeout,
            metadata,
            details.credentials,
            getattr(details, "wait_for_ready", None),
            getattr(details, "compression", None),
        )
        return proceed(with_token, request)

    # One method serves all four kinds, which differ only in the types that pass through.
    intercept_unary_unary: Any = _intercept
    intercept_unary_stream: Any = _intercept
    intercept_stream_unary: Any = _intercept
    intercept_stream_stream: Any = _intercept


def _pem(option: str, given: str | None) -> bytes | None:
    if not given:
        return None
    if "-----BEGIN" in given:
        return given.encode()
    pem = _read(option, given)
    if b"-----BEGIN" not in pem:
        raise ValueError(f"{option}: {given} has no PEM in it")
    return pem


def _read(option: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{option}: {path}: {error.strerror}") from error

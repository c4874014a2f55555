"""Calls to a running sidecar: its address, a channel, and gRPC errors as sentences."""

import argparse
import errno
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import grpc

from offramp.channel import Access
from offramp.v1 import admin_pb2_grpc, consumer_pb2_grpc, publish_pb2_grpc
from sidecar import config
from sidecar.model.addresses import split_address
from sidecar.model.errors import OfframpError
from sidecar.model.text import clean
from sidecar.settings import ListenSettings

#: the largest message that a command accepts
MAX_MESSAGE_BYTES = 256 << 20
#: seconds for a call that the sidecar completes at once
CALL_TIMEOUT = 30.0
_CONNECT_TIMEOUT = 3.0
#: credentials: parameters of the client library, and the options of the command line that set them
_CREDENTIAL_OPTIONS = {
    "token_file": "--token-file",
    "ca": "--tls-ca",
    "certificate": "--tls-certificate",
    "key": "--tls-key",
    "server_name": "--tls-server-name",
}
_HINT = 'Start one with "offramp run", or name another with --address or OFFRAMP_ADDRESS'


class CallError(OfframpError):
    """The sidecar cannot be reached, or returned an error. The text is for people."""

    def __init__(self, text: str, *, connection_lost: bool = False) -> None:
        super().__init__(text)
        #: there is no connection any more, as opposed to an error that the sidecar returned
        self.connection_lost = connection_lost


class Stubs(NamedTuple):
    """A connected sidecar."""

    address: str
    admin: admin_pb2_grpc.AdminServiceStub
    consumer: consumer_pb2_grpc.ConsumerServiceStub
    publish: publish_pb2_grpc.PublishServiceStub


def address_of(args: argparse.Namespace, environ: Mapping[str, str] | None = None) -> str:
    """The sidecar's address as a gRPC target: from --address, else OFFRAMP_ADDRESS, else the configuration."""
    environ = os.environ if environ is None else environ
    given = args.address or environ.get("OFFRAMP_ADDRESS")
    if given:
        return _target(given)
    path = args.config or config.find(environ)
    listen = config.load_section(ListenSettings, "listen", path, options=args.options, environ=environ)
    # The admin socket first: the socket for apps may not grant the rights that a command needs.
    socket_path = listen.admin_socket or listen.socket
    return f"unix:{os.path.abspath(socket_path)}" if socket_path else _target(listen.tcp)


@contextmanager
def connect(args: argparse.Namespace) -> Iterator[Stubs]:
    """A reachable sidecar. Raises `CallError` if there is none, and for errors of calls within the context."""
    address = address_of(args)
    access = _access(args, address)
    check_reachable(address)
    with access.open(MAX_MESSAGE_BYTES) as channel, errors_as_sentences(address):
        yield Stubs(
            address,
            admin_pb2_grpc.AdminServiceStub(channel),  # type: ignore[no-untyped-call]
            consumer_pb2_grpc.ConsumerServiceStub(channel),  # type: ignore[no-untyped-call]
            publish_pb2_grpc.PublishServiceStub(channel),  # type: ignore[no-untyped-call]
        )


def _access(args: argparse.Namespace, address: str) -> Access:
    given = {name: getattr(args, flag[2:].replace("-", "_"), None) for name, flag in _CREDENTIAL_OPTIONS.items()}
    try:
        return Access(address=address, **given)
    except ValueError as error:
        name, _, text = str(error).partition(": ")
        raise CallError(f"{_CREDENTIAL_OPTIONS.get(name, name)}: {text}") from None


@contextmanager
def errors_as_sentences(address: str) -> Iterator[None]:
    """Translates gRPC errors into `CallError`."""
    try:
        yield
    except grpc.RpcError as error:
        raise _call_error(error, address) from error


def check_reachable(address: str) -> None:
    """Connects once without gRPC, because the system's own error is short and exact. Raises `CallError`."""
    path = address.removeprefix("unix:")
    try:
        if path != address:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as plain:
                plain.settimeout(_CONNECT_TIMEOUT)
                plain.connect(path)
        else:
            socket.create_connection(split_address(address) or ("", 0), _CONNECT_TIMEOUT).close()
    except OSError as error:
        reason = _reason(error, path != address)
        raise CallError(f"no sidecar at {address}: {reason}. {_HINT}", connection_lost=True) from None


def _reason(error: OSError, unix: bool) -> str:
    if unix and error.errno == errno.ENOENT:
        return "there is no such socket"
    if unix and error.errno == errno.ECONNREFUSED:
        return "no process listens on the socket; it was left over"
    if unix and error.errno in (errno.EACCES, errno.EPERM):
        return f"user {os.geteuid()} may not use the socket"
    return (error.strerror or str(error) or type(error).__name__).lower()


def _target(given: str) -> str:
    if given.startswith("unix:"):
        return "unix:" + os.path.abspath(given.removeprefix("unix:").removeprefix("//"))
    if given.startswith(("/", "./", "../")):
        return f"unix:{os.path.abspath(given)}"
    if split_address(given) is None:
        raise CallError(f'"{given}" is not an address such as unix:/run/offramp/offramp.sock or 127.0.0.1:4770')
    return given


def _call_error(error: grpc.RpcError, address: str) -> CallError:
    # Every error of a call is also a grpc.Call, which the type stubs do not say.
    code, details = (error.code(), error.details() or "") if isinstance(error, grpc.Call) else (None, str(error))
    text = clean(" ".join(details.split())) or "no reason given"
    if code is grpc.StatusCode.UNAVAILABLE:
        return CallError(f"the sidecar at {address} is stopping or gone: {text}", connection_lost=True)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return CallError(f"the sidecar at {address} did not answer in time")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return CallError(f"the sidecar at {address} does not know this call; is it another version?")
    if code is grpc.StatusCode.CANCELLED:
        return CallError(f"the sidecar at {address} ended the call: {text}", connection_lost=True)
    return CallError(text)

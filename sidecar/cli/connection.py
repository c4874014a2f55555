"""Calling a running sidecar: its address, a channel, and errors as sentences."""

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

#: the largest message that the command line takes
MAX_MESSAGE_BYTES = 256 << 20
#: seconds for a call that should be answered at once
TIMEOUT = 30.0
#: how to prove who calls: what the client's library takes, and the argument that says it
_PROOF = {
    "token_file": "--token-file",
    "ca": "--tls-ca",
    "certificate": "--tls-certificate",
    "key": "--tls-key",
    "server_name": "--tls-server-name",
}
_CONNECT_TIMEOUT = 3.0
_HINT = 'Start one with "offramp run", or name another with --address or OFFRAMP_ADDRESS'


class CallError(OfframpError):
    """The sidecar is not there, or says no. The text is for people."""

    def __init__(self, text: str, *, gone: bool = False) -> None:
        super().__init__(text)
        #: the connection is lost, as opposed to an answer that is an error
        self.gone = gone


class Stubs(NamedTuple):
    """A connected sidecar."""

    address: str
    admin: admin_pb2_grpc.AdminServiceStub
    consumer: consumer_pb2_grpc.ConsumerServiceStub
    publish: publish_pb2_grpc.PublishServiceStub


def address_of(args: argparse.Namespace, environ: Mapping[str, str] | None = None) -> str:
    """Where the sidecar is, as a gRPC target: as said, as OFFRAMP_ADDRESS says, or as the configuration does."""
    environ = os.environ if environ is None else environ
    said = args.address or environ.get("OFFRAMP_ADDRESS")
    if said:
        return _target(said)
    path = args.config or config.find(environ)
    listen = config.listen_settings(path, options=args.options, environ=environ)
    # The operators' own socket first: apps may have been denied what this is about to ask for.
    socket_path = listen.admin_socket or listen.socket
    return f"unix:{os.path.abspath(socket_path)}" if socket_path else _target(listen.tcp)


@contextmanager
def connect(args: argparse.Namespace) -> Iterator[Stubs]:
    """A sidecar that answers. Raises `CallError` if there is none."""
    address = address_of(args)
    access = _access(args, address)
    knock(address)
    with access.open(MAX_MESSAGE_BYTES) as channel, answered(address):
        yield Stubs(
            address,
            admin_pb2_grpc.AdminServiceStub(channel),  # type: ignore[no-untyped-call]
            consumer_pb2_grpc.ConsumerServiceStub(channel),  # type: ignore[no-untyped-call]
            publish_pb2_grpc.PublishServiceStub(channel),  # type: ignore[no-untyped-call]
        )


def _access(args: argparse.Namespace, address: str) -> Access:
    given = {name: getattr(args, flag[2:].replace("-", "_"), None) for name, flag in _PROOF.items()}
    try:
        return Access(address=address, **given)
    except ValueError as error:
        name, _, text = str(error).partition(": ")
        raise CallError(f"{_PROOF.get(name, name)}: {text}") from None


@contextmanager
def answered(address: str) -> Iterator[None]:
    """Turns gRPC's errors into `CallError`."""
    try:
        yield
    except grpc.RpcError as error:
        raise _call_error(error, address) from error


def knock(address: str) -> None:
    """Connects once, since the system says in a word what gRPC says in a paragraph. Raises `CallError`."""
    path = address.removeprefix("unix:")
    try:
        if path != address:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as plain:
                plain.settimeout(_CONNECT_TIMEOUT)
                plain.connect(path)
        else:
            socket.create_connection(split_address(address) or ("", 0), _CONNECT_TIMEOUT).close()
    except OSError as error:
        raise CallError(f"no sidecar at {address}: {_why(error, path != address)}. {_HINT}", gone=True) from None


def _why(error: OSError, unix: bool) -> str:
    if unix and error.errno == errno.ENOENT:
        return "there is no such socket"
    if unix and error.errno == errno.ECONNREFUSED:
        return "the socket was left over, nobody listens"
    if unix and error.errno in (errno.EACCES, errno.EPERM):
        return f"user {os.geteuid()} may not use the socket"
    return (error.strerror or str(error) or type(error).__name__).lower()


def _target(said: str) -> str:
    if said.startswith("unix:"):
        return "unix:" + os.path.abspath(said.removeprefix("unix:").removeprefix("//"))
    if said.startswith(("/", "./", "../")):
        return f"unix:{os.path.abspath(said)}"
    if split_address(said) is None:
        raise CallError(f'"{said}" is not an address such as unix:/run/offramp/offramp.sock or 127.0.0.1:4770')
    return said


def _call_error(error: grpc.RpcError, address: str) -> CallError:
    # Every error of a call is a Call, too, which the types of gRPC do not say.
    code, details = (error.code(), error.details() or "") if isinstance(error, grpc.Call) else (None, str(error))
    said = " ".join(details.split()) or "no reason given"
    if code is grpc.StatusCode.UNAVAILABLE:
        return CallError(f"the sidecar at {address} is stopping or gone: {said}", gone=True)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return CallError(f"the sidecar at {address} did not answer in time")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return CallError(f"the sidecar at {address} does not know this call; is it another version?")
    if code is grpc.StatusCode.CANCELLED:
        return CallError(f"the sidecar at {address} ended the call: {said}", gone=True)
    return CallError(said)

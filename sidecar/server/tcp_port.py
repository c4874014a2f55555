"""TCP ports: listening, and who else does. gRPC shares a port silently, and does not say why it cannot bind."""

import contextlib
import errno
import os
import socket
from pathlib import Path

import grpc
import grpc.aio

from sidecar.model.addresses import is_loopback, join_address, parse_address
from sidecar.model.errors import StartError

#: TCP_LISTEN in /proc/net/tcp
_LISTENING = "0A"


def listen_tcp(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> str:
    """Make the server listen on an address, with TLS if there are credentials. Returns the address with its real port.

    Raises `StartError`.
    """
    host, port = parse_address(address)
    if credentials is None and not is_loopback(address):
        raise StartError(
            f"listen.tcp: {address} is not a loopback address. Without TLS and tokens anyone on the network could "
            "take records; use 127.0.0.1 or [::1]"
        )
    try:
        # gRPC reports a failure without its reason, so bind once before. Like gRPC, this sets SO_REUSEADDR.
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            pass
        where = join_address(host, port)
        bound = server.add_secure_port(where, credentials) if credentials else server.add_insecure_port(where)
        return join_address(host, bound)
    except (OSError, RuntimeError) as error:
        raise StartError(cannot_listen("listen.tcp", address, error)) from error


def cannot_listen(setting: str, address: str, error: Exception) -> str:
    """The error message for an address that cannot be bound."""
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"{setting}: {address} is in use{_listener_of(parse_address(address)[1])}"
    return f"{setting}: {address}: {error.strerror if isinstance(error, OSError) else error}"


def _listener_of(port: int) -> str:
    """` by process PID (NAME)` for the listener on a port, or "". Linux shows this for processes of the same user."""
    sockets = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{fields[9]}]")
    for link in Path("/proc").glob("[0-9]*/fd/*") if sockets else ():
        with contextlib.suppress(OSError):
            if os.readlink(link) in sockets:
                pid = link.parts[2]
                return f" by process {pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    return ""

"""A sidecar on the network, as far as a test may go: it listens on this machine's own name, which is not a loopback
address to it, so that TLS and a proof are asked of whoever calls."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

import offramp
from offramp.v1 import admin_pb2, admin_pb2_grpc, consumer_pb2, consumer_pb2_grpc
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar
from tests.security.authority import Authority, Pair

#: a fresh one each time would do as well; these can be searched for
TOKENS = {name: f"{name}-token-0123456789abcdef" for name in ("app", "spark", "operator", "nobody")}


def machine() -> str:
    """A name of this machine that is not loopback, at which others can reach it as little as possible."""
    try:
        socket.getaddrinfo(socket.gethostname(), 0, socket.AF_INET)
    except OSError:
        return "0.0.0.0"
    return socket.gethostname()


class Secured:
    """A folder with an authority, a certificate and tokens, and the settings that use them."""

    def __init__(self, folder: Path, **rights: Mapping[str, Any]) -> None:
        self.folder = folder
        self.authority = Authority(folder / "authority")
        self.server = self.authority.sign("localhost")
        given = rights or {
            "app": {"consume": ["orders"], "publish": ["orders"]},
            "spark": {"ranges": ["orders"]},
            "operator": {"admin": "*"},
        }
        self.clients = {name: {"token_file": str(self.token_file(name)), **client} for name, client in given.items()}

    def token_file(self, name: str, *tokens: str) -> Path:
        """Replaced as Kubernetes does it: by another file in its place."""
        path = self.folder / f"{name}.token"
        secret_file(path.with_suffix(".new"), "\n".join(tokens or (TOKENS[name],)) + "\n").rename(path)
        return path

    def listen(self, *, pair: Pair | None = None, host: str = "", mutual: bool = False, **more: Any) -> dict[str, Any]:
        pair = pair or self.server
        listen = {
            "tcp": f"{host or machine()}:0",
            "tls_certificate": str(pair.certificate),
            "tls_key": str(pair.key),
            **more,
        }
        return {**listen, "tls_client_ca": str(self.authority.certificate)} if mutual else listen

    def sidecar(self, *, clients: Mapping[str, Any] | None = None, listen: Any = None, **more: Any) -> Sidecar:
        return Sidecar(
            self.folder,
            listen=listen if listen is not None else self.listen(),
            clients=self.clients if clients is None else clients,
            **more,
        )

    def access(self, sidecar: Sidecar, client: str = "", **more: Any) -> dict[str, Any]:
        """Options for every function of the client library."""
        return {
            "address": tcp_address(sidecar),
            "ca": str(self.authority.certificate),
            "server_name": "localhost",
            "token": TOKENS[client] if client else None,
            **more,
        }

    def channel(self, sidecar: Sidecar, client: str = "", **more: Any) -> grpc.Channel:
        return offramp.open_channel(**self.access(sidecar, client, **more))


@contextmanager
def attacking(module: str, *args: object) -> Iterator[Callable[[], bytes]]:
    """A program that attacks until the end of the context. The function yielded returns with its next line."""
    command = [sys.executable, "-m", module, *map(str, args)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert process.stdout is not None
    try:
        yield process.stdout.readline
    finally:
        process.kill()
        process.communicate()


def secret_file(path: Path, content: str, mode: int = 0o600) -> Path:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY, mode), "w") as file:
        file.write(content)
    path.chmod(mode)
    return path


def tcp_address(sidecar: Sidecar) -> str:
    address: str = sidecar.event("ready")["tcp"]
    return address.replace("0.0.0.0", "127.0.0.1")


def fetch(channel: grpc.Channel, subscription: str = "orders", wait_ms: int = 0) -> consumer_pb2.FetchResponse:
    request = consumer_pb2.FetchRequest(subscription=subscription, wait_ms=wait_ms)
    response: consumer_pb2.FetchResponse = consumer_pb2_grpc.ConsumerServiceStub(channel).Fetch(
        request, timeout=WAIT_TIMEOUT
    )
    return response


def status(channel: grpc.Channel, subscription: str = "") -> admin_pb2.Status:
    request = admin_pb2.GetStatusRequest(subscription=subscription)
    response = admin_pb2_grpc.AdminServiceStub(channel).GetStatus(request, timeout=WAIT_TIMEOUT)
    found: admin_pb2.Status = response.status
    return found

"""Where callers come in: each listener is a gRPC server of its own, with its own guard and limits, and all of them
serve the same services.

    socket         apps of this pod
    admin socket   operators, in the sidecar's own container
    tcp            on loopback like the socket; on the network with TLS, and pings that find out who is gone
"""

import asyncio
from collections.abc import Callable, Iterable

import grpc.aio

from sidecar.model.addresses import is_loopback
from sidecar.server.auth.caller import Caller
from sidecar.server.auth.credential_store import CredentialStore
from sidecar.server.auth.guard import Guard
from sidecar.server.auth.tokens import Tokens
from sidecar.server.grpc.services import Services, make_server
from sidecar.server.sockets import UnixListener, listen_tcp
from sidecar.settings import Authenticate, ListenSettings, Right, Settings

_ADMIN_MODE = 0o600


class GrpcListeners:
    """`prepare`, `open`, `stop`, `close`."""

    def __init__(self, settings: Settings, keys: CredentialStore, services: Services) -> None:
        self._listen = settings.listen
        self._keys = keys
        self._services = services
        self._has_tokens = bool(settings.clients)
        self._servers: list[grpc.aio.Server] = []
        self._sockets: list[UnixListener] = []
        self._guards: list[Guard] = []
        #: the address of `listen.tcp`, with its real port
        self.tcp = ""

    def prepare(self) -> None:
        """Take the addresses; nobody is let in yet. Raises `StartError`."""
        listen = self._listen
        if listen.socket:
            needs_token = listen.authenticate is Authenticate.ALL
            guard = self._guard("listen.socket", needs_token=needs_token, rights=listen.rights)
            self._add_socket("listen.socket", listen.socket, listen.socket_mode, listen.socket_group, guard)
        if listen.admin_socket:
            operators = Caller.with_all("an operator", Right)
            guard = Guard("listen.admin_socket", self._tokens(), operators, self._services.health)
            self._add_socket("listen.admin_socket", listen.admin_socket, _ADMIN_MODE, "", guard)
        if listen.tcp:
            self._add_tcp(listen)

    def refused(self) -> dict[str, int]:
        """Calls that were turned away, by listener."""
        return {guard.listener: guard.refused for guard in self._guards}

    async def open(self) -> None:
        """Let callers in."""
        for server in self._servers:
            await server.start()
        for listener in self._sockets:
            listener.show()

    async def stop(self, grace: float | None) -> None:
        """Let nobody in any more; calls that are under way get so many seconds."""
        await asyncio.gather(*(server.stop(grace) for server in self._servers))

    def close(self) -> None:
        """Called after `stop`, and whether or not `prepare` succeeded."""
        for listener in self._sockets:
            listener.close()

    def _add_socket(self, setting: str, path: str, mode: int, group: str, guard: Guard) -> None:
        listener = UnixListener(path, mode, group, setting)
        self._sockets.append(listener)
        listener.prepare(self._server(guard))

    def _add_tcp(self, listen: ListenSettings) -> None:
        on_network = not is_loopback(listen.tcp)
        # Whoever has shown a certificate on the network needs no token, unless there are any.
        proven = bool(listen.tls_client_ca) and not self._has_tokens
        needs_token = not proven if on_network else listen.authenticate is not Authenticate.NETWORK
        rights = set(listen.rights).intersection(listen.certificate_rights) if on_network else listen.rights
        guard = self._guard("listen.tcp", needs_token=needs_token, rights=rights)
        server = self._server(guard, on_network=on_network)
        credentials = self._keys.server_credentials() if listen.tls_certificate else None
        self.tcp = listen_tcp(server, listen.tcp, credentials)

    def _server(self, guard: Guard, *, on_network: bool = False) -> grpc.aio.Server:
        server = make_server(self._listen, guard, on_network=on_network)
        self._services.register(server)
        self._guards.append(guard)
        self._servers.append(server)
        return server

    def _guard(self, setting: str, *, needs_token: bool, rights: Iterable[Right]) -> Guard:
        who = f"a caller of {setting} without a token"
        without_token = None if needs_token else Caller.with_all(who, rights)
        return Guard(setting, self._tokens(), without_token, self._services.health)

    def _tokens(self) -> Callable[[], Tokens] | None:
        return (lambda: self._keys.tokens) if self._has_tokens else None

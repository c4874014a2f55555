"""Each listener is a gRPC server of its own, with its own guard and limits; all of them serve the same services.

socket         apps of this pod
admin socket   operators, in the sidecar's own container
tcp            on loopback like the socket; on the network with TLS, and with keepalive pings
"""

import asyncio
from collections.abc import Callable, Iterable

import grpc.aio

from sidecar.model.addresses import is_loopback
from sidecar.server.auth.caller import Caller
from sidecar.server.auth.credential_store import CredentialStore
from sidecar.server.auth.guard import Guard
from sidecar.server.auth.tokens import Tokens
from sidecar.server.grpc import admin_service, health_service, log_service, publish_service, reflection
from sidecar.server.grpc.admin_service import AdminService
from sidecar.server.grpc.consumer import service as consumer_service
from sidecar.server.grpc.consumer.service import ConsumerService
from sidecar.server.grpc.health_service import HealthService
from sidecar.server.grpc.log_service import LogService
from sidecar.server.grpc.publish_service import PublishService
from sidecar.server.grpc.rpc import service
from sidecar.server.grpc.socket_server import SocketServer
from sidecar.server.tcp_port import listen_tcp
from sidecar.server.unix_socket import UnixSocket
from sidecar.settings import Authenticate, ListenSettings, Right, Settings

#: the services that the health service knows by name
NAMES = (consumer_service.NAME, publish_service.NAME, log_service.NAME, admin_service.NAME)

_ADMIN_MODE = 0o600
_NEVER_MS = 2**31 - 1
#: for TLS and the first frames of HTTP/2, before which a client has proven nothing
_HANDSHAKE_TIMEOUT_MS = 10_000
_MIN_PING_INTERVAL_MS = 10_000


class Services:
    """All gRPC services of the sidecar."""

    def __init__(
        self,
        consumer: ConsumerService,
        publish: PublishService,
        log: LogService,
        admin: AdminService,
        health: HealthService,
    ) -> None:
        self._consumer = consumer
        self._admin = admin
        self._health = health
        self._methods = {
            consumer_service.NAME: consumer.methods(),
            publish_service.NAME: publish.methods(),
            admin_service.NAME: admin.methods(),
            log_service.NAME: log.methods(),
            health_service.NAME: health.methods(),
        }

    def register(self, server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers(service(name, methods) for name, methods in self._methods.items())
        reflection.register(server, self._methods)

    def health(self) -> bytes:
        """The response to `Health/Check` for the sidecar as a whole."""
        return self._health.overall()

    def stop(self) -> None:
        """End all streams, so that their clients look for another sidecar. Called after subscriptions have drained."""
        self._consumer.stop()
        self._admin.stop()
        self._health.stop()


class GrpcListeners:
    """Call `prepare`, `open`, `stop` and `close` in this order."""

    def __init__(self, settings: Settings, credentials: CredentialStore, services: Services) -> None:
        self._listen = settings.listen
        self._credentials = credentials
        self._services = services
        self._has_tokens = bool(settings.clients)
        self._sockets: list[SocketServer] = []
        self._tcp_server: grpc.aio.Server | None = None
        self._guards: list[Guard] = []
        #: the address of `listen.tcp`, with its real port
        self.tcp = ""

    def prepare(self) -> None:
        """Take the addresses; nobody can connect yet. Raises `StartError`."""
        listen = self._listen
        if listen.socket:
            needs_token = listen.authenticate is Authenticate.ALL
            guard = self._guard("listen.socket", needs_token=needs_token, rights=listen.rights)
            self._add_socket("listen.socket", listen.socket, listen.socket_mode, listen.socket_group, guard)
        if listen.admin_socket:
            operators = Caller.with_all("an operator at listen.admin_socket", Right)
            guard = Guard("listen.admin_socket", self._tokens(), operators, self._services.health)
            self._add_socket("listen.admin_socket", listen.admin_socket, _ADMIN_MODE, "", guard)
        if listen.tcp:
            self._add_tcp(listen)

    def refused(self) -> dict[str, int]:
        """Calls refused for lack of a valid token, by listener."""
        return {guard.listener: guard.refused for guard in self._guards}

    def lost(self) -> tuple[str, ...]:
        """Why nobody can connect to a socket, for each that was removed and cannot be bound again."""
        return tuple(socket.trouble for socket in self._sockets if socket.trouble)

    def troubles(self) -> tuple[str, ...]:
        """What an operator should know, as sentences."""
        return (*self.lost(), *(socket.notice for socket in self._sockets if socket.notice))

    async def open(self) -> None:
        """Let callers connect. Raises `StartError`."""
        if self._tcp_server is not None:
            await self._tcp_server.start()
        for socket in self._sockets:
            await socket.open()

    async def watch(self) -> None:
        """Notice when a socket was removed or replaced, and bind it again."""
        await asyncio.gather(*(socket.watch() for socket in self._sockets))

    async def stop(self, grace: float | None) -> None:
        """Accept no more calls; those under way get this many seconds."""
        stopping = [socket.stop(grace) for socket in self._sockets]
        if self._tcp_server is not None:
            stopping.append(self._tcp_server.stop(grace))
        await asyncio.gather(*stopping)

    def close(self) -> None:
        """Called after `stop`, and whether or not `prepare` succeeded."""
        for socket in self._sockets:
            socket.close()

    def _add_socket(self, setting: str, path: str, mode: int, group: str, guard: Guard) -> None:
        self._guards.append(guard)
        socket = SocketServer(UnixSocket(path, mode, group, setting), lambda: self._server(guard))
        self._sockets.append(socket)
        socket.prepare()

    def _add_tcp(self, listen: ListenSettings) -> None:
        on_network = not is_loopback(listen.tcp)
        # A client certificate replaces a token on the network, unless there are clients with tokens.
        proven = bool(listen.tls_client_ca) and not self._has_tokens
        needs_token = not proven if on_network else listen.authenticate is not Authenticate.NETWORK
        rights = set(listen.rights).intersection(listen.certificate_rights) if on_network else listen.rights
        guard = self._guard("listen.tcp", needs_token=needs_token, rights=rights)
        self._guards.append(guard)
        self._tcp_server = self._server(guard, on_network=on_network)
        credentials = self._credentials.server_credentials() if listen.tls_certificate else None
        self.tcp = listen_tcp(self._tcp_server, listen.tcp, credentials)

    def _server(self, guard: Guard, *, on_network: bool = False) -> grpc.aio.Server:
        server = _make_server(self._listen, guard, on_network=on_network)
        self._services.register(server)
        return server

    def _guard(self, setting: str, *, needs_token: bool, rights: Iterable[Right]) -> Guard:
        who = f"a caller of {setting} without a token"
        without_token = None if needs_token else Caller.with_all(who, rights, self._listen.publish_topics)
        return Guard(setting, self._tokens(), without_token, self._services.health)

    def _tokens(self) -> Callable[[], Tokens] | None:
        return (lambda: self._credentials.tokens) if self._has_tokens else None


def _make_server(settings: ListenSettings, guard: Guard, *, on_network: bool) -> grpc.aio.Server:
    return grpc.aio.server(
        interceptors=[guard],
        options=[
            # A bandwidth probe is a ping, and a ping that is not answered in time closes the connection.
            ("grpc.http2.bdp_probe", 0),
            *(_network_keepalive(settings.silence) if on_network else _LOCAL_KEEPALIVE),
            ("grpc.keepalive_permit_without_calls", 1),
            # Otherwise a second sidecar on the same port would silently take half of the connections.
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", settings.max_request_bytes),
            # Clients say in Hello how much they accept.
            ("grpc.max_send_message_length", -1),
            ("grpc.max_allowed_incoming_connections", settings.max_connections),
            ("grpc.max_concurrent_streams", settings.max_streams),
        ],
    )


#: Clients of this machine are never pinged: workers block for as long as their work takes, and the kernel reports when
#: they die.
_LOCAL_KEEPALIVE = [
    ("grpc.keepalive_time_ms", _NEVER_MS),
    # Clients may ping as often as they like.
    ("grpc.http2.max_ping_strikes", 0),
]


def _network_keepalive(silence: float) -> list[tuple[str, int]]:
    """For clients on other machines, which may vanish without closing their connections: ping after half of `silence`
    (seconds), and close a connection if the other half passes without a response, or after `silence` without calls."""
    half = max(int(silence * 500), 1)
    return [
        ("grpc.keepalive_time_ms", half),
        ("grpc.keepalive_timeout_ms", half),
        # The same setting again: gRPC takes the longer of the two.
        ("grpc.http2.ping_timeout_ms", half),
        ("grpc.max_connection_idle_ms", 2 * half),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_TIMEOUT_MS),
        # The connection of a client that pings more often is closed.
        ("grpc.http2.min_ping_interval_without_data_ms", _MIN_PING_INTERVAL_MS),
    ]

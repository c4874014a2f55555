"""All gRPC services of a sidecar on one server."""

import grpc.aio
from grpc_reflection.v1alpha import reflection

from sidecar.server.auth.guard import Guard
from sidecar.server.grpc import admin, consumer, health, log, publish
from sidecar.server.grpc.admin import AdminService
from sidecar.server.grpc.consumer import ConsumerService
from sidecar.server.grpc.health import HealthService
from sidecar.server.grpc.log import LogService
from sidecar.server.grpc.publish import PublishService
from sidecar.server.grpc.rpc import service
from sidecar.settings import ListenSettings

#: what the health service knows by name
NAMES = (consumer.NAME, publish.NAME, log.NAME, admin.NAME)

_NEVER_MS = 2**31 - 1
#: for TLS and the first words of HTTP/2, before which nobody has proven anything
_HANDSHAKE_MS = 10_000
_PING_MS = 10_000


_TRUSTING = [
    ("grpc.keepalive_time_ms", _NEVER_MS),
    # Clients may ping as often as they like: the kernel between us drops nobody.
    ("grpc.http2.max_ping_strikes", 0),
]


def make_server(settings: ListenSettings, guard: Guard, *, on_network: bool) -> grpc.aio.Server:
    """A server that never needs an answer from a client of this machine: workers block for as long as their work
    takes, and the kernel tells when they die. A client on another machine may vanish without a word, so it is asked."""
    return grpc.aio.server(
        interceptors=[guard],
        options=[
            # A probe for bandwidth is a ping, and a ping that is not answered in time closes the connection.
            ("grpc.http2.bdp_probe", 0),
            *(_watchful(settings.silence) if on_network else _TRUSTING),
            ("grpc.keepalive_permit_without_calls", 1),
            # Without this a second sidecar on the same port would take half of the connections, silently.
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", settings.max_request_bytes),
            # What a client takes is the client's to say; see Hello.
            ("grpc.max_send_message_length", -1),
            ("grpc.max_allowed_incoming_connections", settings.max_connections),
            ("grpc.max_concurrent_streams", settings.max_streams),
        ],
    )


def _watchful(silence: float) -> list[tuple[str, int]]:
    """Ask after half of the time, and take silence for the other half as an answer. Who only holds a connection, and
    makes no call, has it for as long."""
    half = max(int(silence * 500), 1)
    return [
        ("grpc.keepalive_time_ms", half),
        ("grpc.keepalive_timeout_ms", half),
        # The same for gRPC, which takes the longer of the two.
        ("grpc.http2.ping_timeout_ms", half),
        ("grpc.max_connection_idle_ms", 2 * half),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
        # Of those who ping more often the connection is closed.
        ("grpc.http2.min_ping_interval_without_data_ms", _PING_MS),
    ]


class Services:
    def __init__(
        self,
        consumers: ConsumerService,
        publishing: PublishService,
        ranges: LogService,
        operating: AdminService,
        healthy: HealthService,
    ) -> None:
        self._consumers = consumers
        self._operating = operating
        self._healthy = healthy
        self._methods = {
            consumer.NAME: consumers.methods(),
            publish.NAME: publishing.methods(),
            admin.NAME: operating.methods(),
            log.NAME: ranges.methods(),
            health.NAME: healthy.methods(),
        }

    def register(self, server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers(service(name, methods) for name, methods in self._methods.items())
        reflection.enable_server_reflection((*self._methods, reflection.SERVICE_NAME), server)

    def health(self) -> bytes:
        """The answer of `Health/Check` for the sidecar as a whole."""
        return self._healthy.overall()

    def stop(self) -> None:
        """End all streams, so that their clients look for another sidecar. Subscriptions are drained before."""
        self._consumers.stop()
        self._operating.stop()
        self._healthy.stop()

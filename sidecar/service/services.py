"""All gRPC services of a sidecar on one server."""

import grpc.aio
from grpc_reflection.v1alpha import reflection

from sidecar.service import admin, consumer, health, log, publish
from sidecar.service.admin import AdminService
from sidecar.service.consumer import ConsumerService
from sidecar.service.health import HealthService
from sidecar.service.publish import PublishService
from sidecar.service.rpc import service
from sidecar.settings import ListenSettings

#: what the health service knows by name
NAMES = (consumer.NAME, publish.NAME, log.NAME, admin.NAME)

_NEVER_MS = 2**31 - 1


def make_server(settings: ListenSettings) -> grpc.aio.Server:
    """A server that never needs an answer from a client that is busy: workers block for as long as their work takes."""
    return grpc.aio.server(
        options=[
            # A probe for bandwidth is a ping, and a ping that is not answered in time closes the connection.
            ("grpc.http2.bdp_probe", 0),
            ("grpc.keepalive_time_ms", _NEVER_MS),
            # Clients may ping as often as they like: the kernel between us drops nobody.
            ("grpc.http2.max_ping_strikes", 0),
            ("grpc.keepalive_permit_without_calls", 1),
            # Without this a second sidecar on the same port would take half of the connections, silently.
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", settings.max_request_bytes),
            # What a client takes is the client's to say; see Hello.
            ("grpc.max_send_message_length", -1),
        ]
    )


class Services:
    def __init__(
        self, consumers: ConsumerService, publishing: PublishService, operating: AdminService, healthy: HealthService
    ) -> None:
        self._consumers = consumers
        self._operating = operating
        self._healthy = healthy
        self._methods = {
            consumer.NAME: consumers.methods(),
            publish.NAME: publishing.methods(),
            admin.NAME: operating.methods(),
            log.NAME: log.methods(),
            health.NAME: healthy.methods(),
        }

    def register(self, server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers(service(name, methods) for name, methods in self._methods.items())
        reflection.enable_server_reflection((*self._methods, reflection.SERVICE_NAME), server)

    def stop(self) -> None:
        """End all streams, so that their clients look for another sidecar. Subscriptions are drained before."""
        self._consumers.stop()
        self._operating.stop()
        self._healthy.stop()

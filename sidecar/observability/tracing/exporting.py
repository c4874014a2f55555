"""The SDK of OpenTelemetry: what the spans say of their sidecar, and how they leave. Imported only if they do."""

import asyncio
import socket
import threading
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from sidecar.model.errors import StartError
from sidecar.model.version import VERSION
from sidecar.observability.tracing.making import SubscriptionTracer
from sidecar.settings import SubscriptionSettings

_GROUP = "opentelemetry_traces_exporter"
#: seconds that the last spans may take to leave: a collector that is away must not hold up the end
_FAREWELL = 2.0


class Exporting:
    """A `Tracing`. Spans are handed to a thread of the SDK, which sends them in batches; what does not fit into its
    queue is dropped. OTEL_* variables set everything else, as they do for every SDK."""

    def __init__(self, endpoint: str, environ: Mapping[str, str], exporter: SpanExporter | None = None) -> None:
        """Raises `StartError`."""
        name = environ.get("OTEL_SERVICE_NAME", "") or "offramp"
        resource = Resource.create(
            {"service.version": VERSION, "service.instance.id": socket.gethostname()}
            | ({} if "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "") else {"service.name": name})
        )
        # Its own exit handler would wait for a collector that is away.
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or _exporter(endpoint, environ)))
        self._tracer = self._provider.get_tracer("offramp", VERSION)

    def tracer(self, settings: SubscriptionSettings, system: str) -> SubscriptionTracer:
        return SubscriptionTracer(self._tracer, settings, system)

    async def close(self) -> None:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def leave() -> None:
            self._provider.shutdown()
            # The loop may have ended meanwhile: then nobody waits.
            if not loop.is_closed():
                loop.call_soon_threadsafe(done.set)

        # A daemon: the process ends without it, should it hang.
        threading.Thread(target=leave, name="last-spans", daemon=True).start()
        try:
            async with asyncio.timeout(_FAREWELL):
                await done.wait()
        except TimeoutError:
            pass


def _exporter(endpoint: str, environ: Mapping[str, str]) -> SpanExporter:
    kind = "otlp" if endpoint else environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() or "otlp"
    if kind == "otlp":
        protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        kind = "otlp_proto_grpc" if protocol == "grpc" and not endpoint else "otlp_proto_http"
    found = [*entry_points(group=_GROUP, name=kind)]
    if not found:
        there = ", ".join(sorted(point.name for point in entry_points(group=_GROUP))) or "none"
        raise StartError(f'no exporter "{kind}" for spans is installed; there are: {there}')
    options: dict[str, Any] = {"endpoint": f"{endpoint.rstrip('/')}/v1/traces"} if endpoint else {}
    exporter: SpanExporter = found[0].load()(**options)
    return exporter

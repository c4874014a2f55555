"""Exports spans with the SDK of OpenTelemetry. Imported only if tracing is configured."""

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
from sidecar.observability.tracing.spans import SubscriptionTracer
from sidecar.settings import SubscriptionSettings

_ENTRY_POINTS = "opentelemetry_traces_exporter"
#: seconds for exporting the last spans: a collector that does not respond must not hold up the end
_CLOSE_TIMEOUT = 2.0


class SdkTracing:
    """A `Tracing`. A thread of the SDK exports the spans in batches; those that do not fit into its queue are dropped.
    OTEL_* variables configure everything else, as for every SDK."""

    def __init__(self, endpoint: str, environ: Mapping[str, str], exporter: SpanExporter | None = None) -> None:
        """Raises `StartError` if the exporter is not installed."""
        name = environ.get("OTEL_SERVICE_NAME", "") or "offramp"
        resource = Resource.create(
            {"service.version": VERSION, "service.instance.id": socket.gethostname()}
            | ({} if "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "") else {"service.name": name})
        )
        # The SDK's exit handler would wait for a collector that does not respond.
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or _exporter(endpoint, environ)))
        self._tracer = self._provider.get_tracer("offramp", VERSION)

    def tracer(self, settings: SubscriptionSettings, system: str) -> SubscriptionTracer:
        return SubscriptionTracer(self._tracer, settings, system)

    async def close(self) -> None:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            # The loop may be closed by now: then nobody waits.
            if not loop.is_closed():
                loop.call_soon_threadsafe(done.set)

        # A daemon thread: if it hangs, the process ends without it.
        threading.Thread(target=shut_down, name="last-spans", daemon=True).start()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await done.wait()
        except TimeoutError:
            pass


def _exporter(endpoint: str, environ: Mapping[str, str]) -> SpanExporter:
    kind = "otlp" if endpoint else environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() or "otlp"
    if kind == "otlp":
        protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        kind = "otlp_proto_grpc" if protocol == "grpc" and not endpoint else "otlp_proto_http"
    found = [*entry_points(group=_ENTRY_POINTS, name=kind)]
    if not found:
        installed = ", ".join(sorted(point.name for point in entry_points(group=_ENTRY_POINTS))) or "none"
        raise StartError(f'no exporter "{kind}" for spans is installed; there are: {installed}')
    options: dict[str, Any] = {"endpoint": f"{endpoint.rstrip('/')}/v1/traces"} if endpoint else {}
    exporter: SpanExporter = found[0].load()(**options)
    return exporter

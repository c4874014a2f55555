"""What a subscription reports to its tracer, and whether there is one.

Spans are made if `tracing.endpoint` is set, or one of the variables that every OpenTelemetry SDK reads.
"""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Protocol
from urllib.parse import urlsplit

from sidecar.model.errors import StartError
from sidecar.model.records import Chunk, Outcome, Settlement, SettleResult
from sidecar.observability.logs import Log
from sidecar.settings import SubscriptionSettings, TracingSettings

#: each of these says where spans go
_DESTINATIONS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_EXPORTER")
_INSTALL = "pip install 'offramp-sidecar[tracing]' or, in a container, an image that was built with EXTRAS=tracing"

log = Log("tracing")


class Slice(Protocol):
    """Consecutive records of one chunk."""

    chunk: Chunk
    start: int
    stop: int
    records: int
    history: Any


class Lease(Protocol):
    """What a tracer reads of a lease. `core.state.leases.Lease` cannot be imported here."""

    id: bytes
    records: int
    holder: Any
    outcomes: list[tuple[int, int, Outcome]]

    @property
    def slices(self) -> Sequence[Slice]: ...

    @property
    def ended(self) -> bool: ...


class CallSpan(Protocol):
    """A call to an app that is a server."""

    #: names the span in a header of the call, by W3C
    traceparent: str

    def end(self, status: str) -> None:
        """The call has ended: with the status of the answer, or with a word that says how."""


class Tracer(Protocol):
    """Traces one subscription, per batch. No method blocks or raises."""

    def polled(self, began: int, chunks: Sequence[Chunk]) -> None:
        """A poll that began then (nanoseconds since 1970) returned records."""

    def delivered(self, lease: Lease) -> None:
        """A batch is on its way to a worker."""

    def settled(self, began: int, lease: Lease, settlement: Settlement, result: SettleResult) -> None:
        """A settlement was applied."""

    def calling(self, lease: bytes, address: str) -> "CallSpan":
        """The app at this address is called with a batch."""

    def ended(self, lease: Lease) -> None:
        """The worker does not hold the batch any more: it was settled or expired, or the session ended."""

    def close(self) -> None:
        """The subscription is closed. Ends all open spans."""


class Tracing(Protocol):
    """Traces the whole sidecar."""

    def tracer(self, settings: SubscriptionSettings, system: str) -> Tracer:
        """For a subscription on a broker of this type."""

    async def close(self) -> None:
        """Export what is left, if that takes no longer than a moment. Never raises."""


def start(settings: TracingSettings, environ: Mapping[str, str]) -> Tracing | None:
    """None if tracing is not configured. Raises `StartError` if the settings cannot be met."""
    reason = _configured_by(settings, environ)
    if not reason:
        return None
    try:
        if not _is_installed("opentelemetry.sdk.trace"):
            raise StartError(f"{reason} is set, but opentelemetry-sdk is not installed: {_INSTALL}")
        # Loads OpenTelemetry.
        from sidecar.observability.tracing.exporter import SdkTracing  # noqa: PLC0415

        tracing = SdkTracing(settings.endpoint, environ)
    except StartError as error:
        if settings.endpoint:
            raise
        # Such variables are often given to a whole pod, for the app: that is no reason not to start.
        log.info(f"spans are not exported: {error}")
        return None
    log.info("spans are exported", reason=reason)
    return tracing


def problem_with(endpoint: str) -> str:
    """What is wrong with it, in words that follow the value; empty if nothing is."""
    try:
        parts = urlsplit(endpoint)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    return "" if good or not endpoint else "is not the address of a collector, as in http://127.0.0.1:4318"


def _configured_by(settings: TracingSettings, environ: Mapping[str, str]) -> str:
    """The name of the setting or variable; empty if there is none."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ""
    if problem := problem_with(settings.endpoint):
        raise StartError(f'tracing.endpoint: "{settings.endpoint}" {problem}')
    if settings.endpoint:
        return "tracing.endpoint"
    if environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none":
        return ""
    return next((name for name in _DESTINATIONS if environ.get(name, "").strip()), "")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False

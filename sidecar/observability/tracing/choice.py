"""Whether spans are wanted, and where they go: by `tracing.endpoint`, or by the variables that every SDK reads."""

from collections.abc import Mapping
from importlib.util import find_spec
from urllib.parse import urlsplit

from sidecar.model.errors import StartError
from sidecar.observability.logs import Log
from sidecar.observability.tracing.hooks import Tracing
from sidecar.settings import TracingSettings

#: each of these says where spans go
_WHERE = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_EXPORTER")
_INSTALL = "pip install 'offramp-sidecar[tracing]' or, in a container, an image that was built with EXTRAS=tracing"

log = Log("tracing")


def start(settings: TracingSettings, environ: Mapping[str, str]) -> Tracing | None:
    """None if nobody wants spans. Raises `StartError` if the settings want what cannot be."""
    reason = _wanted(settings, environ)
    if not reason:
        return None
    try:
        tracing = _exporting(settings, environ, reason)
    except StartError as error:
        if settings.endpoint:
            raise
        # Such variables are often given to a whole pod, for the app: that is no reason not to start.
        log.info(f"no spans are made: {error}")
        return None
    log.info("spans are made", reason=reason)
    return tracing


def _exporting(settings: TracingSettings, environ: Mapping[str, str], reason: str) -> Tracing:
    """Raises `StartError` if something that it needs is not installed."""
    if not _installed("opentelemetry.sdk.trace"):
        raise StartError(f"{reason} is set, but opentelemetry-sdk is not installed: {_INSTALL}")
    from sidecar.observability.tracing.exporting import Exporting  # noqa: PLC0415 - nothing of it is loaded unless it is wanted

    return Exporting(settings.endpoint, environ)


def wrong_with(endpoint: str) -> str:
    """What is wrong with it, in words that follow the value; empty if nothing is."""
    try:
        parts = urlsplit(endpoint)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    return "" if good or not endpoint else "is not the address of a collector, as in http://127.0.0.1:4318"


def _wanted(settings: TracingSettings, environ: Mapping[str, str]) -> str:
    """What says so; empty if nothing does."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ""
    if wrong := wrong_with(settings.endpoint):
        raise StartError(f'tracing.endpoint: "{settings.endpoint}" {wrong}')
    if settings.endpoint:
        return "tracing.endpoint"
    if environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none":
        return ""
    return next((name for name in _WHERE if environ.get(name, "").strip()), "")


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False

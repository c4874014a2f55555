"""The contexts that producers have left in records (W3C `traceparent` and `tracestate`)."""

from collections.abc import Iterable

from opentelemetry.trace import SpanContext, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sidecar.model.wire import decode_frame

#: links that a span carries: what the SDK would keep anyway
MOST = 128

_PROPAGATOR = TraceContextTextMapPropagator()


def contexts(frames: Iterable[bytes]) -> list[SpanContext]:
    """Of the first records that carry one, each once."""
    found: dict[tuple[int, int], SpanContext] = {}
    for frame in frames:
        # A record is decoded only if it may have one: nearly all cost no more than a search.
        if b"traceparent" in frame:
            context = _context(frame)
            if context.is_valid:
                found[context.trace_id, context.span_id] = context
                if len(found) == MOST:
                    break
    return list(found.values())


def _context(frame: bytes) -> SpanContext:
    said = {
        header.name: header.value.decode("latin-1")
        for header in decode_frame(frame).headers
        if header.name in ("traceparent", "tracestate") and header.value is not None
    }
    return get_current_span(_PROPAGATOR.extract(said)).get_span_context()

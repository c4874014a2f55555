"""Spans by the messaging conventions of OpenTelemetry: poll (receive), deliver (process) and settle.

A `deliver` span lasts as long as a worker holds the batch, and `settle` spans are its children. `poll` and `deliver`
link to the contexts that producers have put into their records (W3C `traceparent` and `tracestate`). Spans contain no
payloads, keys or reasons.
"""

from collections.abc import Iterable, Sequence

from opentelemetry.context import Context
from opentelemetry.trace import (
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sidecar.model.records import Chunk, Lane, Outcome, Settlement, SettleResult
from sidecar.model.wire import decode_frame
from sidecar.observability.tracing.tracer import Lease
from sidecar.settings import SubscriptionSettings

#: names of messaging systems that are not their broker's type: the embedded broker is part of Offramp
_SYSTEMS = {"local": "offramp"}
#: starts a new trace: the current context has nothing to do with these spans
_ROOT = Context()
#: outcomes that are no errors
_GOOD = ("ack", "release")
#: links of a span: the SDK would not keep more
_MOST_LINKS = 128

_PROPAGATOR = TraceContextTextMapPropagator()

Attributes = dict[str, str | int]


class SubscriptionTracer:
    """The `Tracer` of one subscription."""

    def __init__(self, tracer: Tracer, settings: SubscriptionSettings, system: str) -> None:
        self._tracer = tracer
        self._common: Attributes = {
            "messaging.system": _SYSTEMS.get(system, system),
            "messaging.consumer.group.name": settings.group_name,
            "offramp.subscription": settings.name,
        }
        #: the spans of the batches that workers hold, with the attributes of their destination
        self._open: dict[bytes, tuple[Span, Attributes]] = {}

    def polled(self, began: int, chunks: Sequence[Chunk]) -> None:
        destination = _destination([chunk.lane for chunk in chunks])
        records = sum(len(chunk.positions) for chunk in chunks)
        span = self._start("poll", "receive", SpanKind.CLIENT, destination, records, began)
        _link(span, (frame for chunk in chunks for frame in chunk.frames))
        span.end()

    def delivered(self, lease: Lease) -> None:
        destination = _destination([slice_.chunk.shown for slice_ in lease.slices])
        span = self._start("deliver", "process", SpanKind.CONSUMER, destination, lease.records)
        span.set_attribute("messaging.client.id", lease.holder.name)
        again = sum(
            slice_.records for slice_ in lease.slices if slice_.history.failures or slice_.history.possibly_processed
        )
        if again:
            span.set_attribute("offramp.redelivered_records", again)
        _link(span, (frame for slice_ in lease.slices for frame in slice_.chunk.frames[slice_.start : slice_.stop]))
        self._open[lease.id] = span, destination

    def settled(self, began: int, lease: Lease, settlement: Settlement, result: SettleResult) -> None:
        # A late settlement has no parent any more: it starts a trace of its own.
        parent, destination = self._open.get(lease.id, (None, {}))
        span = self._start("settle", "settle", SpanKind.CLIENT, destination, _covered(lease, settlement), began, parent)
        span.set_attribute("offramp.outcome", _outcome_of_settlement(settlement))
        span.set_attribute("offramp.settle_status", result.status.name.lower())
        span.end()

    def calling(self, lease: bytes, address: str) -> "PushSpan":
        parent, _ = self._open.get(lease, (None, None))
        return PushSpan(
            self._tracer.start_span(
                "push",
                context=set_span_in_context(parent, _ROOT) if parent is not None else _ROOT,
                kind=SpanKind.CLIENT,
                attributes={"server.address": address, **self._common},
            )
        )

    def ended(self, lease: Lease) -> None:
        span, _ = self._open.pop(lease.id, (None, None))
        if span is None:
            return
        outcome = _outcome_of_lease(lease)
        span.set_attribute("offramp.outcome", outcome)
        if outcome not in _GOOD:
            span.set_attribute("error.type", outcome)
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    def close(self) -> None:
        for span, _ in self._open.values():
            span.set_attribute("offramp.outcome", "unsettled")
            span.end()
        self._open.clear()

    def _start(
        self,
        name: str,
        kind: str,
        span_kind: SpanKind,
        destination: Attributes,
        records: int,
        began: int | None = None,
        parent: Span | None = None,
    ) -> Span:
        topic = destination.get("messaging.destination.name", "")
        return self._tracer.start_span(
            f"{name} {topic}".rstrip(),
            context=set_span_in_context(parent, _ROOT) if parent is not None else _ROOT,
            kind=span_kind,
            attributes={
                **self._common,
                **destination,
                "messaging.operation.name": name,
                "messaging.operation.type": kind,
                "messaging.batch.message_count": records,
            },
            start_time=began,
        )


class PushSpan:
    """A `CallSpan`."""

    def __init__(self, span: Span) -> None:
        self._span = span
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, set_span_in_context(span, _ROOT))
        self.traceparent = carrier.get("traceparent", "")

    def end(self, status: str) -> None:
        if status.isdigit():
            self._span.set_attribute("http.response.status_code", int(status))
        if not (status.startswith("2") or status == "OK"):
            self._span.set_attribute("error.type", status)
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


def _link(span: Span, frames: Iterable[bytes]) -> None:
    # After the start, so that a span that is not sampled costs no search for contexts.
    if span.is_recording():
        for context in producer_contexts(frames):
            span.add_link(context)


def _destination(lanes: Sequence[Lane]) -> Attributes:
    """The topic and the lane, as far as all records share them."""
    first = lanes[0]
    if any(lane.topic != first.topic for lane in lanes):
        return {}
    if any(lane != first for lane in lanes):
        return {"messaging.destination.name": first.topic}
    return {"messaging.destination.name": first.topic, "messaging.destination.partition.id": str(first.number)}


def producer_contexts(frames: Iterable[bytes]) -> list[SpanContext]:
    """The distinct contexts in the headers of records: as many as a span links to."""
    found: dict[tuple[int, int], SpanContext] = {}
    for frame in frames:
        # Records are decoded only if they may have one: nearly all cost no more than a search.
        if b"traceparent" in frame:
            context = _context(frame)
            if context.is_valid:
                found[context.trace_id, context.span_id] = context
                if len(found) == _MOST_LINKS:
                    break
    return list(found.values())


def _context(frame: bytes) -> SpanContext:
    carrier = {
        header.name: header.value.decode("latin-1")
        for header in decode_frame(frame).headers
        if header.name in ("traceparent", "tracestate") and header.value is not None
    }
    return get_current_span(_PROPAGATOR.extract(carrier)).get_span_context()


def _covered(lease: Lease, settlement: Settlement) -> int:
    """The number of records that it covers."""
    return lease.records if settlement.outcome is not None else sum(part.count for part in settlement.parts)


def _outcome_of_settlement(settlement: Settlement) -> str:
    outcomes = {part.outcome for part in settlement.parts}
    if settlement.outcome is not None:
        outcomes.add(settlement.outcome)
    return _word(outcomes)


def _outcome_of_lease(lease: Lease) -> str:
    if lease.ended:
        return "worker_gone" if lease.holder.ended else "expired"
    return _word({outcome for _, _, outcome in lease.outcomes})


def _word(outcomes: set[Outcome]) -> str:
    return outcomes.pop().name.lower() if len(outcomes) == 1 else "mixed"

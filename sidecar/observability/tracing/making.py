"""Spans by the messaging conventions of OpenTelemetry: poll (receive), deliver (process) and settle.

A `deliver` span lasts as long as the batch is in the hands of its worker, and a `settle` span is its child. `poll` and
`deliver` link to the contexts that producers have left in their records. No payloads, keys or reasons.
"""

from collections.abc import Iterable, Sequence

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from sidecar.model.records import Chunk, Lane, Outcome, Settlement, SettleResult
from sidecar.observability.tracing.hooks import Lease
from sidecar.observability.tracing.producers import contexts
from sidecar.settings import SubscriptionSettings

#: what the embedded broker is called: it is part of Offramp
_SYSTEMS = {"local": "offramp"}
#: a new trace: whatever is current where these are made has nothing to do with them
_ROOT = Context()

#: outcomes that are no error of anybody
_GOOD = ("ack", "release")

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
        #: of the batches in the hands of workers: the span, and what it says of where they come from
        self._open: dict[bytes, tuple[Span, Attributes]] = {}

    def polled(self, began: int, chunks: Sequence[Chunk]) -> None:
        where = _destination([chunk.lane for chunk in chunks])
        records = sum(len(chunk.positions) for chunk in chunks)
        span = self._start("poll", "receive", SpanKind.CLIENT, where, records, began)
        _link(span, (frame for chunk in chunks for frame in chunk.frames))
        span.end()

    def delivered(self, lease: Lease) -> None:
        where = _destination([span.chunk.shown for span in lease.slices])
        span = self._start("deliver", "process", SpanKind.CONSUMER, where, lease.records)
        span.set_attribute("messaging.client.id", lease.holder.name)
        again = sum(one.records for one in lease.slices if one.history.failures or one.history.possibly_processed)
        if again:
            span.set_attribute("offramp.redelivered_records", again)
        _link(span, (frame for one in lease.slices for frame in one.chunk.frames[one.start : one.stop]))
        self._open[lease.id] = span, where

    def settled(self, began: int, lease: Lease, settlement: Settlement, result: SettleResult) -> None:
        # One that comes late has no parent any more, and stands for itself.
        parent, where = self._open.get(lease.id, (None, {}))
        span = self._start("settle", "settle", SpanKind.CLIENT, where, _meant(lease, settlement), began, parent)
        span.set_attribute("offramp.outcome", _said(settlement))
        span.set_attribute("offramp.settle_status", result.status.name.lower())
        span.end()

    def ended(self, lease: Lease) -> None:
        span, _ = self._open.pop(lease.id, (None, None))
        if span is None:
            return
        outcome = _outcome(lease)
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
        where: Attributes,
        records: int,
        began: int | None = None,
        parent: Span | None = None,
    ) -> Span:
        topic = where.get("messaging.destination.name", "")
        return self._tracer.start_span(
            f"{name} {topic}".rstrip(),
            context=set_span_in_context(parent, _ROOT) if parent is not None else _ROOT,
            kind=span_kind,
            attributes={
                **self._common,
                **where,
                "messaging.operation.name": name,
                "messaging.operation.type": kind,
                "messaging.batch.message_count": records,
            },
            start_time=began,
        )


def _link(span: Span, frames: Iterable[bytes]) -> None:
    # Afterwards, and not when it is made: then a span that is not sampled costs no search for contexts.
    if span.is_recording():
        for context in contexts(frames):
            span.add_link(context)


def _destination(lanes: Sequence[Lane]) -> Attributes:
    """Topic and lane, as far as all records share them."""
    first = lanes[0]
    if any(lane.topic != first.topic for lane in lanes):
        return {}
    if any(lane != first for lane in lanes):
        return {"messaging.destination.name": first.topic}
    return {"messaging.destination.name": first.topic, "messaging.destination.partition.id": str(first.number)}


def _meant(lease: Lease, settlement: Settlement) -> int:
    """Records that were settled by it: all of the batch, or those that it names."""
    return lease.records if settlement.outcome is not None else sum(part.count for part in settlement.parts)


def _said(settlement: Settlement) -> str:
    outcomes = {part.outcome for part in settlement.parts}
    if settlement.outcome is not None:
        outcomes.add(settlement.outcome)
    return _word(outcomes)


def _outcome(lease: Lease) -> str:
    if lease.ended:
        return "worker_gone" if lease.holder.ended else "expired"
    return _word({outcome for _, _, outcome in lease.outcomes})


def _word(outcomes: set[Outcome]) -> str:
    return outcomes.pop().name.lower() if len(outcomes) == 1 else "mixed"

"""Continuing the trace of a record's producer.

A producer's W3C context comes in the headers `traceparent` and `tracestate`, which the sidecar leaves as they are.

    from offramp import tracing

    def handle(batch):
        with tracing.process(batch):                      # a span that links to the producers
            for record in batch:
                with tracing.process(record):             # a span in the trace of the record's producer
                    publisher.publish("invoices", make(record), headers=tracing.headers())

`passed_on` has no dependency; everything else needs `opentelemetry-api`, and has no effect unless the app has
configured an SDK.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from offramp.batch import Batch, Record

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span

#: the headers that carry a context
HEADERS = ("traceparent", "tracestate")
#: links of a span: as many as SDKs keep
_MOST_LINKS = 128


def passed_on(record: Record) -> list[tuple[str, bytes | None]]:
    """The headers of the record that carry its trace, to publish with. Needs no OpenTelemetry."""
    return [(header.name, header.value) for header in record.headers if header.name in HEADERS]


def context_of(record: Record) -> "Context":
    """The context of the record's producer; an empty one if the record has none."""
    from opentelemetry.context import Context  # noqa: PLC0415 - an app without OpenTelemetry must be able to import us
    from opentelemetry.propagate import extract  # noqa: PLC0415

    carrier = {
        header.name.lower(): header.value.decode("latin-1") for header in record.headers if header.value is not None
    }
    return extract(carrier, Context())


def links(batch: Batch) -> "list[Link]":
    """One link for each producer of the batch, for a span about the whole batch."""
    from opentelemetry.trace import Link, get_current_span  # noqa: PLC0415

    found = {}
    for record in batch:
        context = get_current_span(context_of(record)).get_span_context()
        if context.is_valid:
            found[context.trace_id, context.span_id] = Link(context)
            if len(found) == _MOST_LINKS:
                break
    return list(found.values())


@contextmanager
def process(work: Batch | Record) -> "Iterator[Span]":
    """A span about handling it, by the messaging conventions, current within the block.

    For a record it continues the trace of the producer. For a batch it is a child of the current span and links to all
    producers: a batch has many, and a span one parent. An exception that leaves the block is recorded in the span.
    """
    from opentelemetry.trace import SpanKind, get_tracer  # noqa: PLC0415

    attributes: dict[str, str | int] = {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": work.topic,
    }
    if isinstance(work, Batch):
        attributes["messaging.batch.message_count"] = len(work)
        lanes = {*work.lanes}
        context, linked = None, links(work)
    else:
        attributes["messaging.message.id"] = work.id
        lanes = {work.lane}
        context, linked = context_of(work), []
    if len(lanes) == 1:
        attributes["messaging.destination.partition.id"] = str(lanes.pop())
    tracer = get_tracer("offramp")
    with tracer.start_as_current_span(
        f"process {work.topic}", context, SpanKind.CONSUMER, attributes, links=linked
    ) as span:
        yield span


def headers() -> list[tuple[str, str]]:
    """The current context as headers, to publish with."""
    from opentelemetry.propagate import inject  # noqa: PLC0415

    carrier: dict[str, str] = {}
    inject(carrier)
    return list(carrier.items())

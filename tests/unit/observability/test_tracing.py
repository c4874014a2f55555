"""Tracing: whether there are spans, and what is in them. With the real SDK, on a real subscription."""

import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from sidecar.model.errors import StartError
from sidecar.model.records import Header, Message, Outcome, Part
from sidecar.model.wire import encode_frame
from sidecar.observability import tracing
from sidecar.observability.tracing import exporter, tracer
from sidecar.observability.tracing.spans import SubscriptionTracer, producer_contexts
from sidecar.settings import BatchSettings, RetrySettings, Seconds, SubscriptionSettings, TracingSettings
from sidecar.subscription.subscription import Subscription
from tests.memory_broker import MemoryBroker
from tests.promises.adjustable_time import until
from tests.promises.audit import Audit
from tests.promises.worker import Worker
from tests.unit.server.grpc.service_kit import in_loop


def parent(number: int) -> Header:
    return Header("traceparent", b"00-%032x-%016x-01" % (number, number))


class Kit:
    """A subscription on a broker in memory, and its spans."""

    def __init__(self, sampler: Any = None, **settings: Any) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        whole = {"name": "billing", "topics": ("orders",), "group": "billers", **settings}
        self.settings = SubscriptionSettings(**whole)
        self.tracer = SubscriptionTracer(provider.get_tracer("offramp"), self.settings, "kafka")
        self.broker = MemoryBroker()

    @asynccontextmanager
    async def working(self) -> AsyncIterator[Subscription]:
        await self.broker.open()
        await self.broker.ensure_topic("orders", 2)
        subscription = Subscription(self.settings, self.broker, prefix=bytes(10), tracer=self.tracer)
        await subscription.start()
        try:
            yield subscription
        finally:
            await subscription.close()
            await self.broker.close()

    def worker(self, subscription: Subscription, **options: Any) -> Worker:
        return Worker(subscription, Audit(), name="billing-1", **options)

    async def publish(self, *headers: Header, lane: int = 0) -> None:
        """A message for each header, all at once."""
        await self.broker.publish("orders", [Message(None, b"value", (header,), lane=lane) for header in headers])

    def made(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    async def one(self, name: str) -> ReadableSpan:
        await until(lambda: self.made(name), f"a span {name}")
        (span,) = self.made(name)
        return span


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.trace_id for link in span.links]


@in_loop
async def test_a_batch_that_is_acked_makes_three_spans_by_the_conventions() -> None:
    kit = Kit()
    async with kit.working() as subscription:
        await kit.publish(parent(1), parent(2))
        batch = await kit.worker(subscription).next()
        batch.ack()
        poll, deliver, settle = [await kit.one(f"{name} orders") for name in ("poll", "deliver", "settle")]
    common = {
        "messaging.system": "kafka",
        "messaging.consumer.group.name": "billers",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.batch.message_count": 2,
        "offramp.subscription": "billing",
    }
    assert attributes(poll) == common | {"messaging.operation.name": "poll", "messaging.operation.type": "receive"}
    assert attributes(deliver) == common | {
        "messaging.operation.name": "deliver",
        "messaging.operation.type": "process",
        "messaging.client.id": "billing-1",
        "offramp.outcome": "ack",
    }
    assert attributes(settle) == common | {
        "messaging.operation.name": "settle",
        "messaging.operation.type": "settle",
        "offramp.outcome": "ack",
        "offramp.settle_status": "settled",
    }
    assert [span.kind for span in (poll, deliver, settle)] == [SpanKind.CLIENT, SpanKind.CONSUMER, SpanKind.CLIENT]
    assert linked(poll) == linked(deliver) == [1, 2]
    assert poll.parent is None
    assert deliver.parent is None
    assert settle.parent == deliver.context
    assert deliver.start_time <= settle.start_time <= settle.end_time <= deliver.end_time
    assert deliver.status.status_code is StatusCode.UNSET


@in_loop
async def test_a_batch_of_two_lanes_names_no_lane_and_each_producer_is_linked_once() -> None:
    kit = Kit(batch=BatchSettings(records=4, linger=Seconds(5.0)))
    async with kit.working() as subscription:
        await kit.publish(parent(7), parent(7), lane=0)
        await kit.publish(parent(8), Header("traceparent", b"nonsense"), lane=1)
        (await kit.worker(subscription).next()).ack()
        deliver = await kit.one("deliver orders")
    assert "messaging.destination.partition.id" not in attributes(deliver)
    assert sorted(linked(deliver)) == [7, 8]


def _outcome(kit: Kit) -> Mapping[str, Any]:
    first = kit.made("deliver orders")[0]
    return {"status": first.status.status_code, **attributes(first)}


@in_loop
async def test_a_batch_that_fails_is_an_error_without_the_reason_of_the_handler() -> None:
    kit = Kit(retry=RetrySettings(first=Seconds(0.0)))
    async with kit.working() as subscription:
        await kit.publish(parent(1))
        worker = kit.worker(subscription)
        (await worker.next()).nack("card of Jane Doe was declined")
        (await worker.next()).ack()
    first, again = kit.made("deliver orders")
    assert (first.status.status_code, attributes(first)["error.type"]) == (StatusCode.ERROR, "nack")
    assert first.status.description is None
    assert "offramp.redelivered_records" not in attributes(first)
    assert attributes(again)["offramp.redelivered_records"] == 1
    assert linked(again) == [1]
    assert "Jane Doe" not in "".join(span.to_json() for span in kit.exporter.get_finished_spans())


@in_loop
async def test_a_worker_that_dies_ends_the_span_of_its_batch() -> None:
    kit = Kit()
    async with kit.working() as subscription:
        await kit.publish(parent(1))
        worker = kit.worker(subscription)
        await worker.next()
        worker.die()
    assert (_outcome(kit)["offramp.outcome"], _outcome(kit)["status"]) == ("worker_gone", StatusCode.ERROR)


@in_loop
async def test_a_lease_that_expires_ends_its_span_and_a_late_settlement_starts_a_trace_of_its_own() -> None:
    kit = Kit()
    async with kit.working() as subscription:
        await kit.publish(parent(1))
        batch = await kit.worker(subscription, lease=0.01).next()
        deliver = await kit.one("deliver orders")
        assert attributes(deliver)["error.type"] == "expired"
        batch.ack()
        assert (await kit.one("settle")).parent is None


@in_loop
async def test_a_batch_that_is_settled_in_parts_has_a_span_for_each_settlement() -> None:
    kit = Kit()
    async with kit.working() as subscription:
        await kit.publish(parent(1), parent(2), parent(3))
        batch = await kit.worker(subscription).next()
        batch.settle(None, [Part(0, 1, Outcome.ACK)])
        assert kit.made("deliver orders") == []
        batch.settle(Outcome.ACK, [Part(2, 1, Outcome.REJECT)])
    said = [
        (attributes(span)["offramp.outcome"], attributes(span)["messaging.batch.message_count"])
        for span in kit.made("settle orders")
    ]
    assert said == [("ack", 1), ("mixed", 3)]
    assert _outcome(kit)["offramp.outcome"] == "mixed"


@in_loop
async def test_a_batch_that_is_in_flight_when_the_sidecar_ends_has_the_outcome_unsettled() -> None:
    kit = Kit()
    async with kit.working() as subscription:
        await kit.publish(parent(1))
        await kit.worker(subscription).next()
    assert _outcome(kit)["offramp.outcome"] == "unsettled"


@in_loop
async def test_polls_that_bring_nothing_make_no_spans() -> None:
    kit = Kit()
    async with kit.working() as subscription:
        await until(subscription.lanes, "it was polled")
    assert kit.exporter.get_finished_spans() == ()


@in_loop
async def test_a_span_that_is_not_sampled_looks_for_no_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(frames: object) -> None:
        raise AssertionError("a search in vain")

    monkeypatch.setattr("sidecar.observability.tracing.spans.producer_contexts", never)
    kit = Kit(sampler=ALWAYS_OFF)
    async with kit.working() as subscription:
        await kit.publish(parent(1))
        (await kit.worker(subscription).next()).ack()
        assert not subscription.troubles.get("bug")
    assert kit.exporter.get_finished_spans() == ()


def frames(*headers: Sequence[Header], value: bytes = b"") -> list[bytes]:
    return [encode_frame(None, value, each, 0, at) for at, each in enumerate(headers)]


def test_links_are_bounded() -> None:
    many = frames(*([parent(number)] for number in range(1, 1000)))
    assert [context.trace_id for context in producer_contexts(many)] == list(range(1, 129))


def test_the_state_of_a_producer_is_kept() -> None:
    (context,) = producer_contexts(frames([parent(1), Header("tracestate", b"vendor=x")]))
    assert context.trace_state["vendor"] == "x"


@pytest.mark.parametrize(
    "header",
    [
        Header("traceparent", None),
        Header("traceparent", b""),
        Header("traceparent", b"\xff\xfe" * 30),
        Header("traceparent", b"00-%032x-%016x-01" % (0, 0)),
        Header("not-traceparent", parent(1).value),
    ],
)
def test_what_is_no_context_is_no_link(header: Header) -> None:
    assert producer_contexts(frames([header])) == []


def test_a_payload_that_looks_like_a_header_is_no_context() -> None:
    decoy = frames([parent(1)])[0]
    assert producer_contexts(frames([], value=decoy)) == []


# Whether there are spans at all


def test_without_a_place_for_spans_nothing_of_opentelemetry_is_loaded() -> None:
    """In a process of its own that imports a whole sidecar."""
    program = """
import sys
from sidecar.observability import tracing
from sidecar.server import sidecar
from sidecar.settings import TracingSettings
assert tracing.start(TracingSettings(), {}) is None
assert not [name for name in sys.modules if name.startswith("opentelemetry")], "it was loaded"
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@in_loop
async def test_without_spans_the_hot_path_calls_nothing_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the clock: `time_ns` is read for spans only."""

    def never() -> int:
        raise AssertionError("the clock was read for spans that nobody wants")

    for module in ("fetcher", "settlement"):
        monkeypatch.setattr(f"sidecar.subscription.{module}.time_ns", never)
    kit = Kit()
    kit.tracer = None  # type: ignore[assignment]
    async with kit.working() as subscription:
        await kit.publish(*[parent(1)] * 10)
        worker = kit.worker(subscription, credit=2)
        (await worker.next()).ack()
        assert subscription.counters.acked == 10
        assert not [*subscription.troubles]


@pytest.mark.parametrize(
    ("endpoint", "environ", "wanted"),
    [
        ("", {}, ""),
        ("http://127.0.0.1:4318", {}, "tracing.endpoint"),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, "OTEL_EXPORTER_OTLP_ENDPOINT"),
        ("", {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
        ("", {"OTEL_TRACES_EXPORTER": "console"}, "OTEL_TRACES_EXPORTER"),
        ("", {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, ""),
        ("http://c:4318", {"OTEL_SDK_DISABLED": "true"}, ""),
        ("", {"OTEL_SERVICE_NAME": "orders"}, ""),
    ],
)
def test_spans_are_made_if_they_have_somewhere_to_go(endpoint: str, environ: dict[str, str], wanted: str) -> None:
    assert tracer._configured_by(TracingSettings(endpoint=endpoint), environ) == wanted


@pytest.mark.parametrize("endpoint", ["collector:4318", "ftp://c", "http://", "http://c:x", "http://[", "4318"])
def test_an_endpoint_that_is_no_address_is_refused_with_an_example(endpoint: str) -> None:
    with pytest.raises(StartError, match=r'tracing.endpoint: ".*" is not the address of a collector, as in http://127'):
        tracing.start(TracingSettings(endpoint=endpoint), {})


def test_settings_that_want_what_is_not_installed_are_refused_and_variables_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracer, "_is_installed", lambda module: False)
    with pytest.raises(
        StartError, match=r"tracing.endpoint is set, but opentelemetry-sdk is not installed: pip install"
    ):
        tracing.start(TracingSettings(endpoint="http://c:4318"), {})
    assert tracing.start(TracingSettings(), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}) is None


def test_an_exporter_that_is_not_there_is_named_with_those_that_are_and_is_no_reason_not_to_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The variables of a whole pod may name an exporter that only its app has."""
    caplog.set_level("INFO")
    assert tracing.start(TracingSettings(), {"OTEL_TRACES_EXPORTER": "zipkin"}) is None
    (said,) = caplog.messages
    assert said.startswith('spans are not exported: no exporter "zipkin" for spans is installed; there are: ')
    assert "otlp_proto_http" in said


def test_settings_that_want_an_exporter_which_is_not_there_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "_ENTRY_POINTS", "nothing_is_here")
    with pytest.raises(StartError, match=r'no exporter "otlp_proto_http" for spans is installed; there are: none'):
        tracing.start(TracingSettings(endpoint="http://c:4318"), {})

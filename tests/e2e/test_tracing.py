"""Traces from outside: a real sidecar, a real exporter, a real collector, and the helpers of the Python client."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import offramp
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, eventually
from tests.e2e.push.harness import App, pushing

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
#: so that spans leave at once
FAST = {"OTEL_BSP_SCHEDULE_DELAY": "50"}


class Collector:
    def __init__(self, port: int, file: Path) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self._file = file

    def spans(self) -> list[dict[str, Any]]:
        whole = self._file.read_text().split("\n")[:-1] if self._file.exists() else []
        return [json.loads(line) for line in whole]

    def span(self, name: str) -> dict[str, Any]:
        return eventually(lambda: next((span for span in self.spans() if span["name"] == name), {}), f"the span {name}")


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    file = tmp_path / "spans.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.collector", str(file)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    with process:
        assert process.stdout is not None
        yield Collector(int(process.stdout.readline()), file)
        process.kill()


@contextmanager
def batch_in_hand(sidecar: Sidecar, **headers: str) -> Iterator[offramp.Batch]:
    with offramp.Publisher(broker="local", address=sidecar.target) as publisher:
        publisher.publish("orders", b"value", headers=headers)
    with offramp.connect("orders", address=sidecar.target) as consumer:
        batch = consumer.take(timeout=WAIT_TIMEOUT)
        assert batch is not None
        yield batch


@pytest.mark.parametrize("by", ["setting", "variable"])
def test_spans_reach_a_collector(tmp_path: Path, collector: Collector, by: str) -> None:
    if by == "setting":
        sidecar = Sidecar(tmp_path, environ=FAST, tracing={"endpoint": collector.address})
    else:
        sidecar = Sidecar(tmp_path, environ={**FAST, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.address})
    with sidecar, batch_in_hand(sidecar, traceparent=PARENT) as batch:
        batch.ack().result(WAIT_TIMEOUT)
        assert collector.span("poll orders")["links"] == [TRACE]
        assert collector.span("deliver orders")["links"] == [TRACE]
        assert collector.span("settle orders")["service"] == "offramp"


def test_a_call_to_an_app_is_a_span_that_the_app_can_continue(tmp_path: Path, collector: Collector) -> None:
    with App(tmp_path) as app:
        sidecar = pushing(tmp_path, app.url, environ=FAST)
        sidecar.settings["tracing"] = {"endpoint": collector.address}
        with sidecar:
            sidecar.publish("orders", [b"value"])
            span = collector.span("push")
            _, trace_id, span_id, _ = app.events()[0]["headers"]["traceparent"].split("-")
            assert (span["trace"], span["span"]) == (trace_id, span_id)
            deliver = collector.span("deliver orders")
            assert (span["trace"], span["parent"]) == (deliver["trace"], deliver["span"])


def test_the_last_spans_leave_when_the_sidecar_stops(tmp_path: Path, collector: Collector) -> None:
    slow = {"OTEL_BSP_SCHEDULE_DELAY": "600000"}
    sidecar = Sidecar(tmp_path, environ=slow, tracing={"endpoint": collector.address})
    with sidecar, batch_in_hand(sidecar, traceparent=PARENT) as batch:
        batch.ack().result(WAIT_TIMEOUT)
        assert collector.spans() == []
        assert sidecar.terminate() == 0
        assert {span["name"] for span in collector.spans()} >= {"poll orders", "deliver orders", "settle orders"}


def test_a_collector_that_is_away_holds_up_neither_work_nor_the_end(tmp_path: Path) -> None:
    sidecar = Sidecar(tmp_path, environ=FAST, tracing={"endpoint": "http://127.0.0.1:9"})
    with sidecar, batch_in_hand(sidecar) as batch:
        assert batch.ack().result(WAIT_TIMEOUT).status is offramp.SettleStatus.SETTLED
        eventually(lambda: sidecar.metric("offramp_commits_total") > 0, "it is committed")
        began = time.monotonic()
        assert sidecar.terminate() == 0
        # It would try for a minute.
        assert time.monotonic() - began < 15


def test_without_a_collector_a_sidecar_says_nothing_of_spans(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar:
        assert not [event for event in sidecar.events() if event["logger"] == "tracing"]


@pytest.fixture(scope="module")
def made() -> Iterator[InMemorySpanExporter]:
    """What the app's own SDK has made. It can be set once in a process."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


def test_a_handler_continues_the_trace_of_a_record_and_hands_it_on(tmp_path: Path, made: InMemorySpanExporter) -> None:
    made.clear()
    with Sidecar(tmp_path) as sidecar, batch_in_hand(sidecar, traceparent=PARENT, tracestate="vendor=x") as batch:
        with offramp.tracing.process(batch), offramp.tracing.process(batch[0]) as span:
            assert f"{span.get_span_context().trace_id:032x}" == TRACE
            onward = dict(offramp.tracing.headers())
        about_record, about_batch = made.get_finished_spans()
        assert onward["traceparent"] == f"00-{TRACE}-{about_record.context.span_id:016x}-01"
        assert onward["tracestate"] == "vendor=x"
        assert (about_record.name, about_record.kind) == ("process orders", trace.SpanKind.CONSUMER)
        assert dict(about_record.attributes or {})["messaging.message.id"] == batch[0].id
        assert [f"{link.context.trace_id:032x}" for link in about_batch.links] == [TRACE]
        assert dict(about_batch.attributes or {})["messaging.batch.message_count"] == 1
        assert offramp.tracing.passed_on(batch[0]) == [("traceparent", PARENT.encode()), ("tracestate", b"vendor=x")]


def test_a_record_without_a_trace_begins_one(tmp_path: Path, made: InMemorySpanExporter) -> None:
    made.clear()
    with Sidecar(tmp_path) as sidecar, batch_in_hand(sidecar, kind="order") as batch:
        assert offramp.tracing.links(batch) == []
        assert offramp.tracing.passed_on(batch[0]) == []
        with pytest.raises(ValueError, match="bad"), offramp.tracing.process(batch[0]):
            raise ValueError("bad")
        (span,) = made.get_finished_spans()
        assert span.parent is None
        assert span.status.status_code is trace.StatusCode.ERROR


def test_the_client_loads_nothing_of_opentelemetry_by_itself() -> None:
    program = "import sys, offramp; assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)

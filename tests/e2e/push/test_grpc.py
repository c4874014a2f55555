"""Push to an app that is a gRPC server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from offramp.v1 import handler_pb2, record_pb2
from sidecar.model.records import Outcome, Part
from sidecar.push.grpc import judge, judge_status
from sidecar.push.verdict import Died, NotReached, Settled, TimedOut
from sidecar.settings import PushSettings
from tests.e2e.harness import Sidecar, eventually
from tests.e2e.push.harness import App, calls, dead, pushing, settled, texts, trouble
from tests.e2e.push.test_faults import restarted

ONE = 0
NACK, REJECT = record_pb2.OUTCOME_NACK, record_pb2.OUTCOME_REJECT
Code = grpc.StatusCode


class GrpcApp(App):
    module = "tests.e2e.push.grpc_app"


def sidecar_for(folder: Path, push: dict[str, Any] | None = None, **settings: Any) -> Sidecar:
    sidecar = pushing(folder, "", {"grpc": f"unix:{folder}/app.sock", **(push or {})}, **settings)
    del sidecar.settings["subscriptions"]["orders"]["push"]["format"]
    return sidecar


@contextmanager
def running(folder: Path, push: dict[str, Any] | None = None, **settings: Any) -> Iterator[tuple[App, Sidecar]]:
    with GrpcApp(folder) as app, sidecar_for(folder, push, **settings) as sidecar:
        yield app, sidecar


def test_a_response_settles_its_batch_and_names_single_records(tmp_path: Path) -> None:
    with running(tmp_path) as (app, sidecar):
        app.answer(a={"parts": [{"first": 1, "count": 1, "outcome": REJECT, "reason": "no"}]})
        sidecar.publish("orders", texts("a", "b", "c"), lane=ONE)
        settled(sidecar, 3)
        assert dead(sidecar, 1) == [("b", "REJECTED: no")]
        assert app.calls() == [["a", "b", "c"]]
        assert app.events()[0]["subscription"] == "orders"
        assert calls(sidecar, "OK") == 1


def test_an_app_that_is_not_there_or_does_not_serve_it_costs_no_attempt(tmp_path: Path) -> None:
    with sidecar_for(tmp_path, {"timeout": "300ms"}) as sidecar:
        sidecar.publish("orders", texts(1), lane=ONE)
        trouble(sidecar, "nobody serves gRPC")
        with GrpcApp(tmp_path, uds=str(tmp_path / "app.sock"), serves=False):
            trouble(sidecar, "UNIMPLEMENTED")
        with GrpcApp(tmp_path) as app:
            settled(sidecar, 1)
            assert app.done() == ["1"]
        counters = sidecar.status().counters
        assert (counters.nacked, counters.dead_lettered) == (0, 0)


def test_a_record_that_kills_the_app_is_found(tmp_path: Path) -> None:
    with running(tmp_path, batch={"records": 3}) as (app, sidecar), restarted(app):
        app.answer(killer={"die": True})
        sidecar.publish("orders", texts(1, 2, 3, "killer", 4, 5), lane=ONE)
        settled(sidecar, 6)
        assert dead(sidecar, 1) == [("killer", "WORKER_DIED")]
        assert set(app.done()) == set("12345")


def test_a_call_past_its_deadline_is_flagged_and_keeps_its_record_for_settle_after(tmp_path: Path) -> None:
    with running(tmp_path, {"timeout": "200ms", "settle_after": "300ms"}) as (app, sidecar):
        app.answer(slow={"sleep": 0.4})
        sidecar.publish("orders", texts("slow"), lane=ONE)
        eventually(lambda: len(app.calls()) > 1, "it is called again")
        app.answer()
        settled(sidecar, 1)
        first, second = app.events()[:2]
        assert second["at"] - first["at"] > 0.49
        assert (first["flagged"], second["flagged"]) == (False, True)


@pytest.mark.parametrize(
    ("code", "records", "verdict"),
    [
        (Code.RESOURCE_EXHAUSTED, 2, Settled("RESOURCE_EXHAUSTED", Outcome.OVERLOADED, "RESOURCE_EXHAUSTED: x")),
        (Code.INVALID_ARGUMENT, 2, Settled("INVALID_ARGUMENT", Outcome.NACK, "INVALID_ARGUMENT: x")),
        (Code.INVALID_ARGUMENT, 1, Settled("INVALID_ARGUMENT", Outcome.REJECT, "INVALID_ARGUMENT: x")),
        (Code.INTERNAL, 1, Settled("INTERNAL", Outcome.NACK, "INTERNAL: x")),
    ],
)
def test_a_status_says_what_becomes_of_a_batch(code: grpc.StatusCode, records: int, verdict: Settled) -> None:
    assert judge_status(code, "x", records, PushSettings(), lost=False) == verdict


def test_a_status_may_say_that_nothing_was_handled() -> None:
    for code in (Code.UNAVAILABLE, Code.UNIMPLEMENTED, Code.PERMISSION_DENIED, Code.UNAUTHENTICATED):
        assert isinstance(judge_status(code, "x", 1, PushSettings(), lost=False), NotReached)
    assert judge_status(Code.UNAVAILABLE, "x", 1, PushSettings(), lost=True) == Died("cut")
    assert isinstance(judge_status(Code.DEADLINE_EXCEEDED, "x", 1, PushSettings(), lost=False), TimedOut)


@pytest.mark.parametrize(
    "parts",
    [
        [(0, 0, NACK)],
        [(0, 4, NACK)],
        [(3, 1, NACK)],
        [(1, 1, NACK), (0, 1, NACK)],
        [(0, 2, NACK), (1, 1, NACK)],
        [(0, 1, 0)],
        [(0, 1, 99)],
    ],
)
def test_parts_that_break_a_rule_nack_the_batch(parts: list[tuple[int, int, Any]]) -> None:
    messages = [record_pb2.Part(first=first, count=count, outcome=outcome) for first, count, outcome in parts]
    verdict = judge(handler_pb2.HandleResponse(outcome=record_pb2.OUTCOME_ACK, parts=messages), 3)
    assert isinstance(verdict, Settled)
    assert (verdict.outcome, verdict.possibly_processed) == (Outcome.NACK, True)


def test_a_response_without_an_outcome_is_no_ack() -> None:
    verdict = judge(handler_pb2.HandleResponse(), 1)
    assert isinstance(verdict, Settled)
    assert verdict.outcome is Outcome.NACK


def test_a_response_may_say_when_to_come_back() -> None:
    response = handler_pb2.HandleResponse(outcome=record_pb2.OUTCOME_OVERLOADED, reason="busy", retry_after_ms=1500)
    assert judge(response, 1) == Settled("OK", Outcome.OVERLOADED, "busy", 1.5)
    part = record_pb2.Part(first=0, count=1, outcome=NACK, retry_after_ms=10)
    response = handler_pb2.HandleResponse(outcome=record_pb2.OUTCOME_ACK, parts=[part])
    assert judge(response, 2) == Settled("OK", Outcome.ACK, parts=(Part(0, 1, Outcome.NACK, "", 0.01),))

"""Structured logs."""

import ast
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import sidecar
from sidecar.observability import logs
from sidecar.observability.counters import LOG_FIELDS
from sidecar.observability.logs import Log
from sidecar.settings import LogFormat, LogLevel, LogSettings


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    root, offramp = logging.getLogger(), logging.getLogger("offramp")
    handlers, levels = root.handlers[:], (root.level, offramp.level)
    yield
    root.handlers = handlers
    root.setLevel(levels[0])
    offramp.setLevel(levels[1])


def test_text_is_one_line_with_the_fields_after_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings())
    Log("server").info("ready", socket="/run/a b.sock", subscriptions=["orders", "payments"], seconds=0.25, tcp="")
    line = capsys.readouterr().err
    assert line.endswith('Z info    server: ready socket="/run/a b.sock" subscriptions=orders,payments seconds=0.250\n')


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings(format=LogFormat.JSON))
    Log("server").warning("two\nlines", reason='"quoted"', error=ValueError("ö"))
    (line,) = capsys.readouterr().err.splitlines()
    event = json.loads(line)
    assert event.pop("time")
    assert event == {
        "level": "warning",
        "logger": "server",
        "message": "two\nlines",
        "reason": '"quoted"',
        "error": "ö",
    }


def test_a_field_with_a_line_break_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings())
    Log("server").error("cannot start", error="first\nsecond")
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("log_format", LogFormat)
def test_what_others_choose_forges_no_line_and_controls_no_terminal(
    capsys: pytest.CaptureFixture[str], log_format: LogFormat
) -> None:
    logs.configure(LogSettings(format=log_format))
    name = "web\x1b[1A\x9b2K\u202e\n2026-01-01T00:00:00.000Z info    server: all is well\x85\x7f"
    log = Log("server")
    log.info(f"a worker has connected: {name}", client=name, lanes=[name])
    log.bug("unhandled exception", ValueError(name))
    lines = capsys.readouterr().err.splitlines()
    assert all(line.isprintable() for line in lines)
    begun = [line for line in lines if not line.startswith("    ")]
    assert len(begun) == 2
    if log_format is LogFormat.JSON:
        assert json.loads(begun[0])["client"] == name


def test_less_important_events_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings(level=LogLevel.WARNING))
    Log("server").info("not this")
    Log("server").warning("but this")
    logging.getLogger("somebody.else").info("nor this")
    assert "not" not in capsys.readouterr().err


def test_a_bug_comes_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings(format=LogFormat.JSON))
    try:
        raise RuntimeError("nobody foresaw this")
    except RuntimeError as error:
        Log("server").bug("a call failed", error, method="Fetch")
    event = json.loads(capsys.readouterr().err)
    assert "RuntimeError: nobody foresaw this" in event["traceback"]


def test_every_field_that_is_logged_is_in_the_list() -> None:
    root = Path(sidecar.__file__).parent
    used = {
        (keyword.arg, path.name)
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("debug", "info", "warning", "error", "bug")
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "log"
        for keyword in node.keywords
        if keyword.arg not in ("extra", "exc_info")
    }
    assert {name for name, _ in used} <= set(LOG_FIELDS), used


def test_what_grpc_tells_of_clients_is_left_out_with_all_that_they_sent(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings())
    grpc = logging.getLogger("grpc._cython.cygrpc")
    grpc.error("Invalid encoding on %s", b"y" * 16_000)
    grpc.error("ExecuteBatchError raised in core by servicer method [/offramp.v1.ConsumerService/Consume]")
    grpc.error("the port is gone")
    assert capsys.readouterr().err.endswith("error   grpc._cython.cygrpc: the port is gone\n")
    assert not capsys.readouterr().err

"""Several processes with a handler, against a real sidecar."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import offramp
from tests.clients.python import process_handlers
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, eventually

ROOT = Path(__file__).parents[3]


@pytest.fixture
def sidecar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sidecar]:
    monkeypatch.setenv(process_handlers.FOLDER, str(tmp_path))
    orders = {"topics": ["orders"], "batch": {"records": 1}, "retry": {"first": "1ms"}}
    with Sidecar(tmp_path, subscriptions={"orders": orders}) as sidecar:
        yield sidecar


@contextmanager
def running(sidecar: Sidecar, handler: Any, **options: Any) -> Iterator[tuple[offramp.Processes, "Future[None]"]]:
    processes = offramp.Processes("orders", handler, address=sidecar.target, **options)
    with ThreadPoolExecutor() as pool:
        run = pool.submit(processes.run)
        try:
            yield processes, run
        finally:
            processes.drain()
            processes.drain()


def notes(sidecar: Sidecar) -> list[list[str]]:
    path = sidecar.folder / "notes"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def publish(sidecar: Sidecar, count: int) -> None:
    sidecar.publish("orders", [b"%d" % number for number in range(count)], lane=0)


def test_one_lane_feeds_all_processes_and_each_has_a_session_of_its_own(sidecar: Sidecar) -> None:
    with running(sidecar, process_handlers.do_slowly, processes=3, prefetch=0) as (processes, run):
        eventually(lambda: len(sidecar.status().sessions) == 3)
        assert {session.pid for session in sidecar.status().sessions} == set(processes.pids)
        publish(sidecar, 90)
        eventually(lambda: sidecar.status().counters.acked == 90)
        processes.drain()
        run.result(WAIT_TIMEOUT)
    assert len({pid for pid, *_ in notes(sidecar)}) == 3
    assert sidecar.status().counters.abandoned == 0


def test_a_process_that_is_killed_is_replaced_and_its_batch_comes_again(sidecar: Sidecar) -> None:
    with running(sidecar, process_handlers.get_stuck_once, processes=2) as (processes, _):
        publish(sidecar, 1)
        eventually(lambda: notes(sidecar))
        victim = int(notes(sidecar)[0][0])
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: sidecar.status().counters.acked == 1)
        eventually(lambda: len(processes.pids) == 2 and victim not in processes.pids)
    assert sidecar.status().counters.abandoned == 1


def test_a_process_is_replaced_after_so_many_batches(sidecar: Sidecar) -> None:
    with running(
        sidecar, process_handlers.do, processes=1, prefetch=0, max_batches=3, initializer=process_handlers.begin
    ):
        publish(sidecar, 9)
        eventually(lambda: sidecar.status().counters.acked == 9)
    did = Counter(pid for pid, word, *_ in notes(sidecar) if word == "did")
    assert sorted(did.values()) == [3, 3, 3]
    assert {pid for pid, word, *_ in notes(sidecar) if word == "begins"} >= did.keys()
    assert sidecar.status().counters.abandoned == 0


def test_a_process_whose_own_code_ends_it_is_not_started_again_and_again_without_a_word(
    sidecar: Sidecar, caplog: pytest.LogCaptureFixture
) -> None:
    with running(sidecar, process_handlers.do, processes=1, max_batches=1, initializer=process_handlers.leave):
        eventually(lambda: len(notes(sidecar)) >= 2)
    assert "a worker process ended with exit code 1; starting another" in caplog.text


def test_draining_lets_all_finish_what_they_have_in_hand(sidecar: Sidecar) -> None:
    with running(sidecar, process_handlers.wait_for_go, processes=2) as (processes, run):
        publish(sidecar, 10)
        eventually(lambda: len(notes(sidecar)) == 2)
        processes.drain()
        for pid in processes.pids:
            # As a supervisor does that tells all processes of a group.
            os.kill(pid, signal.SIGTERM)
        (sidecar.folder / "go").touch()
        run.result(WAIT_TIMEOUT)
    words = Counter(word for _, word, _ in notes(sidecar))
    assert words["began"] == words["ended"] == sidecar.status().counters.acked < 10
    counters = sidecar.status().counters
    assert (counters.abandoned, counters.nacked) == (0, 0)


def test_those_that_do_not_end_in_time_are_killed(sidecar: Sidecar) -> None:
    with running(sidecar, process_handlers.wait_for_go, processes=1, drain_timeout=0.2) as (processes, run):
        publish(sidecar, 1)
        eventually(lambda: notes(sidecar))
        processes.drain()
        run.result(WAIT_TIMEOUT)
    eventually(lambda: sidecar.status().counters.abandoned == 1)


def test_a_coroutine_function_runs_in_tasks(sidecar: Sidecar) -> None:
    with running(sidecar, process_handlers.do_in_a_task, processes=1, workers=4):
        publish(sidecar, 20)
        eventually(lambda: sidecar.status().counters.acked == 20)


def test_a_refusal_ends_all_of_them_and_is_raised(sidecar: Sidecar) -> None:
    processes = offramp.Processes("ordrs", process_handlers.do, processes=2, address=sidecar.target)
    with pytest.raises(offramp.errors.NotFound, match="orders"):
        processes.run()
    assert processes.pids == ()


def test_processes_do_not_outlive_their_parent(sidecar: Sidecar) -> None:
    command = [sys.executable, "-m", "tests.clients.python.process_handlers", "orders"]
    environment = {**os.environ, "OFFRAMP_ADDRESS": sidecar.target}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL) as parent:
        try:
            eventually(lambda: len(sidecar.status().sessions) == 2)
        finally:
            parent.kill()
    eventually(lambda: not sidecar.status().sessions)


def test_a_signal_drains_a_program(sidecar: Sidecar) -> None:
    command = [sys.executable, "-m", "tests.clients.python.process_handlers", "orders"]
    environment = {**os.environ, "OFFRAMP_ADDRESS": sidecar.target}
    with subprocess.Popen(command, cwd=ROOT, env=environment) as parent:
        try:
            publish(sidecar, 5)
            eventually(lambda: sidecar.status().counters.acked == 5)
            parent.send_signal(signal.SIGINT)
            assert parent.wait(WAIT_TIMEOUT) == 0
        finally:
            parent.kill()
    assert sidecar.status().counters.abandoned == 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"processes": 0}, "processes"),
        ({"max_batches": 0}, "max_batches"),
        ({"on_result": print}, "on_result"),
        ({"lease": -1.0}, "lease"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        offramp.Processes("orders", process_handlers.do, **options)


def test_a_handler_that_cannot_travel_is_refused() -> None:
    with pytest.raises(TypeError, match="another process can import"):
        offramp.Processes("orders", lambda batch: None)

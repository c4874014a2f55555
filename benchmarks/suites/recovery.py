"""After a stall: the load on an overloaded service behind the handler, with and without `budget.adaptive`."""

import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import offramp
from benchmarks.environment import BenchmarkEnvironment
from benchmarks.programs import command, running
from benchmarks.programs.downstream import CAPACITY
from benchmarks.rows import Benchmark, Row

_WORKERS = 64
#: records published per second, and in how many portions
_RATE, _PORTIONS = 500, 50
#: seconds before the stall, of the stall, and until the backlog counts as never cleared
_BEFORE, _STALL, _GIVE_UP = 2.0, 2.0, 8.0
#: the backlog is clear with at most this many records
_CLEAR = 50


class Load:
    """Publishes at a steady rate, and asks the downstream service for its counts."""

    def __init__(self, topic: str, publisher: offramp.Publisher, downstream: Path) -> None:
        self._topic = topic
        self._publisher = publisher
        self._portion = [offramp.Message(b"x" * 100)] * (_RATE // _PORTIONS)
        self._published = 0
        self._began = time.monotonic()
        self._line = socket.socket(socket.AF_UNIX)
        self._line.connect(str(downstream))
        self._answers = self._line.makefile("r")

    def publish(self, seconds: float, *, until_clear: bool = False) -> float:
        """Publish for this many seconds, or until the backlog is clear. Returns the seconds it took."""
        began = time.monotonic()
        while (now := time.monotonic()) - began < seconds:
            if self._published <= (now - self._began) * _RATE:
                self._publisher.publish_many(self._topic, self._portion)
                self._published += len(self._portion)
            if until_clear and self._published - self.counts()[0] <= _CLEAR:
                break
            time.sleep(0.005)
        return time.monotonic() - began

    def counts(self) -> tuple[int, int, int]:
        """Requests served; most concurrent requests, and requests over the capacity, since it last resumed."""
        self._line.sendall(b"count\n")
        served, most, too_many = map(int, self._answers.readline().split())
        return served, most, too_many

    def close(self) -> None:
        self._answers.close()
        self._line.close()


def measure(environment: BenchmarkEnvironment) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for name, budget in {"plain": {"adaptive": False}, "budget": {"adaptive": True}}.items():
        found |= {f"recovery-{kind}-{name}": value for kind, value in _recover(environment, budget).items()}
    return found


def _recover(environment: BenchmarkEnvironment, budget: Mapping[str, bool]) -> dict[str, float]:
    topic = f"recovery-{time.time_ns()}"
    path = environment.folder / f"{topic}.sock"
    with (
        environment.on_local(topic, batch={"records": 1}, budget=budget) as sidecar,
        running(*command("downstream", path)) as downstream,
        offramp.Publisher(broker="local", address=sidecar.address) as publisher,
    ):
        assert downstream.stdout is not None
        downstream.stdout.readline()
        load = Load(topic, publisher, path)
        with running(*command("caller", sidecar.address, path, _WORKERS)):
            load.publish(environment.seconds(_BEFORE))
            _toggle_stall(downstream)
            load.publish(environment.seconds(_STALL))
            served_before = load.counts()[0]
            _toggle_stall(downstream)
            took = load.publish(environment.seconds(_GIVE_UP), until_clear=True)
            served, most, too_many = load.counts()
        load.close()
    return {"clear": took, "peak": most, "overload": too_many / max(1, served - served_before)}


def _toggle_stall(downstream: "subprocess.Popen[str]") -> None:
    assert downstream.stdin is not None
    downstream.stdin.write("\n")
    downstream.stdin.flush()


BENCHMARKS = (
    Benchmark(
        "recovery",
        f"{_RATE} records a second to {_WORKERS} workers; what they call stalls for {_STALL:g} s, and serves "
        f"{CAPACITY} calls at once well and more of them worse; given up after {_GIVE_UP:g} s",
        (
            Row("recovery-clear-plain", "s until the backlog is gone"),
            Row("recovery-clear-budget", "s until the backlog is gone", baseline="recovery-clear-plain"),
            Row("recovery-peak-plain", "calls at once, at most"),
            Row("recovery-peak-budget", "calls at once, at most", baseline="recovery-peak-plain"),
            Row("recovery-overload-plain", f"of the calls found {CAPACITY} or more there"),
            Row(
                "recovery-overload-budget",
                f"of the calls found {CAPACITY} or more there",
                baseline="recovery-overload-plain",
            ),
        ),
        measure,
        seconds=17.0,
    ),
)

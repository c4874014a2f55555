"""A sidecar in a pod: what makes the pod unready or restarts it, and what does not."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from offramp.v1 import admin_pb2, admin_pb2_grpc
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, Worker, eventually, offramp

ROOT = Path(__file__).parents[2]
#: nobody listens there
AWAY = {"kafka": {"type": "kafka", "servers": ["127.0.0.1:1"]}}
FAR = {"far": {"broker": "kafka", "topics": ["far"]}}


def readiness(sidecar: Sidecar) -> tuple[int, list[str]]:
    status, body = sidecar.get("/readyz")
    return status, json.loads(body)["reasons"]


def test_a_broker_that_is_away_makes_the_pod_neither_unready_nor_restart(tmp_path: Path) -> None:
    with Sidecar(tmp_path, brokers=AWAY, subscriptions=FAR) as sidecar:
        eventually(lambda: sidecar.status("far").name)
        assert readiness(sidecar) == (200, [])
        assert sidecar.get("/healthz")[0] == 200
        assert sidecar.get("/startupz")[0] == 200
        assert sidecar.terminate() == 0


@pytest.mark.parametrize(
    "way",
    [{"http": {"address": "127.0.0.1:0", "gate_readiness": True}}, {"arguments": ["--gate-readiness"]}],
    ids=["setting", "argument"],
)
def test_a_pod_that_only_consumes_can_be_unready_while_its_broker_is_away(tmp_path: Path, way: dict[str, Any]) -> None:
    sidecar = Sidecar(tmp_path, brokers=AWAY, subscriptions=FAR, **way)
    sidecar.launch()
    try:
        status, reasons = readiness(sidecar)
        assert status == 503
        assert any(reason.startswith("broker kafka: ") for reason in reasons)
        assert "subscription far is starting" in reasons
        # Only unready: it must not be restarted for what it cannot help.
        assert sidecar.get("/healthz")[0] == 200
        assert sidecar.get("/startupz")[0] == 200
    finally:
        assert sidecar.terminate() == 0


def test_with_a_broker_that_is_there_the_gate_is_open_paused_or_not(tmp_path: Path) -> None:
    with Sidecar(tmp_path, http={"address": "127.0.0.1:0", "gate_readiness": True}) as sidecar:
        eventually(lambda: readiness(sidecar) == (200, []))
        with sidecar.channel() as channel:
            admin_pb2_grpc.AdminServiceStub(channel).Pause(admin_pb2.PauseRequest(subscription="orders"))
        assert readiness(sidecar) == (200, [])


def test_an_app_that_never_comes_costs_memory_within_bounds_and_no_life(tmp_path: Path) -> None:
    memory, batch = {"bytes": "1MiB", "poll_bytes": "256KiB"}, {"bytes": "64KiB"}
    subscription = {"topics": ["orders"], "memory": memory, "batch": batch}
    with Sidecar(tmp_path, subscriptions={"orders": subscription}) as sidecar:
        for _ in range(8):
            sidecar.publish("orders", [bytes(100_000)] * 10)
        eventually(lambda: any(lane.held_by for lane in sidecar.status().lanes))
        assert sidecar.status().buffered_bytes <= 2 << 20
        assert readiness(sidecar) == (200, [])
        assert sidecar.get("/healthz")[0] == 200
        assert sidecar.terminate() == 0


@pytest.mark.parametrize("worker", [False, True])
def test_a_deadline_of_a_second_is_enough_for_an_orderly_end(tmp_path: Path, worker: bool) -> None:
    """The app has ended before, as with a native sidecar, or it is there and does not settle in time."""
    with Sidecar(tmp_path, drain={"deadline": "1s"}) as sidecar:
        sidecar.publish("orders", [b"1"])
        with Worker(sidecar, "settle") as it:
            it.batch()
            it.tell()
            it.event("result")
            if worker:
                sidecar.publish("orders", [b"2"])
                it.event("batch")
                sidecar.signal(signal.SIGTERM)
                assert sidecar.wait(WAIT_TIMEOUT) == 0
        if not worker:
            eventually(lambda: not sidecar.status().sessions)
            assert sidecar.terminate() == 0
        assert sidecar.event("stopped")
        sidecar.start()
        eventually(lambda: sum(lane.committed for lane in sidecar.status().lanes if not lane.parked) == 1, "it counts")


@pytest.mark.parametrize(("kind", "library"), [("kafka", "confluent_kafka"), ("pulsar", "pulsar")])
def test_a_broker_whose_library_is_missing_is_one_sentence(tmp_path: Path, kind: str, library: str) -> None:
    without = tmp_path / "without"
    (without / library).mkdir(parents=True)
    (without / library / "__init__.py").write_text(f"raise ModuleNotFoundError(\"No module named '{library}'\")\n")
    option = "servers: ['127.0.0.1:1']" if kind == "kafka" else "url: pulsar://127.0.0.1:1"
    config = tmp_path / "offramp.yaml"
    config.write_text(
        f"listen: {{socket: {tmp_path}/s}}\nhttp: {{address: ''}}\n"
        f"brokers: {{far: {{type: {kind}, {option}}}}}\nsubscriptions: {{a: {{broker: far, topics: [a]}}}}\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(without), *sys.path])}
    for command in ("lint", "run"):
        done = offramp(command, "-c", str(config), env=environment, cwd=ROOT)
        assert done.returncode == 1
        said = [line for line in done.stderr.splitlines() if library in line]
        assert len(said) == 1, done.stderr
        assert "Traceback" not in done.stderr
        assert f"needs a library that is not installed: No module named '{library}'" in said[0], done.stderr
        assert "brokers.far" in said[0]

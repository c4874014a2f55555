"""SIGTERM: workers settle what they hold, everything is committed, and then the sidecar exits."""

import signal
import threading
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from offramp.v1 import consumer_pb2, record_pb2
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, Worker, eventually, refused


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_sidecar_with_nothing_to_do_stops_at_once(tmp_path: Path, number: signal.Signals) -> None:
    with Sidecar(tmp_path, drain={"deadline": "30s"}) as sidecar:
        sidecar.signal(number)
        assert sidecar.wait(25.0) == 0
        assert sidecar.event("stopped")


def test_a_slow_worker_may_settle_while_the_sidecar_drains_and_nothing_is_replayed(tmp_path: Path) -> None:
    with Sidecar(tmp_path, drain={"deadline": "30s"}) as sidecar, Worker(sidecar, "settle") as worker:
        sidecar.publish("orders", [b"1"])
        worker.batch()
        sidecar.signal(signal.SIGTERM)
        sidecar.event("stopping")
        status, body = sidecar.get("/readyz")
        assert (status, "draining" in body) == (503, True)
        assert sidecar.get("/healthz")[0] == 200
        with sidecar.channel() as channel:
            health = health_pb2_grpc.HealthStub(channel)
            answer = health.Check(health_pb2.HealthCheckRequest(), timeout=WAIT_TIMEOUT)
            assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert sidecar.process.poll() is None
        worker.tell()
        assert worker.event("result")["status"] == record_pb2.SETTLE_STATUS_SETTLED
        assert sidecar.wait() == 0
        sidecar.start()
        eventually(lambda: [lane.lag for lane in sidecar.status().lanes if lane.committed > 0] == [0], "it counts")
        with Worker(sidecar, "consume") as other:
            other.event("welcome")
            sidecar.publish("orders", [b"2"])
            assert other.event("batch")["values"] == ["2"]


def test_a_worker_that_does_not_settle_is_waited_for_only_until_the_deadline(tmp_path: Path) -> None:
    with Sidecar(tmp_path, drain={"deadline": "300ms"}) as sidecar, Worker(sidecar, "consume") as worker:
        sidecar.publish("orders", [b"1"])
        worker.batch()
        assert sidecar.terminate() == 0
        assert sidecar.event("drained")["seconds"] > 0.25
        sidecar.start()
        with Worker(sidecar, "open") as other:
            assert other.batch()["values"] == ["1"]


def test_a_second_signal_stops_at_once_and_says_so(tmp_path: Path) -> None:
    with Sidecar(tmp_path, drain={"deadline": "60s"}) as sidecar, Worker(sidecar, "consume") as worker:
        sidecar.publish("orders", [b"1"])
        worker.batch()
        sidecar.signal(signal.SIGTERM)
        sidecar.event("stopping")
        sidecar.signal(signal.SIGTERM)
        assert sidecar.wait(50.0) == 1
        sidecar.start()
        with Worker(sidecar, "open") as other:
            assert other.batch()["values"] == ["1"]


def test_a_waiting_fetch_learns_that_the_sidecar_drains(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar, sidecar.consumer() as stub:
        answers: list[consumer_pb2.FetchResponse] = []

        def fetch() -> None:
            request = consumer_pb2.FetchRequest(subscription="orders", wait_ms=60_000)
            answers.append(stub.Fetch(request, timeout=WAIT_TIMEOUT))

        waiting = threading.Thread(target=fetch)
        waiting.start()
        eventually(lambda: sidecar.status().sessions, "it waits")
        assert sidecar.terminate() == 0
        waiting.join(WAIT_TIMEOUT)
        assert [notice.kind for notice in answers[0].notices] == [consumer_pb2.NOTICE_KIND_DRAINING]


def test_a_killed_sidecar_is_unavailable_to_its_clients_and_they_can_come_back(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar, sidecar.consumer() as stub:
        stream = stub.Open(consumer_pb2.OpenRequest(subscription="orders"))
        next(stream)
        sidecar.kill()
        with refused(grpc.StatusCode.UNAVAILABLE):
            next(stream)
        sidecar.start()
        again = stub.Open(consumer_pb2.OpenRequest(subscription="orders"), wait_for_ready=True, timeout=WAIT_TIMEOUT)
        assert next(again).welcome.session

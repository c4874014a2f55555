"""HTTP and bad input, from outside."""

import json
import os
import signal
import socket
import urllib.request
from pathlib import Path

from offramp.v1 import consumer_pb2, consumer_pb2_grpc, record_pb2
from sidecar.observability.metrics import METRICS, Kind
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, Worker, eventually


def test_probes_metrics_and_version_are_served(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar:
        assert sidecar.get("/healthz") == (200, "ok\n")
        status, ready = sidecar.get("/readyz")
        assert (status, json.loads(ready)) == (200, {"ready": True, "reasons": []})
        version = json.loads(sidecar.get("/version")[1])
        assert (version["protocol"], version["protocol_minor"]) == ("offramp.v1", 0)
        assert sidecar.get("/healthz", method="HEAD") == (200, "")
        assert sidecar.get("/metrics", method="POST")[0] == 405
        assert sidecar.get("/status")[0] == 404


def test_the_status_page_is_served_with_a_policy_that_lets_nothing_else_in(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar:
        with urllib.request.urlopen(f"http://{sidecar.http}/", timeout=WAIT_TIMEOUT) as response:
            assert response.headers["Content-Type"] == "text/html; charset=utf-8"
            assert response.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'sha256-")
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert "orders.offramp.dead is empty" in response.read().decode()
        assert sidecar.get("/", method="POST")[0] == 405


def test_the_status_page_shows_a_subscription_that_is_read_by_ranges(tmp_path: Path) -> None:
    subscriptions = {"orders": {"topics": ["orders"], "mode": "ranges"}, "others": {"topics": ["others"]}}
    with Sidecar(tmp_path, subscriptions=subscriptions) as sidecar:
        sidecar.publish("orders", [b"1", b"2", b"3"], lane=0)
        eventually(lambda: "orders/0" in sidecar.get("/")[1], "its lanes are shown")
        status, page = sidecar.get("/")
        assert status == 200
        assert "none has attached" in page
        # Only of the other one: this one has no workers and no dead letters.
        assert page.count(">Workers<") == page.count(">Dead letters<") == 1


def test_the_status_page_can_be_switched_off(tmp_path: Path) -> None:
    with Sidecar(tmp_path, http={"address": "127.0.0.1:0", "page": False}) as sidecar:
        assert sidecar.get("/")[0] == 404
        assert sidecar.get("/healthz")[0] == 200


#: of subscriptions with ranges, of TLS, and of push
NOT_HERE = (
    "offramp_reader_attached_seconds",
    "offramp_certificate_expires_timestamp_seconds",
    "offramp_push_calls_total",
)


def test_metrics_tell_what_happened(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar, sidecar.consumer() as stub:
        sidecar.publish("orders", [b"1", b"2", b"3"], lane=0)
        eventually(lambda: sidecar.metric("offramp_fetched_records_total") == 3)
        fetch = consumer_pb2.FetchRequest(subscription="orders", wait_ms=10_000)
        (batch,) = stub.Fetch(fetch, timeout=WAIT_TIMEOUT).batches
        orders = {"subscription": "orders"}
        assert sidecar.metric("offramp_in_flight_records", **orders) == 3
        assert sidecar.metric("offramp_would_be_replayed_records", **orders) == 3
        assert sidecar.metric("offramp_lane_lag_records", **orders, topic="orders", lane="0") == 3
        done = record_pb2.Settlement(lease=batch.lease, outcome=record_pb2.OUTCOME_ACK)
        stub.Settle(consumer_pb2.SettleRequest(settlements=[done]), timeout=WAIT_TIMEOUT)
        eventually(lambda: sidecar.metric("offramp_commits_total", **orders) > 0)
        assert sidecar.metric("offramp_acked_records_total", **orders) == 3
        assert sidecar.metric("offramp_batch_records_count", **orders) == 1
        assert sidecar.metric("offramp_settle_seconds_count", **orders) == 1
        assert sidecar.metric("offramp_lane_lag_records", **orders, topic="orders", lane="0") == 0
        assert sidecar.metric("process_resident_memory_bytes") > 10_000_000
        text = sidecar.get("/metrics")[1]
        for metric in METRICS:
            assert f"# TYPE {metric.name} {metric.kind}\n" in text
            absent = metric.kind is Kind.HISTOGRAM or metric.name in NOT_HERE
            assert absent or f"\n{metric.name}" in text


def test_a_blocked_worker_fails_neither_liveness_nor_readiness(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar, Worker(sidecar, "consume") as worker:
        sidecar.publish("orders", [b"1"])
        worker.batch()
        worker.signal(signal.SIGSTOP)
        assert sidecar.get("/healthz")[0] == 200
        assert sidecar.get("/readyz")[0] == 200


def test_garbage_on_the_socket_disturbs_nobody(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar, Worker(sidecar, "consume") as worker:
        worker.event("welcome")
        for garbage in (
            b"GET / HTTP/1.1\r\n\r\n",
            os.urandom(100_000),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(999),
        ):
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(WAIT_TIMEOUT)
                client.connect(str(sidecar.socket))
                try:
                    client.sendall(garbage)
                    while client.recv(1 << 16):
                        pass
                except ConnectionError:
                    pass
        sidecar.publish("orders", [b"1"])
        assert worker.event("batch")["values"] == ["1"]


def test_nothing_of_a_payload_is_ever_logged(tmp_path: Path) -> None:
    secret = b"correct horse battery staple"
    with Sidecar(tmp_path) as sidecar, sidecar.channel() as channel:
        sidecar.publish("orders", [secret])
        stub = consumer_pb2_grpc.ConsumerServiceStub(channel)
        fetch = consumer_pb2.FetchRequest(subscription="orders", wait_ms=10_000)
        (batch,) = stub.Fetch(fetch, timeout=WAIT_TIMEOUT).batches
        wrong = record_pb2.Settlement(lease=batch.lease, outcome=record_pb2.OUTCOME_REJECT, reason="no")
        stub.Settle(consumer_pb2.SettleRequest(settlements=[wrong]), timeout=WAIT_TIMEOUT)
        eventually(lambda: sidecar.status().counters.dead_lettered == 1)
        assert sidecar.terminate() == 0
        assert secret.decode() not in sidecar.log

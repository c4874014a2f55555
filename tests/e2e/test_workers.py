"""Worker processes: what the sidecar notices when they start and end."""

import signal
from pathlib import Path

import pytest

from offramp.v1 import consumer_pb2, record_pb2
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, Worker, eventually


@pytest.mark.parametrize("mode", ["consume", "open"])
def test_the_batch_of_a_killed_worker_comes_back_at_once(tmp_path: Path, mode: str) -> None:
    with Sidecar(tmp_path) as sidecar, Worker(sidecar, mode) as victim:
        sidecar.publish("orders", [b"1"])
        held = victim.batch()
        with Worker(sidecar, "consume") as second:
            second.event("welcome")
            victim.signal(signal.SIGKILL)
            inherited = second.event("batch")
            assert sidecar.status().counters.abandoned == 1
        assert inherited["values"] == held["values"] == ["1"]
        assert inherited["lease"] != held["lease"]


@pytest.mark.parametrize("mode", ["wait", "alone"])
def test_a_worker_killed_while_it_waits_in_fetch_is_noticed(tmp_path: Path, mode: str) -> None:
    with Sidecar(tmp_path) as sidecar, Worker(sidecar, mode) as victim:
        victim.event("fetching")
        eventually(lambda: any(session.credit_batches for session in sidecar.status().sessions), "it waits")
        victim.signal(signal.SIGKILL)
        eventually(lambda: not sidecar.status().sessions, "its session ends")
        sidecar.publish("orders", [b"1"])
        with Worker(sidecar, "open") as next_one:
            assert next_one.batch()["values"] == ["1"]


def test_a_lease_from_before_a_restart_is_unknown_and_its_records_come_again(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar:
        sidecar.publish("orders", [b"1"])
        with sidecar.consumer() as stub:
            request = consumer_pb2.FetchRequest(subscription="orders", wait_ms=10_000)
            (before,) = stub.Fetch(request, timeout=WAIT_TIMEOUT).batches
        sidecar.restart()
        with sidecar.consumer() as stub:
            done = record_pb2.Settlement(lease=before.lease, outcome=record_pb2.OUTCOME_ACK)
            settled = stub.Settle(consumer_pb2.SettleRequest(settlements=[done]), timeout=WAIT_TIMEOUT)
            assert settled.results[0].status == record_pb2.SETTLE_STATUS_UNKNOWN
            (again,) = stub.Fetch(request, timeout=WAIT_TIMEOUT).batches
            assert [record.value for record in again.records] == [b"1"]
            assert again.redeliveries[0].possibly_processed


def test_what_was_acked_and_committed_is_not_delivered_again_after_kill_9(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar, Worker(sidecar, "settle") as worker:
        sidecar.publish("orders", [b"1"])
        worker.batch()
        worker.tell()
        worker.event("result")
        eventually(lambda: sidecar.status().lanes and not sidecar.status().would_be_replayed, "it is committed")
        sidecar.restart()
        sidecar.publish("orders", [b"2"])
        with Worker(sidecar, "open") as other:
            assert other.batch()["values"] == ["2"]


def test_apps_can_use_the_loopback_port_instead_of_the_socket(tmp_path: Path) -> None:
    with Sidecar(tmp_path, listen={"tcp": "127.0.0.1:0"}) as sidecar:
        target = f"127.0.0.1:{sidecar.event('ready')['tcp'].rpartition(':')[2]}"
        sidecar.publish("orders", [b"1"])
        with Worker(sidecar, "consume", target=target) as victim:
            assert victim.batch()["values"] == ["1"]
            victim.signal(signal.SIGKILL)
            eventually(lambda: not sidecar.status().sessions, "its session ends")
        with Worker(sidecar, "open", target=target) as second:
            assert second.batch()["values"] == ["1"]

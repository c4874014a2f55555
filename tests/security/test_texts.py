"""Names and reasons that apps and operators choose, with control characters of terminals in them."""

from pathlib import Path

import offramp
from offramp.v1 import admin_pb2, admin_pb2_grpc, consumer_pb2, consumer_pb2_grpc, record_pb2
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar
from tests.security.test_network import offramp_command

HOSTILE = "web\x1b[1A\x9b2K\u202e\n2026-01-01T00:00:00.000Z info forged\x85line\x7f"


def reject_and_pause(sidecar: Sidecar) -> None:
    """As a worker with a hostile name, for a hostile reason."""
    with offramp.open_channel(sidecar.target) as channel:
        stub = consumer_pb2_grpc.ConsumerServiceStub(channel)
        client = consumer_pb2.Client(name=HOSTILE, language=HOSTILE, library=HOSTILE, version=HOSTILE)
        stream = stub.Open(consumer_pb2.OpenRequest(subscription="orders", client=client))
        session = next(stream).welcome.session
        request = consumer_pb2.FetchRequest(session=session, seq=1, wait_ms=10_000)
        (batch,) = stub.Fetch(request, timeout=WAIT_TIMEOUT).batches
        bad = record_pb2.Settlement(lease=batch.lease, outcome=record_pb2.OUTCOME_REJECT, reason=HOSTILE)
        stub.Settle(consumer_pb2.SettleRequest(settlements=[bad]), timeout=WAIT_TIMEOUT)
        pause = admin_pb2.PauseRequest(subscription="orders", reason=HOSTILE)
        admin_pb2_grpc.AdminServiceStub(channel).Pause(pause, timeout=WAIT_TIMEOUT)
        # While the worker is connected.
        for how in ([], ["--json"]):
            check(offramp_command("status", "--address", sidecar.target, *how).stdout, "web")
        stream.cancel()


def check(text: str, shown: str) -> None:
    """Each line prints, none is forged, and what was chosen is still to be seen."""
    assert [line for line in text.split("\n") if not line.isprintable()] == []
    assert [line for line in text.split("\n") if line.startswith("2026-01-01")] == []
    assert shown in text


def test_names_and_reasons_of_apps_forge_no_line_and_control_no_terminal(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar:
        sidecar.publish("orders", [b"1"])
        reject_and_pause(sidecar)
        for how in ([], ["--json"], ["--id", "orders/0/0"]):
            check(offramp_command("dead-letters", "orders", "--address", sidecar.target, *how).stdout, "web")
        check(sidecar.get("/")[1], "web")
        check(sidecar.get("/metrics")[1], "offramp")
        check(sidecar.log, "web")
        assert sidecar.event("paused by an operator")["reason"] == HOSTILE

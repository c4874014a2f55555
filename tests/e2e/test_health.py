"""`offramp health`, as a container's health check calls it, and the path by which a pod waits for its sidecar."""

import json
import signal
import threading
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from tests.e2e.harness import Sidecar, Worker, eventually, offramp


def health(*arguments: str) -> tuple[int, str]:
    """The exit code of a health check, and what it says."""
    done = offramp("health", *arguments)
    return done.returncode, done.stdout + done.stderr


def test_a_sidecar_that_works_is_healthy_started_and_ready(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar:
        here = ("--config", str(tmp_path / "offramp.yaml"), "--set", f"http.address={sidecar.http}")
        assert health(*here) == (0, "ok\n")
        assert health(*here, "--started") == (0, "started\n")
        code, said = health(*here, "--ready")
        assert (code, json.loads(said)["ready"]) == (0, True)


def test_a_sidecar_that_listens_on_all_addresses_is_asked_on_this_machine(tmp_path: Path) -> None:
    with Sidecar(tmp_path, http={"address": "0.0.0.0:0"}) as sidecar:
        assert sidecar.http.startswith("0.0.0.0:")
        assert health("--set", f"http.address={sidecar.http}") == (0, "ok\n")


def test_a_sidecar_that_drains_is_healthy_and_not_ready(tmp_path: Path) -> None:
    with Sidecar(tmp_path, drain={"deadline": "60s"}) as sidecar, Worker(sidecar, "consume") as worker:
        sidecar.publish("orders", [b"1"])
        worker.batch()
        worker.signal(signal.SIGSTOP)
        here = ("--set", f"http.address={sidecar.http}")
        sidecar.signal(signal.SIGTERM)
        eventually(lambda: sidecar.get("/readyz")[0] == 503, "it drains")
        assert health(*here) == (0, "ok\n")
        assert health(*here, "--started") == (0, "started\n")
        assert health(*here, "--ready") == (
            1,
            'offramp: /readyz returned 503: {"ready": false, "reasons": ["draining"]}\n',
        )
        sidecar.kill()


@pytest.mark.parametrize("flag", ["--started", "--ready"])
def test_a_sidecar_that_is_gone_is_not_healthy(tmp_path: Path, flag: str) -> None:
    with Sidecar(tmp_path) as sidecar:
        address = sidecar.http
        sidecar.kill()
        code, said = health("--set", f"http.address={address}", flag)
        assert code == 1
        assert said.startswith(f"offramp: no sidecar responds at http://{address}/")


def test_a_wrong_port_is_told_from_a_sidecar_that_is_not_well(tmp_path: Path) -> None:
    """Such as that of gRPC, or of another web server."""
    with Sidecar(tmp_path, listen={"tcp": "127.0.0.1:0"}) as sidecar:
        grpc_port = sidecar.event("ready")["tcp"]
        said = health("--set", f"http.address={grpc_port}")[1]
        assert said.startswith(
            f"offramp: another program listens at {grpc_port}: http.address, and the probes of a pod,"
        )
    with HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{other.server_port}"
        code, said = health("--set", f"http.address={address}")
        assert (code, said.startswith(f"offramp: another program listens at {address}: ")) == (1, True)
        other.shutdown()


def test_without_http_it_is_asked_whether_somebody_listens_for_apps(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar:
        here = ("--set", "http.address=", "--set", f"listen.socket={sidecar.socket}")
        assert health(*here) == (0, "")
        sidecar.kill()
        code, said = health(*here)
        assert code == 1
        assert "no process listens" in said


def test_secrets_that_only_the_sidecar_has_are_not_needed(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar:
        file = tmp_path / "secret.yaml"
        file.write_text(f"http: {{address: '{sidecar.http}'}}\nbrokers: {{kafka: {{password: '${{NOT_SET_HERE}}'}}}}\n")
        assert health("--config", str(file)) == (0, "ok\n")

"""The examples do what docs/push.md says."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clients.generated.test_generated import go_program
from tests.e2e.harness import eventually
from tests.e2e.push.fpm import Fpm
from tests.e2e.push.harness import ROOT, dead, free_port, pushing, settled
from tests.servers.tools import give_up

EXAMPLE = ROOT / "examples/push"


@contextmanager
def server(*command: str, log: Path) -> Iterator[None]:
    with log.open("wb") as output, subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output) as process:
        try:
            yield
        finally:
            process.kill()


def command(kind: str, port: int) -> tuple[str, ...]:
    if kind == "python":
        return (sys.executable, "-m", "uvicorn", "--app-dir", "examples/push", "app:app", "--port", str(port))
    if shutil.which("php") is None:
        give_up("there is no PHP: run `make php`")
    return ("php", "-S", f"127.0.0.1:{port}", "examples/push/worker.php")


@pytest.mark.parametrize("kind", ["python", "php"])
def test_an_app_with_one_more_route_gets_its_orders(kind: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = yaml.safe_load((EXAMPLE / "offramp.yaml").read_text())["subscriptions"]["orders"]
    port, log = free_port(), tmp_path / "app.log"
    push = {**settings.pop("push"), "url": f"http://127.0.0.1:{port}/orders"}
    with server(*command(kind, port), log=log), pushing(tmp_path, push["url"], push) as sidecar:
        sidecar.publish("orders", [b'{"id": 1, "amount": 5}', b"no order", b'{"id": 2, "amount": 7}'], lane=0)
        settled(sidecar, 3)
        ((value, reason),) = dead(sidecar, 1)
        assert value == "no order"
        assert reason.startswith("REJECTED: not an order")
        eventually(lambda: "order 2 of 7" in log.read_text(), "the app has printed it")
        assert "order 1 of 5" in log.read_text()


def test_php_fpm_needs_no_web_server_for_it(tmp_path: Path) -> None:
    with (
        Fpm(tmp_path, "") as fpm,
        pushing(tmp_path, "", {**fpm.push, "script": str(EXAMPLE / "worker.php")}) as sidecar,
    ):
        sidecar.publish("orders", [b'{"id": 1, "amount": 5}', b"no order"], lane=0)
        settled(sidecar, 2)
        assert dead(sidecar, 1) == [("no order", "REJECTED: not an order")]
        eventually(lambda: "order 1 of 5" in sidecar.log, "what the script says on stderr is logged")


def test_a_grpc_server_in_go_needs_generated_code_only(tmp_path: Path) -> None:
    program, port, log = go_program(tmp_path, EXAMPLE / "go", "handler"), free_port(), tmp_path / "app.log"
    sidecar = pushing(tmp_path, "", {"grpc": f"127.0.0.1:{port}"})
    del sidecar.settings["subscriptions"]["orders"]["push"]["format"]
    with server(str(program), f"127.0.0.1:{port}", log=log), sidecar:
        sidecar.publish("orders", [b"one", b"", b"two"], lane=0)
        settled(sidecar, 3)
        assert dead(sidecar, 1) == [("", "REJECTED: not an order")]
        eventually(lambda: log.read_text().split() == ["one", "two"], "the app has printed them")


def test_the_page_shows_the_example_as_it_is() -> None:
    page = (ROOT / "docs/push.md").read_text()
    blocks = [block.partition("\n")[2] for block in page.split("```")[1::2]]
    source, config = (EXAMPLE / "app.py").read_text(), (EXAMPLE / "offramp.yaml").read_text()
    assert any(block in source for block in blocks)
    assert any(block in config for block in blocks)

"""What docs/protocol.md shows with other people's tools: grpcurl, and protoc for Go with its default options."""

import base64
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.generated.test_generated import EXAMPLES, ROOT
from tests.clients.php import tools as php
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, eventually
from tests.servers.tools import give_up

GRPCURL = "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4"
TOOLS = Path("~/.cache/offramp/go").expanduser()
#: seconds for fetching and building, on a busy machine
BUILD_TIMEOUT = 500


@pytest.fixture
def sidecar(tmp_path: Path) -> Any:
    with Sidecar(tmp_path, subscriptions={"orders": {"topics": ["orders"]}}) as sidecar:
        yield sidecar


@pytest.mark.timeout(BUILD_TIMEOUT + 100)
def test_the_lines_for_a_shell_work(sidecar: Sidecar) -> None:
    path = {"PATH": f"{grpcurl().parent}:{os.environ['PATH']}"}
    document = (ROOT / "docs/protocol.md").read_text().replace("/run/offramp/offramp.sock", str(sidecar.socket))
    (lister,) = re.findall(r"`(grpcurl -plaintext unix:\S+ list)`", document)
    assert "offramp.v1.ConsumerService" in shell(lister, path).split()
    (block,) = re.findall(r"```sh\n(call\(\).*?)```", document, re.DOTALL)
    caller, fetch, *_ = block.splitlines()
    sidecar.publish("orders", [b"first"])
    batch = json.loads(shell(f'{caller}\n{fetch}\necho "$batch"', path))["batches"][0]
    assert base64.b64decode(batch["records"][0]["value"]) == b"first"
    # As the other lines do it with jq.
    settlements = json.dumps({"settlements": [{"lease": batch["lease"], "outcome": "OUTCOME_ACK"}]})
    (result,) = json.loads(shell(f"{caller}\ncall Settle '{settlements}'", path))["results"]
    assert result["status"] == "SETTLE_STATUS_SETTLED"
    eventually(lambda: sum(lane.committed for lane in sidecar.status().lanes) == 1, "it is committed")


@pytest.mark.timeout(BUILD_TIMEOUT + 100)
def test_code_for_go_that_is_generated_with_default_options_builds(tmp_path: Path) -> None:
    go = go_command()
    php.require("protoc")
    for name in ("go.mod", "go.sum"):
        shutil.copy(EXAMPLES / "go" / name, tmp_path)
    plugins = tmp_path / "bin"
    fetched = run([go, "build", "-o", f"{plugins}/", "tool"], tmp_path)
    if fetched.returncode:
        give_up(f"the generators for Go could not be fetched: {fetched.stderr[-500:]}")
    protos = sorted(str(path.relative_to(ROOT / "proto")) for path in (ROOT / "proto").glob("offramp/v1/*.proto"))
    generate = ["protoc", f"-I{ROOT / 'proto'}", "--go_out=.", "--go-grpc_out=.", *protos]
    made = run(generate, tmp_path, PATH=f"{plugins}:{os.environ['PATH']}")
    assert made.returncode == 0, made.stderr
    (tmp_path / "use.go").write_text('package main\n\nimport _ "consume/offramp.io/offramp/v1"\n\nfunc main() {}\n')
    built = run([go, "build", "./..."], tmp_path)
    assert built.returncode == 0, built.stderr


def shell(script: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", f"set -e\n{script}"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(command: list[str], folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_TIMEOUT,
    )


def go_command() -> str:
    go = shutil.which("go")
    if go is None:
        give_up("Go is not installed")
    return go


def grpcurl() -> Path:
    """Built once, in the long form."""
    program = TOOLS / GRPCURL.rpartition("@")[2] / "grpcurl"
    if not program.exists():
        if not os.environ.get("OFFRAMP_TEST_LONG"):
            pytest.skip("building grpcurl takes minutes: only in the long form (OFFRAMP_TEST_LONG=1)")
        done = run([go_command(), "install", GRPCURL], ROOT, GOBIN=str(program.parent), GOFLAGS="-p=1")
        if done.returncode:
            give_up(f"grpcurl could not be fetched and built: {done.stderr[-500:]}")
    return program

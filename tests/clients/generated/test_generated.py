"""The examples that consume with nothing but generated code, as processes with a real sidecar."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients.php import tools as php
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, eventually
from tests.servers.tools import give_up

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples/generated"
NODE_MODULES = Path("~/.cache/offramp/node").expanduser()
RECORDS = 50


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    orders = {"topics": ["orders"], "batch": {"records": 7}}
    with Sidecar(tmp_path, subscriptions={"orders": orders}) as sidecar:
        sidecar.publish("orders", [b"%d" % number for number in range(RECORDS)])
        yield sidecar


@contextmanager
def consuming(sidecar: Sidecar, *command: str, **environment: str) -> Iterator["subprocess.Popen[str]"]:
    """Runs the command until the sidecar has committed all, and gives the process then."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    try:
        eventually(
            lambda: process.poll() is not None or sum(lane.committed for lane in sidecar.status().lanes) == RECORDS,
            "all is committed",
        )
        if process.poll() is not None:
            pytest.fail(f"it ended with {process.returncode}: {process.communicate()}")
        yield process
    finally:
        process.kill()
        process.communicate()


def end(process: "subprocess.Popen[str]", number: signal.Signals) -> list[str]:
    process.send_signal(number)
    said, _ = process.communicate(timeout=WAIT_TIMEOUT)
    return sorted(said.split(), key=int)


ALL = [str(number) for number in range(RECORDS)]


def test_python(sidecar: Sidecar, tmp_path: Path) -> None:
    stubs = tmp_path / "stubs/offramp"
    shutil.copytree(ROOT / "clients/python/offramp/v1", stubs / "v1")
    # A package of its own: or else the client, which is installed for the tests, would be found instead.
    (stubs / "__init__.py").touch()
    command = (sys.executable, str(EXAMPLES / "python/consume.py"), sidecar.target, "orders")
    with consuming(sidecar, *command, PYTHONPATH=str(stubs.parent)) as process:
        assert end(process, signal.SIGKILL) == ALL


def test_php(sidecar: Sidecar) -> None:
    if sentence := php.missing():
        give_up(sentence)
    command = (
        "php",
        str(EXAMPLES / "php/consume.php"),
        str(ROOT / "clients/php/generated"),
        str(sidecar.socket),
        "orders",
    )
    # Without a session the last batch is settled with the next call, which follows at once.
    with consuming(sidecar, *command) as process:
        assert end(process, signal.SIGKILL) == ALL


def test_node(sidecar: Sidecar) -> None:
    modules = node_modules()
    command = ("node", str(EXAMPLES / "node/consume.js"), str(ROOT / "proto"), sidecar.target, "orders")
    with consuming(sidecar, *command, NODE_PATH=str(modules)) as process:
        assert end(process, signal.SIGTERM) == ALL
        assert process.returncode == 0
    eventually(lambda: not sidecar.status().sessions)
    assert sidecar.status().counters.abandoned == 0


def test_go(sidecar: Sidecar, tmp_path: Path) -> None:
    with consuming(sidecar, str(go_program(tmp_path)), sidecar.target, "orders") as process:
        assert end(process, signal.SIGTERM) == ALL
        assert process.returncode == 0
    eventually(lambda: not sidecar.status().sessions)
    assert sidecar.status().counters.abandoned == 0


def test_none_is_longer_than_it_should_be() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*/consume.*")}
    assert len(lengths) >= 4
    assert {path: length for path, length in lengths.items() if length >= 70} == {}


def go_program(folder: Path, source: Path = EXAMPLES / "go", program: str = "consume") -> Path:
    """An example in Go, generated and built as its comment says."""
    if shutil.which("go") is None:
        give_up("Go is not installed")
    php.require("protoc")
    example = folder / source.relative_to(ROOT)
    shutil.copytree(source, example, ignore=shutil.ignore_patterns("bin", "offramp"))
    (folder / "proto").symlink_to(ROOT / "proto")
    for command in (["mod", "download"], ["generate"], ["build"]):
        done = subprocess.run(["go", *command], cwd=example, capture_output=True, text=True, check=False)
        if done.returncode and "download" in command:
            give_up(f"what the example for Go needs could not be fetched: {done.stderr[-500:]}")
        assert done.returncode == 0, done.stderr
    return example / program


def node_modules() -> Path:
    """What the example for Node needs, fetched once."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        give_up("Node is not installed: on Debian, apt-get install nodejs npm")
    NODE_MODULES.mkdir(parents=True, exist_ok=True)
    with (NODE_MODULES / "lock").open("w") as lock:
        # Tests run in several processes.
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = (EXAMPLES / "node/package.json").read_bytes()
        done = NODE_MODULES / "done.json"
        if not done.exists() or done.read_bytes() != wanted:
            (NODE_MODULES / "package.json").write_bytes(wanted)
            install = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
            tried = subprocess.run(install, cwd=NODE_MODULES, capture_output=True, text=True, check=False, timeout=100)
            if tried.returncode:
                give_up(f"what the example for Node needs could not be fetched by npm: {tried.stderr[-500:]}")
            done.write_bytes(wanted)
    return NODE_MODULES / "node_modules"

"""The container image, built and run for real."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar import brokers
from sidecar.model.version import VERSION
from tests.clients.php import tools as php
from tests.e2e.harness import eventually
from tests.image import archive
from tests.image.archive import ROOT, Image
from tests.image.container import CONTAINER_TIMEOUT, USER, Container
from tests.servers.tools import Missing, give_up

#: bytes of all files, the base included
MOST = 250_000_000

CONFIG = """
log: {format: json}
drain: {deadline: 10s}
subscriptions:
  orders: {topics: [orders], batch: {records: 10}}
"""

PYTHON_WORKER = """
import offramp

def handle(batch):
    for record in batch:
        # In one piece: there are two that write.
        print(record.value.decode() + "\\n", end="", flush=True)

offramp.Worker("orders", handle, workers=2).run()
"""

PHP_HANDLER = r"""<?php
return function (Offramp\Batch $batch): void {
    foreach ($batch as $record) {
        echo $record->value . "\n";
    }
};
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    try:
        return archive.unpack(tmp_path_factory.mktemp("image"))
    except Missing as missing:
        give_up(missing)


class Pod:
    """The folders that a pod shares out, and a sidecar that uses them."""

    def __init__(self, image: Image, folder: Path) -> None:
        self.run, self.data, self.etc = (folder / name for name in ("run", "data", "etc"))
        for path in (self.run, self.data, self.etc):
            path.mkdir()
            path.chmod(0o777)
        (self.etc / "offramp.yaml").write_text(CONFIG)
        self.socket = self.run / "offramp.sock"
        mounts = {"/run/offramp": self.run, "/var/lib/offramp": self.data, "/etc/offramp": self.etc}
        self.sidecar = Container(image, folder, mounts)
        self.environ = {**os.environ, "OFFRAMP_ADDRESS": f"unix:{self.socket}"}

    def publish(self, values: range) -> None:
        lines = "".join(f"{value}\n" for value in values).encode()
        command = [sys.executable, "-m", "sidecar", "publish", "--topic", "orders"]
        done = subprocess.run(
            command, input=lines, env=self.environ, timeout=CONTAINER_TIMEOUT, check=False, capture_output=True
        )
        assert done.returncode == 0, done.stderr.decode()

    def consume(self, command: list[str], wanted: range, output: Path) -> None:
        """Runs a worker until it has had all of the values, then stops it as a pod would."""
        with output.open("wb") as file:
            worker = subprocess.Popen(command, env=self.environ, stdout=file, stdin=subprocess.DEVNULL)
        try:
            eventually(lambda: _numbers(output) >= set(wanted), "the worker has them all", CONTAINER_TIMEOUT)
            worker.terminate()
            assert worker.wait(CONTAINER_TIMEOUT) == 0
        finally:
            worker.kill()
            worker.wait()
        assert _numbers(output) == set(wanted)


def _numbers(output: Path) -> set[int]:
    return {int(word) for word in output.read_text().split() if word.isdigit()}


@pytest.fixture
def pod(image: Image, tmp_path: Path) -> Iterator[Pod]:
    pod = Pod(image, tmp_path)
    with pod.sidecar:
        eventually(lambda: pod.socket.is_socket() or not pod.sidecar.runs, "the socket is there", CONTAINER_TIMEOUT)
        assert pod.sidecar.runs, pod.sidecar.log
        yield pod


def test_the_dockerfile_is_clean() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_it_is_small_and_says_what_it_is(image: Image) -> None:
    print(f"{image.bytes / 1e6:.0f} MB")
    assert image.bytes < MOST
    labels = image.config["Labels"]
    assert labels["org.opencontainers.image.version"] == VERSION
    assert {"title", "description", "licenses", "revision"} <= {label.rpartition(".")[2] for label in labels}
    assert image.config["Entrypoint"] == ["offramp"]
    assert image.config["Cmd"] == ["run"]
    assert image.config["Healthcheck"]["Test"] == ["CMD", "offramp", "health"]
    # A name could be root's: a pod that says runAsNonRoot takes only numbers.
    assert image.config["User"] == "65532:65532"


def test_there_is_nothing_in_it_to_build_or_install_with(image: Image) -> None:
    tools = {"pip", "pip3", "gcc", "cc", "g++", "ld", "as", "make", "cmake", "git", "curl", "wget"}
    folders = [image.root / name for name in ("usr/bin", "usr/local/bin", "bin", "usr/sbin", "opt/offramp/bin")]
    assert {path.name for folder in folders if folder.is_dir() for path in folder.iterdir()} & tools == set()
    assert [*image.root.glob("**/site-packages/pip"), *image.root.glob("**/dist-packages/pip")] == []


def test_it_has_neither_the_demo_nor_a_broker_for_tests(image: Image) -> None:
    (packages,) = image.root.glob("opt/offramp/lib/python3*/site-packages")
    assert (packages / "sidecar/cli/commands/run.py").exists()
    shipped = {path.parent.name for path in packages.glob("sidecar/brokers/*/__init__.py")}
    assert shipped == {*brokers.kinds(), "queue"}
    for path in ("sidecar/cli/demo", "tests", "benchmarks"):
        assert not (packages / path).exists(), path


def test_it_serves_python_and_php_through_a_shared_volume_and_ends_in_order(pod: Pod, tmp_path: Path) -> None:
    if php.missing():
        give_up(php.missing())
    script, handler = tmp_path / "worker.py", tmp_path / "handler.php"
    script.write_text(PYTHON_WORKER)
    handler.write_text(PHP_HANDLER)
    pod.publish(range(100))
    pod.consume([sys.executable, str(script)], range(100), tmp_path / "python.out")
    pod.publish(range(100, 200))
    worker = ["php", str(ROOT / "clients/php/bin/offramp-worker"), "--subscription", "orders", "--processes", "2"]
    pod.consume([*worker, str(handler)], range(100, 200), tmp_path / "php.out")
    pod.sidecar.signal("TERM")
    assert pod.sidecar.wait() == 0
    messages = [json.loads(line)["message"] for line in pod.sidecar.log.splitlines() if line.startswith("{")]
    assert messages[-3:] == ["stopping", "drained", "stopped"]
    assert not pod.socket.exists()


def test_its_root_is_read_only_and_its_user_has_no_powers(pod: Pod) -> None:
    code, said = pod.sidecar.run("sh", "-c", "touch /somewhere /tmp/somewhere /opt/offramp/somewhere")
    assert code != 0
    assert said.count("Read-only file system") == 3
    status = dict(line.split(":\t", 1) for line in pod.sidecar.run("cat", "/proc/1/status")[1].splitlines())
    assert status["Uid"].split() == [str(USER)] * 4
    assert {status[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"


def test_publishing_needs_no_folder_for_temporary_files(pod: Pod) -> None:
    """The embedded broker rewrites what came shortly before; SQLite would note in a file what it may have to undo."""
    for count in (2000, 1, 60, 3000, 60):
        pod.publish(range(count))


def test_the_health_check_of_the_image_works_inside(pod: Pod) -> None:
    assert pod.sidecar.run("offramp", "health") == (0, "ok\n")
    assert pod.sidecar.run("offramp", "health", "--started") == (0, "started\n")


def test_every_broker_has_its_library(pod: Pod) -> None:
    versions = json.loads(pod.sidecar.run("offramp", "version", "--json")[1])
    assert {"confluent-kafka", "pulsar-client"} <= set(versions)
    options = [
        "brokers={kafka: {servers: [kafka:9092]}, pulsar: {url: 'pulsar://pulsar:6650'}}",
        "subscriptions={a: {broker: kafka, topics: [a]}, b: {broker: pulsar, topics: [b]}}",
    ]
    (pod.etc / "both.yaml").write_text("log: {level: info}\n")
    sets = [word for option in options for word in ("--set", option)]
    code, said = pod.sidecar.run("offramp", "lint", "-c", "/etc/offramp/both.yaml", *sets)
    assert (code, said.splitlines()[0]) == (0, "/etc/offramp/both.yaml: ok")


def test_spans_without_their_library_are_refused_with_how_to_get_it(pod: Pod) -> None:
    where = ("--set", "tracing.endpoint=http://127.0.0.1:4318", "--set", "listen.socket=/run/offramp/other.sock")
    code, said = pod.sidecar.run("offramp", "run", *where, "--set", "http.address=")
    assert code == 1
    assert "or, in a container, an image that was built with EXTRAS=tracing" in said


@pytest.mark.skipif(not os.environ.get("OFFRAMP_TEST_LONG"), reason="it builds another image: OFFRAMP_TEST_LONG=1")
def test_an_image_with_the_library_for_spans_is_one_argument_away(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        give_up("building an image without a registry needs root")
    built = ROOT / "build" / f"offramp-{VERSION}-tracing.tar"
    environ = {**os.environ, "EXTRAS": "tracing", "PYTHON": sys.executable}
    command = [ROOT / "deploy/image/build", "--local"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    try:
        image = archive.unpack(tmp_path, built)
        assert image.bytes < MOST
        look = ["python3", "-c", "from sidecar.observability.tracing import exporter; print('there')"]
        with Container(image, tmp_path, {}, command=look) as container:
            assert (container.wait(), container.log) == (0, "there\n")
    finally:
        built.unlink()


@pytest.mark.parametrize(("group", "answer"), [(0, "welcome"), (4321, "Permission denied")])
def test_the_socket_is_for_its_group_alone(pod: Pod, image: Image, tmp_path: Path, group: int, answer: str) -> None:
    knock = (
        "import socket\n"
        "try:\n"
        "    socket.socket(socket.AF_UNIX).connect('/run/offramp/offramp.sock')\n"
        "    print('welcome')\n"
        "except OSError as error:\n"
        "    print(error.strerror)\n"
    )
    volume, command = {"/run/offramp": pod.run}, ["python3", "-c", knock]
    with Container(image, tmp_path, volume, command=command, user=4321, group=group) as app:
        assert app.wait() == 0, app.log
        assert app.log.strip() == answer

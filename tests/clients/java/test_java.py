"""The Java client: its own tests, and its examples as a user would run them."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sidecar.model.version import PROTOCOL_MINOR, VERSION
from tests.clients import first_steps
from tests.clients.java import build
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, eventually
from tests.servers.tools import give_up

#: what a JVM ends with when its hooks have run after SIGTERM
TERMINATED = 128 + signal.SIGTERM


@pytest.fixture(autouse=True)
def _java() -> None:
    if sentence := build.missing():
        give_up(sentence)


def test_the_client_passes_its_own_tests() -> None:
    done = subprocess.run(
        ["mvn", "--quiet", "--batch-mode", "--projects", "client", "test"],
        cwd=build.JAVA,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_has_the_version_of_the_sidecar_and_speaks_its_protocol() -> None:
    source = (build.JAVA / "client/src/main/java/io/offramp/Protocol.java").read_text()
    constants = dict(re.findall(r"static final \w+ (\w+) = \"?([\w.]+)\"?;", source))
    assert (constants["VERSION"], constants["MINOR"]) == (VERSION, str(PROTOCOL_MINOR))
    for pom in build.JAVA.rglob("pom.xml"):
        assert re.findall(r"<artifactId>offramp-parent</artifactId>\s*<version>(.*)</version>", pom.read_text()) == [
            VERSION
        ]
    assert (
        f"<artifactId>offramp-client</artifactId>\n      <version>{VERSION}<" in (build.JAVA / "README.md").read_text()
    )


def test_the_readme_leads_from_nothing_to_a_running_worker(tmp_path: Path) -> None:
    says = r"^(\d+) records of orders$"
    first_steps.follow(
        build.JAVA / "README.md", tmp_path, without=["pip install"], says=says, worker="java -cp", ends_with=TERMINATED
    )


@contextmanager
def running(jar: Path | str, *words: str, address: str) -> Iterator["subprocess.Popen[str]"]:
    command = ["java", *build.QUICK, "-cp", str(jar), *words]
    env = {**os.environ, "OFFRAMP_ADDRESS": address}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("main", ["example.Main", "example.spring.SpringMain"])
def test_an_example_works_until_sigterm_and_leaves_in_order(main: str, tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar:
        sidecar.publish("orders", [b"%d" % number for number in range(100)])
        with running(build.JAVA / "examples/target/offramp-examples.jar", main, address=sidecar.target) as process:
            eventually(lambda: sidecar.status().counters.acked == 100, "the example did its work")
            process.send_signal(signal.SIGTERM)
            said, complaints = process.communicate(timeout=WAIT_TIMEOUT)
        assert process.returncode == TERMINATED, complaints
        assert "WARN" not in complaints
        assert "ERROR" not in complaints
        if main == "example.Main":
            assert "records of orders" in said
        else:
            assert "orders/" in complaints
        counters = sidecar.status().counters
        assert (counters.acked, counters.abandoned, counters.rejected) == (100, 0, 0)
        eventually(lambda: not sidecar.status().sessions, "it has left")


@pytest.mark.parametrize("runtime", ["oldest", "newest"])
def test_the_client_runs_with_the_protobuf_runtime_of_the_app(runtime: str, tmp_path: Path) -> None:
    examples, scenarios = build.JAVA / "examples/target", build.JAVA / "scenarios/target"
    # Before the client's own, which is among the libraries of the examples.
    protobuf = scenarios / f"protobuf/{runtime}.jar"
    loaded = tmp_path / "loaded"
    with Sidecar(tmp_path) as sidecar:
        sidecar.publish("orders", [b"%d" % number for number in range(100)])
        words = (f"-Xlog:class+load:file={loaded}", "example.Main")
        with running(f"{protobuf}:{examples}/offramp-examples.jar", *words, address=sidecar.target) as process:
            eventually(lambda: process.poll() is not None or sidecar.status().counters.acked == 100)
            process.send_signal(signal.SIGTERM)
            _, complaints = process.communicate(timeout=WAIT_TIMEOUT)
        assert process.returncode == TERMINATED, complaints
        assert sidecar.status().counters.abandoned == 0
    assert re.findall(r"com\.google\.protobuf\.Message source: file:(\S+)", loaded.read_text()) == [str(protobuf)]


def test_the_client_is_a_module_with_a_name() -> None:
    jar = build.JAVA / f"client/target/offramp-client-{VERSION}.jar"
    done = subprocess.run(["jar", "--describe-module", "--file", jar], capture_output=True, text=True, check=True)
    assert f"io.offramp@{VERSION} automatic" in done.stdout


def test_a_batch_that_a_consumer_has_in_hand_is_settled_before_the_jvm_ends(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar:
        sidecar.publish("orders", [b"1"])
        source = Path(__file__).parent / "Holding.java"
        jar = build.JAVA / "examples/target/offramp-examples.jar"
        with running(jar, str(source), address=sidecar.target) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "took\n"
            process.send_signal(signal.SIGTERM)
            _, complaints = process.communicate(timeout=WAIT_TIMEOUT)
        assert process.returncode == TERMINATED, complaints
        counters = sidecar.status().counters
        assert (counters.acked, counters.abandoned) == (1, 0)


def test_nothing_but_generated_code_is_needed(tmp_path: Path) -> None:
    source = build.ROOT / "examples/generated/java/Consume.java"
    assert len(source.read_text().splitlines()) < 60
    with Sidecar(tmp_path, listen={"tcp": "127.0.0.1:0"}) as sidecar:
        values = {str(number) for number in range(50)}
        sidecar.publish("orders", [value.encode() for value in values])
        jar = source.parent / "target/consume.jar"
        with running(jar, "Consume", "orders", address=sidecar.event("ready")["tcp"]) as process:
            said, complaints = process.communicate(timeout=WAIT_TIMEOUT)
        assert process.returncode == 0, complaints
        assert sorted(said.split()) == sorted(values)
        assert sidecar.status().counters.acked == 50

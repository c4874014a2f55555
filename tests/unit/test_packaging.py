"""What goes into the wheels and the image, by the files that describe them; tests/image looks into a built image."""

import hashlib
import inspect
import pkgutil
import re
import tomllib
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path

import pytest

from sidecar import brokers
from sidecar.brokers.base import Broker
from sidecar.brokers.queue.broker import QueueBroker

ROOT = Path(__file__).parents[2]
#: of https://www.apache.org/licenses/LICENSE-2.0.txt
APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


def project(folder: str) -> dict[str, object]:
    found: dict[str, object] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    return found


def in_the_build_context(path: str) -> bool:
    """Whether .dockerignore lets a file through. As in Docker, the last line that matches the file or a parent wins."""
    sent = True
    parents = [path, *map(str, Path(path).parents)]
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        names = [parent.rpartition("/")[2] for parent in parents] if "**/" in line else parents
        if not line.startswith("#") and any(fnmatch(name, pattern) for name in names):
            sent = line.startswith("!")
    return sent


@pytest.mark.parametrize("folder", [".", "clients/java", "clients/php", "clients/python", "spark_bridge"])
def test_the_licence_is_the_unmodified_apache_2_0(folder: str) -> None:
    assert hashlib.sha256((ROOT / folder / "LICENSE").read_bytes()).hexdigest() == APACHE_2


@pytest.mark.parametrize("folder", [".", "clients/python", "spark_bridge"])
def test_every_wheel_declares_its_licence(folder: str) -> None:
    declared = project(folder)
    assert (declared["license"], declared["license-files"]) == ("Apache-2.0", ["LICENSE"])


def test_the_wheel_has_the_brokers_that_a_user_can_configure_and_no_other() -> None:
    """A broker for tests must not be shipped: whoever configured it would lose everything at the first restart."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build == {"packages": ["sidecar"]}
    packages = set()
    for module in pkgutil.walk_packages(brokers.__path__, "sidecar.brokers."):
        for _, cls in inspect.getmembers(import_module(module.name), inspect.isclass):
            # The mechanism for brokers with handles is none by itself.
            if issubclass(cls, Broker) and cls not in (Broker, QueueBroker) and not inspect.isabstract(cls):
                packages.add(cls.__module__.split(".")[2])
    assert packages == set(brokers.kinds())


def test_the_image_is_built_without_the_demo_and_without_tests() -> None:
    for path in (
        "sidecar/cli/commands/run.py",
        "sidecar/brokers/kafka/__init__.py",
        "clients/python/offramp/py.typed",
        "LICENSE",
    ):
        assert in_the_build_context(path), path
        assert (ROOT / path).exists(), path
    for path in ("sidecar/cli/demo/__init__.py", "tests/memory_broker.py", "benchmarks/__main__.py", "CONTRIBUTING.md"):
        assert not in_the_build_context(path), path


def test_only_the_demo_imports_the_demo() -> None:
    """The command line loads it by name when it is called, so that the image works without it."""
    demo = ROOT / "sidecar/cli/demo"
    others = [path for path in (ROOT / "sidecar").rglob("*.py") if demo not in path.parents]
    imports = re.compile(
        r"(?m)^\s*(from sidecar\.cli\.demo|from sidecar\.cli import .*\bdemo\b|import sidecar\.cli\.demo)"
    )
    assert [path for path in others if imports.search(path.read_text())] == []

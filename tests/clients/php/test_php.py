"""The PHP client: its own suites, its generated code, and its messages when something is missing."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sidecar.model.version import PROTOCOL_MINOR, VERSION
from tests.clients import first_steps
from tests.clients.php import tools
from tests.e2e.harness import Sidecar
from tests.servers.tools import give_up

ROOT = Path(__file__).parents[3]
PHP = ROOT / "clients/php"


@pytest.fixture(autouse=True)
def _php() -> None:
    if sentence := tools.missing():
        give_up(sentence)


def run(*command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    env = {name: value for name, value in os.environ.items() if not name.startswith("OFFRAMP_")}
    return subprocess.run(
        command, cwd=PHP, capture_output=True, text=True, check=False, timeout=280, env={**env, **environment}
    )


@pytest.mark.parametrize("suite", ["unit", "integration"])
def test_the_suite_passes(suite: str) -> None:
    tools.require("phpunit")
    done = run("phpunit", "--testsuite", suite, OFFRAMP_PYTHON=sys.executable)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_generated_code_is_what_the_protocol_says(tmp_path: Path) -> None:
    tools.require("protoc")
    done = run(str(PHP / "tools/generate"), str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    difference = run("diff", "-r", str(tmp_path), str(PHP / "generated"))
    assert difference.returncode == 0, f"the PHP classes are stale: run make proto-php\n{difference.stdout}"


def test_it_has_the_version_of_the_sidecar_and_speaks_its_protocol() -> None:
    constants = dict(re.findall(r"const (\w+) = '?([\w.]+)'?;", (PHP / "src/Protocol.php").read_text()))
    assert (constants["VERSION"], constants["MINOR"]) == (VERSION, str(PROTOCOL_MINOR))


def test_every_file_is_strict_and_has_no_mistake() -> None:
    files = [
        *(PHP / "src").rglob("*.php"),
        PHP / "push/handle.php",
        PHP / "bin/offramp-worker",
        *(PHP / "examples").rglob("*.php"),
    ]
    assert [file for file in files if "declare(strict_types=1);" not in file.read_text()] == []
    for file in files:
        done = run("php", "-d", "display_errors=1", "-l", str(file))
        assert done.returncode == 0, done.stdout


#: what PHP 8.2 to 8.5 say is deprecated, and a reader of the code alone can find
DEPRECATED = (
    r"[(,]\s*(?!mixed)[\w\\ ]+ \$\w+ = null",  # a parameter that is nullable by its default alone
    r"\b(curl_close|curl_share_close|utf8_encode|utf8_decode|lcg_value|setAccessible)\(",
    r"\((boolean|integer|double|binary)\)",
    r'"[^"\n]*\$\{',
)


@pytest.mark.parametrize("pattern", DEPRECATED)
def test_nothing_is_used_that_a_newer_php_deprecates(pattern: str) -> None:
    files = [*PHP.rglob("*.php"), PHP / "bin/offramp-worker", ROOT / "examples/generated/php/consume.php"]
    found = [(file.name, match[0]) for file in files for match in re.finditer(pattern, file.read_text("latin-1"))]
    assert found == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("-n",), "PHP has no curl extension, by which Offramp talks to its sidecar: install it"),
        (("-d", "include_path=/nowhere"), "the protobuf runtime is missing: composer require google/protobuf"),
    ],
)
def test_what_php_lacks_is_said_in_one_sentence(options: tuple[str, ...], sentence: str) -> None:
    code = 'require "autoload.php"; try { new Offramp\\Consumer("a"); } catch (Throwable $e) { echo $e->getMessage(); }'
    assert run("php", *options, "-r", code).stdout.startswith(sentence)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_socket_that_this_user_may_not_use_is_explained() -> None:
    # Folders of tests are closed to others, who could not even see the socket.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        with Sidecar(Path(folder)) as sidecar:
            code = """
                require "autoload.php";
                $options = new Offramp\\Options(patience: 0.0);
                $consumer = new Offramp\\Consumer("orders", $options);
                posix_initgroups("nobody", 65534);
                posix_setgid(65534);
                posix_setuid(65534);
                try { $consumer->take(5); } catch (Offramp\\Exception\\Unavailable $e) { echo $e->getMessage(); }
            """
            said = run("php", "-r", code, OFFRAMP_ADDRESS=sidecar.target)
    assert f"this user may not use the socket {sidecar.socket}" in said.stdout, said


def test_the_readme_takes_a_new_user_to_a_running_worker(tmp_path: Path) -> None:
    says = r"^\d+: (\d+) records of orders$"
    first_steps.follow(
        PHP / "README.md", tmp_path, without=["apt-get", "pip install"], says=says, worker="bin/offramp-worker"
    )

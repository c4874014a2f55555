"""The command itself: help, mistakes, exit codes, the configuration, versions."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sidecar import cli
from sidecar.config.yaml_writer import example

OFFRAMP = [sys.executable, "-m", "sidecar"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("OFFRAMP_"):
            monkeypatch.delenv(name)
    return tmp_path


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name}" in out for name in cli.COMMANDS)


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == 0
    assert f"offramp {name}" in capsys.readouterr().out.partition("\n\n")[2]


def test_no_command_shows_the_help_and_fails_as_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "Commands:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["stauts"], '"stauts" is not a command. Did you mean "status"? (see offramp --help)'),
        (["zzz"], '"zzz" is not a command. The commands are run, demo, lint,'),
        (["status", "--nope"], "unrecognized arguments: --nope (see offramp status --help)"),
        (["--nope"], "unrecognized arguments: --nope (see offramp --help)"),
        (["consume", "orders", "--count", "0"], 'argument --count: "0" is not a whole number of at least 1'),
        (["top", "--interval", "soon"], 'argument --interval: "soon" is not a duration such as 200ms, 5s, 10m or 1h'),
        (["top", "--interval", "-1"], "argument --interval: "),
        (["redrive", "orders"], "one of the arguments --id --all is required"),
        (["seek", "orders"], "one of the arguments --start --end --position --time --ago is required"),
        (["seek", "orders", "--time", "noon"], 'argument --time: "noon" is not a time such as 2025-06-01T12:00:00Z'),
        (["publish", "--topic", "t", "--header", "x"], 'argument --header: "x" is not name=value'),
    ],
)
def test_a_wrong_call_is_one_line_and_code_two(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"offramp: {said}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["status", "top", "publish --topic t", "consume orders", "pause orders"])
def test_a_sidecar_that_is_not_there_is_one_sentence(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*command.split(), "--address", "unix:/nowhere/s.sock"]) == 1
    assert capsys.readouterr().err == (
        "offramp: no sidecar at unix:/nowhere/s.sock: there is no such socket. "
        'Start one with "offramp run", or name another with --address or OFFRAMP_ADDRESS\n'
    )


def test_a_socket_that_was_left_over_is_told_from_one_that_is_missing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left_over = socket.socket(socket.AF_UNIX)
    left_over.bind(str(folder / "old.sock"))
    left_over.close()
    assert cli.main(["status", "--address", "./old.sock"]) == 1
    assert "no process listens on the socket; it was left over" in capsys.readouterr().err


def test_a_port_where_nobody_listens_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    assert cli.main(["status", "--address", address]) == 1
    assert f"no sidecar at {address}: connection refused" in capsys.readouterr().err


def test_an_address_that_is_none_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", "--address", "somewhere"]) == 1
    assert '"somewhere" is not an address such as unix:/run/offramp/offramp.sock' in capsys.readouterr().err


def test_the_address_is_as_said_then_as_the_variable_then_as_the_file_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def asked(*more: str) -> str:
        cli.main(["status", *more])
        return capsys.readouterr().err.partition("no sidecar at ")[2].partition(": ")[0]

    assert asked() == "unix:/run/offramp/offramp.sock"
    (folder / "offramp.yaml").write_text("listen: {socket: /x/file.sock}\nsubscriptions: {a: {topics: '${UNSET}'}}\n")
    assert asked() == "unix:/x/file.sock"
    assert asked("--set", "listen.socket=/x/set.sock") == "unix:/x/set.sock"
    assert asked("--set", "listen.socket=", "--set", "listen.tcp=127.0.0.1:1") == "127.0.0.1:1"
    monkeypatch.setenv("OFFRAMP_ADDRESS", "/x/variable.sock")
    assert asked() == "unix:/x/variable.sock"
    assert asked("--address", "unix:///x/said.sock") == "unix:/x/said.sock"


def test_lint_says_ok_and_what_there_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "c.yaml").write_text("subscriptions: {orders: {topics: [a, b], order: key}}")
    assert cli.main(["lint", "-c", "c.yaml"]) == 0
    assert capsys.readouterr().out == (
        "c.yaml: ok\n"
        "  listen        unix:/run/offramp/offramp.sock\n"
        "  http          127.0.0.1:4771\n"
        "  broker        local, type local\n"
        "  subscription  orders: a, b on local, group orders, order key\n"
    )


def test_lint_reports_every_mistake_and_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "c.yaml").write_text("log: {level: loud}\nsubscriptions:\n  orders: {topics: [a], order: keys}\n")
    assert cli.main(["lint", "-c", "c.yaml"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        'c.yaml:1: log.level: "loud" is not one of debug, info, warning, error',
        'c.yaml:3: subscriptions.orders.order: "keys" is not one of none, key, lane. Did you mean "key"?',
        "offramp: 2 mistakes",
    ]


def test_lint_shows_what_is_in_effect(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "c.yaml").write_text("log: {level: debug}")
    assert cli.main(["lint", "-c", "c.yaml", "--show", "--set", "drain.deadline=3s"]) == 0
    out = capsys.readouterr().out
    assert "  level: debug\n" in out
    assert "  deadline: 3s\n" in out


def test_lint_prints_an_example_that_it_finds_right(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lint", "--example"]) == 0
    (folder / "offramp.yaml").write_text(capsys.readouterr().out)
    assert (folder / "offramp.yaml").read_text() == example()
    assert cli.main(["lint"]) == 0


@pytest.mark.parametrize("command", ["run", "lint"])
def test_without_any_configuration_it_says_where_it_looked(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command]) == 1
    assert capsys.readouterr().err.startswith("offramp: no configuration: neither offramp.yaml nor /etc/offramp")


def test_run_reports_a_broken_configuration_line_by_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "offramp.yaml").write_text("log: {level: loud, format: xml}")
    assert cli.main(["run"]) == 1
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 2
    assert all(line.startswith("offramp: offramp.yaml:1: log.") for line in err)


def test_version_names_what_it_runs_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version", "--json"]) == 0
    versions = json.loads(capsys.readouterr().out)
    assert {"offramp", "protocol", "python", "grpcio", "protobuf"} <= versions.keys()
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == versions["offramp"] + "\n"


def test_a_reader_that_has_seen_enough_ends_the_command_quietly() -> None:
    with subprocess.Popen([*OFFRAMP, "lint", "--example"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_without_its_package_the_demo_says_how_to_run_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sidecar.cli.commands.demo.find_spec", lambda name: None)
    assert cli.main(["demo", "--quick"]) == 1
    assert capsys.readouterr().err == (
        "offramp: the demo is not part of the container image; run `make demo` in a clone of the repository, "
        "or `offramp demo` where offramp-sidecar is installed with pip\n"
    )


def test_help_loads_no_heavy_module() -> None:
    program = (
        "import sys; from sidecar import cli; cli.main(['--help']); sys.exit(bool({'grpc', 'yaml'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL, check=False).returncode == 0

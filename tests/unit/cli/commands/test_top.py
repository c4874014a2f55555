"""`offramp top`: its terminal, its pipe, and a sidecar that goes away."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from tests.unit.cli.fake_sidecar import FakeSidecar, serve
from tests.unit.cli.statuses import status


def test_lines_go_to_a_pipe_until_its_reader_leaves(sidecar: FakeSidecar) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "sidecar", "top"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        sidecar.admin.watched.put(status())
        assert b"orders running" in process.stdout.readline()
        process.stdout.close()
        while process.poll() is None:
            sidecar.admin.watched.put(status())
            time.sleep(0.01)
        assert (process.returncode, process.stderr.read()) == (0, b"")


class Terminal:
    """The other end of a pseudo terminal: what was drawn so far."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.drawn = ""

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 30
        while text not in self.drawn:
            assert time.monotonic() < deadline, f"{text!r} was never drawn: {self.drawn!r}"
            if select.select([self.fd], [], [], 0.1)[0]:
                self.drawn += os.read(self.fd, 65536).decode()


@contextmanager
def on_a_terminal(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Terminal]]:
    outer, inner = pty.openpty()
    command = [sys.executable, "-m", "sidecar", "top", *arguments]
    environ = {**os.environ, "COLUMNS": "80", "LINES": "24", "PYTHONIOENCODING": "utf-8"}
    with subprocess.Popen(
        command, stdin=inner, stdout=inner, stderr=inner, env=environ, start_new_session=True
    ) as process:
        os.close(inner)
        try:
            yield process, Terminal(outer)
        finally:
            process.kill()
            os.close(outer)


@pytest.mark.parametrize("how", ["key", "signal"])
def test_the_terminal_is_left_as_it_was_found(sidecar: FakeSidecar, how: str) -> None:
    with on_a_terminal() as (process, terminal):
        terminal.wait_for("\x1b[?1049h")
        sidecar.admin.watched.put(status())
        terminal.wait_for("orders/3")
        if how == "key":
            os.write(terminal.fd, b"q")
        else:
            process.terminate()
        terminal.wait_for("\x1b[?1049l")
        assert process.wait(30) == 0


def test_it_outlives_a_restart_of_the_sidecar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(tmp_path) as first:
        monkeypatch.setenv("OFFRAMP_ADDRESS", first.address)
        first.admin.watched.put(status())
        manager = on_a_terminal()
        process, terminal = manager.__enter__()
        terminal.wait_for("orders/3")
    terminal.wait_for("! ")
    with serve(tmp_path) as second:
        second.admin.watched.put(status(lanes=9, boot=b"c"))
        terminal.wait_for("orders/8")
        os.write(terminal.fd, b"q")
        assert process.wait(30) == 0
    manager.__exit__(None, None, None)


def test_a_subscription_that_is_not_there_ends_it_with_a_sentence(sidecar: FakeSidecar) -> None:
    sidecar.admin.error = (grpc.StatusCode.NOT_FOUND, 'there is no subscription "x"; there are: orders')
    with on_a_terminal("x") as (process, terminal):
        terminal.wait_for('offramp: there is no subscription "x"; there are: orders')
        assert process.wait(30) == 1

"""A server as a process of its own: started, looked after, killed."""

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

#: seconds that a server may take to start or to end on a busy machine
SERVER_TIMEOUT = 240.0

# Ends the server when the tests that own it are gone, however they ended.
_WATCH = 'while kill -0 "$1"; do kill -0 "$2" || exec kill -9 "$1"; sleep 1; done'

#: Processes that outlive the objects here. Kept, because a process that is collected while it runs is warned about.
_started: list["subprocess.Popen[bytes]"] = []

_given: set[int] = set()


class ServerProcess:
    """One process, which may have been started by another process of the same test run."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._child = next((one for one in _started if one.pid == pid), None)

    @classmethod
    def start(cls, command: Sequence[str], *, log: Path, folder: Path, owner: int) -> "ServerProcess":
        """Returns at once. The process ends with its owner, at the latest."""
        with log.open("ab") as file:
            child = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        watch = subprocess.Popen(
            ["sh", "-c", _WATCH, "watch", str(child.pid), str(owner)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        _started.extend((child, watch))
        return cls(child.pid)

    @property
    def is_running(self) -> bool:
        if self._child is not None:
            return self._child.poll() is None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def signal(self, number: signal.Signals) -> None:
        if self.is_running:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9. Waits for the end if it is a child of this process."""
        self.signal(signal.SIGKILL)
        if self._child is not None:
            self._child.wait(SERVER_TIMEOUT)

    def stop(self) -> None:
        """SIGTERM, and wait for the end."""
        self.signal(signal.SIGTERM)
        await_(lambda: not self.is_running, f"process {self.pid} ends")


def await_(seen: Callable[[], object], what: str, timeout: float = SERVER_TIMEOUT) -> None:
    ends = time.monotonic() + timeout
    while not seen():
        if time.monotonic() > ends:
            raise TimeoutError(f"did not happen within {timeout:g} s: {what}")
        time.sleep(0.02)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on. A server keeps its port over a restart, so these are below the range that the
    kernel takes the ports of outgoing connections from: none of those can be in the way then. It takes a while until
    a server listens, so none is given twice, and processes that test side by side draw from ranges of their own."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = 20_000 + worker % 8 * 1_500
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(first, first + 1_500)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _given:
            _given.add(port)
            found.append(port)
    return found

"""A proxy process of a round. See `proxy`."""

import subprocess
import sys
from pathlib import Path

from tests.servers.process import free_ports


class ProxyProcess:
    """Forwards connections from `address` to `upstream`, both host:port."""

    def __init__(self, upstream: str, address: str = "") -> None:
        self.address = address or f"127.0.0.1:{free_ports(1)[0]}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.proxy", self.address, upstream],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", "the proxy does not listen"

    @property
    def pid(self) -> int:
        return self._process.pid

    def flow(self) -> None:
        self._tell("flow")

    def cut(self) -> None:
        self._tell("cut")

    def delay(self, seconds: float) -> None:
        self._tell(f"delay {seconds}")

    def hold(self) -> None:
        self._tell("hold")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")

"""A real sidecar process and what it costs, as the kernel counts it for this process alone."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import grpc

from offramp.v1 import admin_pb2, admin_pb2_grpc

#: seconds that any operation may take
TIMEOUT = 120.0


class Sidecar:
    """`offramp run` with these settings and one subscription `bench`, in its own folder."""

    def __init__(self, brokers: Mapping[str, Any], subscription: Mapping[str, Any]) -> None:
        self._settings: dict[str, Any] = {
            "http": {"address": ""},
            "log": {"level": "error"},
            "brokers": brokers,
            "subscriptions": {"bench": subscription},
        }

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="offramp-bench-")
        folder = Path(self._folder.name)
        path = folder / "offramp.sock"
        self.address = f"unix:{path}"
        # JSON is YAML.
        (folder / "offramp.yaml").write_text(json.dumps(self._settings | {"listen": {"socket": str(path)}}))
        began = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sidecar", "run", "-c", str(folder / "offramp.yaml")],
            env={name: value for name, value in os.environ.items() if not name.startswith("OFFRAMP_")},
        )
        while not _accepts(path):
            if self._process.poll() is not None or time.perf_counter() - began > TIMEOUT:
                self.__exit__()
                raise RuntimeError("the sidecar did not start")
            time.sleep(0.002)
        #: seconds from the start of the process until its socket accepted
        self.ready_after = time.perf_counter() - began
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(TIMEOUT)
        finally:
            self._process.kill()
            self._folder.cleanup()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    @property
    def cpu_seconds(self) -> float:
        """User and system time of the process so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def resident_mb(self) -> float:
        return self._memory("VmRSS")

    @property
    def most_resident_mb(self) -> float:
        """The maximum so far."""
        return self._memory("VmHWM")

    def _memory(self, name: str) -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith(f"{name}:"))
        return int(line.split()[1]) * 1024 / 1e6

    def status(self) -> admin_pb2.SubscriptionStatus:
        with grpc.insecure_channel(self.address) as channel:
            stub = admin_pb2_grpc.AdminServiceStub(channel)  # type: ignore[no-untyped-call]
            request = admin_pb2.GetStatusRequest(subscription="bench")
            answer: admin_pb2.GetStatusResponse = stub.GetStatus(request, timeout=TIMEOUT)
        return answer.status.subscriptions[0]

    def until(self, reached: Callable[[admin_pb2.SubscriptionStatus], object], what: str) -> None:
        """Waits for a status for which this is true. Raises `RuntimeError`, which says `what` did not come."""
        ends = time.monotonic() + TIMEOUT
        while not reached(self.status()):
            if time.monotonic() > ends:
                raise RuntimeError(f"after {TIMEOUT:g} s there is still no {what}")
            time.sleep(0.02)


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as tried, suppress(OSError):
        tried.connect(str(path))
        return True
    return False

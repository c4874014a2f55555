"""Starts, watches, kills and stops the processes of the demo."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from sidecar.cli.demo.plan import Folder
from sidecar.model.errors import OfframpError

#: lines of a failed process's output to show
_OUTPUT_LINES = 15


class ProcessFailed(OfframpError):
    """A process ended too early, or with an error, or did not end."""


class Process:
    """A process whose output goes to a file."""

    def __init__(self, name: str, module: str, arguments: Iterable[str], folder: Folder) -> None:
        self.name = name
        self._output = folder.output / f"{name}.log"
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # The environment of the user must not configure the sidecar of the demo.
                env={key: value for key, value in os.environ.items() if not key.startswith("OFFRAMP_")},
                # Ctrl-C reaches the demo only, which then ends the others.
                start_new_session=True,
            )

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        """Sends SIGKILL and waits for the end."""
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> None:
        """Waits for a successful end. Raises `ProcessFailed`."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise ProcessFailed(f"{self.name} did not end within {seconds:.0f} s{self._last_output()}") from None
        self.check()

    def check(self) -> None:
        """Raises `ProcessFailed` if it has ended with an error."""
        code = self._process.poll()
        if code:
            raise ProcessFailed(f"{self.name} ended with {code}{self._last_output()}")

    def _last_output(self) -> str:
        lines = self._output.read_text(errors="replace").splitlines()[-_OUTPUT_LINES:]
        return ". Its last output:\n  " + "\n  ".join(lines) if lines else ", without any output"


class Processes:
    """All processes of the demo. Leaving the context kills those that still run."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._processes: list[Process] = []

    def sidecar(self) -> Process:
        return self._start("sidecar", "sidecar", "run", "--config", str(self._folder.config))

    def publisher(self, part: str, share: int) -> Process:
        return self._start(f"publisher-{part}-{share}", "sidecar.cli.demo.publisher", self._path, part, str(share))

    def worker(self, name: str) -> Process:
        return self._start(name, "sidecar.cli.demo.worker", self._path, name)

    def kill(self, process: Process) -> float:
        """Sends SIGKILL. Returns when, on the monotonic clock."""
        at = time.monotonic()
        self._processes.remove(process)
        process.kill()
        return at

    def check(self) -> None:
        """Raises `ProcessFailed` if one has ended with an error."""
        for process in self._processes:
            process.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in reversed(self._processes):
            if not process.ended:
                process.kill()

    @property
    def _path(self) -> str:
        return str(self._folder.path)

    def _start(self, name: str, module: str, *arguments: str) -> Process:
        process = Process(name, module, arguments, self._folder)
        self._processes.append(process)
        return process


def wait_for_socket(path: Path, sidecar: Process, seconds: float) -> None:
    """Waits until the sidecar listens. Raises `ProcessFailed`."""
    ends = time.monotonic() + seconds
    while not path.exists():
        sidecar.check()
        if time.monotonic() > ends:
            raise ProcessFailed(f"the sidecar does not listen after {seconds:.0f} s")
        time.sleep(0.01)

"""The processes of the demo: started, watched, killed and ended."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from sidecar.cli.demo.plan import Folder
from sidecar.model.errors import OfframpError

#: lines of a dead process's output that are worth showing
_LAST_WORDS = 15


class Fell(OfframpError):
    """A process ended that should not have."""


class Actor:
    """One process."""

    def __init__(self, name: str, module: str, arguments: Iterable[str], folder: Folder) -> None:
        self.name = name
        self._output = folder.output / f"{name}.log"
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Settings of the person who watches are not for the sidecar of the demo.
                env={key: value for key, value in os.environ.items() if not key.startswith("OFFRAMP_")},
                # Ctrl-C is for the demo alone, which then ends the others.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        """kill -9, and wait for the end."""
        self._process.kill()
        self._process.wait()

    def ask_to_leave(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> None:
        """Until it has ended well. Raises `Fell`."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Fell(f"{self.name} did not end within {seconds:.0f} s of being asked to{self._said()}") from None
        self.check()

    def check(self) -> None:
        """Raises `Fell` if it has ended badly."""
        code = self._process.poll()
        if code:
            raise Fell(f"{self.name} ended with {code}{self._said()}")

    def _said(self) -> str:
        lines = self._output.read_text(errors="replace").splitlines()[-_LAST_WORDS:]
        return ". It said:\n  " + "\n  ".join(lines) if lines else ", without a word"


class Cast:
    """All of them. Leaving its context ends whoever is left, at once."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._actors: list[Actor] = []

    def sidecar(self) -> Actor:
        return self._start("sidecar", "sidecar", "run", "--config", str(self._folder.config))

    def publisher(self, part: str, share: int) -> Actor:
        return self._start(f"publisher-{part}-{share}", "sidecar.cli.demo.publisher", self._path, part, str(share))

    def worker(self, name: str) -> Actor:
        return self._start(name, "sidecar.cli.demo.worker", self._path, name)

    def kill(self, actor: Actor) -> float:
        """kill -9. Answers when, on the monotonic clock."""
        at = time.monotonic()
        self._actors.remove(actor)
        actor.kill()
        return at

    def check(self) -> None:
        """Raises `Fell` if one has ended badly."""
        for actor in self._actors:
            actor.check()

    def __enter__(self) -> "Cast":
        return self

    def __exit__(self, *error: object) -> None:
        for actor in reversed(self._actors):
            if not actor.ended:
                actor.kill()

    @property
    def _path(self) -> str:
        return str(self._folder.path)

    def _start(self, name: str, module: str, *arguments: str) -> Actor:
        actor = Actor(name, module, arguments, self._folder)
        self._actors.append(actor)
        return actor


def wait_for_socket(path: Path, sidecar: Actor, seconds: float) -> None:
    """Until the sidecar listens. Raises `Fell`."""
    ends = time.monotonic() + seconds
    while not path.exists():
        sidecar.check()
        if time.monotonic() > ends:
            raise Fell(f"the sidecar does not listen after {seconds:.0f} s")
        time.sleep(0.01)

"""A client's runner process, and the lines that it says."""

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping
from typing import Self

from tests.clients.scenarios.clients import ROOT, Client

#: seconds without the next line before the harness gives up
LINE_TIMEOUT = 90.0


class Runner:
    """One run of a scenario, to be used in a `with` block, which kills what is left of it.

    Reads all lines as they come: a runner that says much is never held up by a harness that does something else.
    """

    def __init__(self, client: Client, scenario: str, environment: Mapping[str, str]) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OFFRAMP_", "SCENARIO_"))}
        self._process = subprocess.Popen(
            [*client.command, scenario],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env={**kept, **environment},
            # So that what it leaves running can be ended with it.
            start_new_session=True,
        )
        self._said: list[str] = []
        self._errors: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._threads = [
            threading.Thread(target=self._read_lines, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def next(self, kind: str) -> str:
        """What follows this word on the next line, which must begin with it."""
        line = self._next_line()
        word, _, rest = (line or "").partition(" ")
        assert word == kind, f"it said {line!r} instead of {kind}\n{self.transcript()}"
        return rest

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL to this process alone; its children live on."""
        self._process.kill()
        self._process.wait(LINE_TIMEOUT)

    def passes(self) -> list[list[str]]:
        """Waits for the verdict. Returns the lines before it that were not read yet, as lists of words."""
        lines = []
        while (line := self._next_line()) is not None:
            lines.append(line)
        assert lines, f"it ended without a verdict\n{self.transcript()}"
        assert lines[-1] == "pass", f"{lines[-1]}\n{self.transcript()}"
        code = self._process.wait(LINE_TIMEOUT)
        assert code == 0, f"it passed, and then ended with exit code {code}\n{self.transcript()}"
        return [line.split(" ") for line in lines[:-1]]

    def transcript(self) -> str:
        """All that it said, for people."""
        said = "\n".join(self._said[-30:])
        return f"--- said:\n{said}\n--- errors:\n{''.join(self._errors[-80:])}---"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # The group: the runner may have left children, which would keep the pipes open.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for thread in self._threads:
            thread.join(LINE_TIMEOUT)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _next_line(self) -> str | None:
        try:
            return self._lines.get(timeout=LINE_TIMEOUT)
        except queue.Empty:
            raise AssertionError(f"it said nothing for {LINE_TIMEOUT:g} s\n{self.transcript()}") from None

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            text = line.decode(errors="replace").rstrip("\r\n")
            self._said.append(text)
            self._lines.put(text)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._errors.extend(line.decode(errors="replace") for line in self._process.stderr)

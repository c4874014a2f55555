"""What servers of all kinds have in common: one process in one folder, started, killed, frozen, and started again."""

import os
import shutil
import signal
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.servers.process import ServerProcess, await_

_LOG4J = """
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c{{1}}: %m%n%ex{{5}}
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


class Server(ABC):
    """It keeps its ports and its data over restarts."""

    #: for people
    name: str

    def __init__(
        self, folder: Path, *, jvm: Sequence[str] = (), owner: int | None = None, process: ServerProcess | None = None
    ) -> None:
        """It ends with the process `owner`, which is this one unless told otherwise."""
        #: whole: the server runs in it
        self.folder = folder.absolute()
        #: what it has to say
        self.log = self.folder / "server.log"
        self._jvm = tuple(jvm)
        self._owner = owner or os.getpid()
        self._process = process

    @abstractmethod
    def _command(self) -> list[str]:
        """What starts it."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it can be used."""

    # Life

    def start(self) -> None:
        """Returns when it can be used."""
        assert not self.is_running, "it runs already"
        self._process = ServerProcess.start(self._command(), log=self._console, folder=self.folder, owner=self._owner)
        await_(self._is_up, f"{self.name} answers; see {self.log}")

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running

    def kill(self) -> None:
        """kill -9. What it had acknowledged is there after a restart."""
        self._running.kill()

    def stop(self) -> None:
        """In order."""
        self._running.stop()

    def restart(self) -> None:
        """kill -9 and start again, with the same folder and ports."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """It keeps its connections and says nothing any more, as behind a network that swallows everything."""
        self._running.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._running.signal(signal.SIGCONT)

    def discard(self) -> None:
        """End it, and remove its data."""
        if self._process is not None:
            self._process.kill()
            self._process = None
        shutil.rmtree(self.folder, ignore_errors=True)

    # So that other processes of a test run can use it

    @abstractmethod
    def to_json(self) -> str: ...

    @classmethod
    @abstractmethod
    def from_json(cls, text: str) -> Self: ...

    # For those that derive from it

    @property
    def _console(self) -> Path:
        return self.folder / "console.log"

    @property
    def _running(self) -> ServerProcess:
        assert self._process is not None, "it was never started"
        return self._process

    def _write_log_settings(self) -> None:
        (self.folder / "log4j2.properties").write_text(_LOG4J.format(log=self.log))

    def _is_up(self) -> bool:
        if not self._running.is_running:
            said = self._console.read_text()[-2000:]
            raise RuntimeError(f"{self.name} ended instead of starting; see {self.log}\n{said}")
        return self._answers()

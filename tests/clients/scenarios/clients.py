"""The clients that there are, and how their runners are called."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.clients.java import build as java
from tests.clients.php import tools as php
from tests.servers.tools import give_up

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class Client:
    """`command` and a scenario's name run that scenario. `missing` says in a sentence what is not there to run it, and
    how to get it; empty if all is there. It may build what is to be built."""

    name: str
    command: tuple[str, ...]
    missing: Callable[[], str] = str

    def require(self) -> None:
        """Skip on a laptop, fail where everything must be tested."""
        if sentence := self.missing():
            give_up(sentence)


CLIENTS = [
    Client("python", (sys.executable, str(ROOT / "clients/python/scenarios/threads.py"))),
    Client("python-aio", (sys.executable, str(ROOT / "clients/python/scenarios/tasks.py"))),
    Client("php", ("php", str(ROOT / "clients/php/tests/scenarios/run.php")), php.missing),
    Client("java", java.RUNNER, java.missing),
    Client("java-async", (*java.RUNNER, "--async"), java.missing),
]

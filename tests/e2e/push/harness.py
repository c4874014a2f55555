"""The process of the app, and a sidecar that pushes to it."""

import base64
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from offramp.v1 import admin_pb2, admin_pb2_grpc
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, eventually

ROOT = Path(__file__).parents[3]

#: retries and probes without waits that a test would notice
QUICK: dict[str, Any] = {
    "commit_every": "10ms",
    "retry": {"first": "10ms", "max": "50ms", "attempts": 3, "jitter": 0},
    "outage": {"probe_first": "10ms", "probe_max": "100ms"},
}


class App:
    """`tests.e2e.push.app` on a unix socket or, with `options` of uvicorn, elsewhere."""

    module = "tests.e2e.push.app"

    def __init__(self, folder: Path, **options: Any) -> None:
        self.socket = folder / "app.sock"
        self.url = f"http+unix://{self.socket}:/orders"
        self._options = options or {"uds": str(self.socket)}
        self._rules = folder / "rules.json"
        self._journal = folder / "calls.jsonl"
        self._output = folder / "app.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.answer()

    def answer(self, **by_value: dict[str, Any]) -> None:
        """How to answer calls with these values from now on. `any` stands for all others, which are OK without it."""
        rules = {("*" if value == "any" else value): rule for value, rule in by_value.items()}
        new = self._rules.with_suffix(".new")
        new.write_text(json.dumps(rules))
        new.replace(self._rules)

    # Life

    def start(self) -> Self:
        with self._output.open("ab") as output:
            arguments = [str(self._rules), str(self._journal), json.dumps(self._options)]
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.module, *arguments], cwd=ROOT, stdout=output, stderr=output
            )
        eventually(self._accepts, "the app listens")
        return self

    def _accepts(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._output.read_text()
        uds = self._options.get("uds")
        with socket.socket(socket.AF_UNIX if uds else socket.AF_INET) as probe:
            return probe.connect_ex(uds or ("127.0.0.1", self._options["port"])) == 0

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """kill -9. Its socket stays, and refuses connections."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(WAIT_TIMEOUT)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(WAIT_TIMEOUT)

    # What it saw

    def events(self, kind: str = "begin") -> list[dict[str, Any]]:
        if not self._journal.exists():
            return []
        lines = self._journal.read_bytes().split(b"\n")[:-1]
        return [event for line in lines if (event := json.loads(line))["event"] == kind]

    def calls(self) -> list[list[str]]:
        """The values of each call."""
        return [call["values"] for call in self.events()]

    def done(self) -> list[str]:
        """The values of calls that were answered OK, in the order of the answers."""
        ends = [end for end in self.events("end") if end["status"] < 300]
        return [value for end in ends for value in end["values"]]

    def last_death(self, value: str) -> int:
        """The process that got the last call with this value."""
        pid: int = [call["pid"] for call in self.events() if value in call["values"]][-1]
        return pid

    def records(self) -> list[dict[str, Any]]:
        """What each call in JSON said of its records, in order."""
        bodies = [base64.b64decode(call["body"]) for call in self.events()]
        return [record for body in bodies if body.startswith(b"{") for record in json.loads(body)["records"]]

    def records_of(self, value: str) -> list[dict[str, Any]]:
        return [record for record in self.records() if record["value"] == value]

    def body(self, call: int = -1) -> bytes:
        return base64.b64decode(self.events()[call]["body"])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def pushing(
    folder: Path, url: str, push: dict[str, Any] | None = None, environ: dict[str, str] | None = None, **settings: Any
) -> Sidecar:
    """A sidecar whose subscription `orders` is pushed in JSON, unless told otherwise."""
    subscription = {
        "topics": ["orders"], **QUICK, **settings, "push": {"url": url, "format": "json", **(push or {})}
    }  # fmt: skip
    return Sidecar(folder, subscriptions={"orders": subscription}, drain={"deadline": "10s"}, environ=environ)


def texts(*names: object) -> list[bytes]:
    return [str(name).encode() for name in names]


def settled(sidecar: Sidecar, records: int) -> None:
    """Waits until so many records are settled for good: acked or dead-lettered, and committed."""

    def position() -> int:
        return sum(lane.committed for lane in sidecar.status().lanes if not lane.parked)

    eventually(lambda: position() >= records, f"{records} records are committed")


def trouble(sidecar: Sidecar, *words: str) -> None:
    """Waits for a trouble with these words."""
    eventually(
        lambda: any(all(word in text for word in words) for text in sidecar.status().trouble),
        f"a trouble with {words}; now {list(sidecar.status().trouble)}",
    )


def dead(sidecar: Sidecar, records: int) -> list[tuple[str, str]]:
    """Waits for so many dead letters. Their values and reasons."""
    eventually(lambda: sidecar.status().counters.dead_lettered >= records, f"{records} dead letters")
    with sidecar.channel() as channel:
        request = admin_pb2.ListDeadLettersRequest(subscription="orders")
        found = admin_pb2_grpc.AdminServiceStub(channel).ListDeadLetters(request, timeout=WAIT_TIMEOUT)
        letters = [letter for response in found for letter in response.dead_letters]
    return [(letter.record.value.decode(), letter.reason) for letter in letters]


def calls(sidecar: Sidecar, status: str) -> int:
    """Calls that have ended like this."""
    line = rf'offramp_push_calls_total{{subscription="orders",status="{status}"}} (\d+)'
    found = re.search(line, sidecar.get("/metrics")[1])
    return int(found[1]) if found else 0


@contextmanager
def running(folder: Path, push: dict[str, Any] | None = None, **settings: Any) -> Iterator[tuple[App, Sidecar]]:
    """An app and a sidecar that pushes to it."""
    with App(folder) as app, pushing(folder, app.url, push, **settings) as sidecar:
        yield app, sidecar

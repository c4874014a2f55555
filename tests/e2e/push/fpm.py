"""A real php-fpm with a pool of its own."""

import glob
import json
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.e2e.harness import WAIT_TIMEOUT, eventually
from tests.e2e.push.harness import ROOT
from tests.servers.tools import give_up

_CONFIG = """\
[global]
error_log = {folder}/fpm.log
daemonize = no
process_control_timeout = 5s
[w]
user = {user}
group = {group}
listen = {socket}
listen.mode = 0666
listen.backlog = {backlog}
pm = static
pm.max_children = {children}
pm.max_requests = {max_requests}
request_terminate_timeout = {terminate}
catch_workers_output = yes
php_admin_value[display_errors] = 1
"""


class Fpm:
    """Runs `worker.php` in the folder, which gets the helper and this handler, a body of PHP with `$record`."""

    def __init__(
        self, folder: Path, handler: str, *, children: int = 2, backlog: int = 128, max_requests: int = 0,
        terminate: str = "0",
    ) -> None:  # fmt: skip
        self.folder = folder
        self.socket = folder / "fpm.sock"
        self.script = folder / "worker.php"
        self._done = folder / "done.txt"
        self._begun = folder / "begun.txt"
        self._process: subprocess.Popen[bytes] | None = None
        helper = ROOT / "clients/php/push/handle.php"
        self.write(
            f"<?php require {str(helper)!r};\n"
            "Offramp\\Push\\handle(function (Offramp\\Push\\Record $record) {\n"
            "  $line = ['value' => $record->value, 'flag' => $record->possiblyProcessed];\n"
            "  $line = json_encode($line, JSON_INVALID_UTF8_SUBSTITUTE) . PHP_EOL;\n"
            f"  file_put_contents({str(self._begun)!r}, $line, FILE_APPEND | LOCK_EX);\n"
            f"  {handler}\n"
            f"  file_put_contents({str(self._done)!r}, $line, FILE_APPEND | LOCK_EX);\n"
            "});\n"
        )
        (folder / "fpm.conf").write_text(
            _CONFIG.format(
                folder=folder,
                socket=self.socket,
                backlog=backlog,
                children=children,
                max_requests=max_requests,
                terminate=terminate,
                user=_user(),
                group=_group(),
            )
        )

    def write(self, script: str) -> None:
        self.script.write_text(script)

    @property
    def push(self) -> dict[str, Any]:
        return {"fastcgi": f"unix:{self.socket}", "script": str(self.script), "concurrency": 2}

    def start(self) -> Self:
        command = [_program(), "-n", "-y", str(self.folder / "fpm.conf"), "-F", *(["-R"] if os.geteuid() == 0 else [])]
        with (self.folder / "fpm.out").open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        eventually(self._accepts, "php-fpm listens")
        return self

    def _accepts(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "fpm.log").read_text()
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    def kill(self) -> None:
        """kill -9, of the workers as well: they would go on without their master."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(WAIT_TIMEOUT)
        self.socket.unlink(missing_ok=True)

    def reload(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGUSR2)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def begun(self) -> list[dict[str, Any]]:
        return _lines(self._begun)

    def done(self) -> list[str]:
        return [line["value"] for line in _lines(self._done)]


def _lines(path: Path) -> Sequence[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _program() -> str:
    found = sorted(glob.glob("/usr/sbin/php-fpm*"))
    if not found:
        give_up("php-fpm is not installed: run `make php`")
    return found[-1]


def _user() -> str:
    return subprocess.check_output(["id", "-un"], text=True).strip()


def _group() -> str:
    return subprocess.check_output(["id", "-gn"], text=True).strip()

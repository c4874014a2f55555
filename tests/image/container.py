"""A container of the image, run by runc with what a strict pod gives it, and nothing more.

The root is read-only, the user is not in any passwd file, there are no capabilities and no way to get some, the network
is a loopback of its own. What is writable are the folders that a test mounts.
"""

import json
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.image.archive import Image

#: seconds that anything may take on a busy machine
CONTAINER_TIMEOUT = 60.0
#: a user as OpenShift gives it: any number, in group 0
USER, GROUP = 1_000_730_000, 0

_CAPABILITIES = ("bounding", "effective", "inheritable", "permitted", "ambient")


class Container:
    """`with Container(...) as container:` runs the image's own command, or another, until it ends."""

    def __init__(
        self,
        image: Image,
        folder: Path,
        mounts: Mapping[str, Path],
        *,
        command: Sequence[str] = (),
        user: int = USER,
        group: int = GROUP,
    ) -> None:
        self._name = f"offramp-{uuid.uuid4().hex[:12]}"
        self._bundle = folder / self._name
        self._bundle.mkdir()
        self._runc = ["runc", "--root", str(folder / "runc")]
        self._log = self._bundle / "log"
        self._process: subprocess.Popen[bytes] | None = None
        command = command or [*image.config["Entrypoint"], *image.config["Cmd"]]
        spec = _spec(image, command, mounts, {"uid": user, "gid": group})
        (self._bundle / "config.json").write_text(json.dumps(spec))

    def __enter__(self) -> Self:
        command = [*self._runc, "run", "--bundle", str(self._bundle), self._name]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        subprocess.run([*self._runc, "delete", "--force", self._name], capture_output=True, check=False)
        assert self._process is not None
        self._process.wait(CONTAINER_TIMEOUT)
        if error is not None:
            print(f"--- log of the container\n{self.log}---")

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, name: str) -> None:
        subprocess.run([*self._runc, "kill", self._name, name], check=True, timeout=CONTAINER_TIMEOUT)

    def wait(self) -> int:
        """The exit code of its command."""
        assert self._process is not None
        return self._process.wait(CONTAINER_TIMEOUT)

    def run(self, *command: str) -> tuple[int, str]:
        """A further command in the container, as its user: the exit code and what it says."""
        done = subprocess.run(
            [*self._runc, "exec", self._name, *command],
            capture_output=True,
            text=True,
            timeout=CONTAINER_TIMEOUT,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


def _spec(image: Image, command: Sequence[str], mounts: Mapping[str, Path], user: dict[str, int]) -> dict[str, Any]:
    system = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
        {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "noexec", "nodev"]},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
    ]
    volumes = [
        {"destination": place, "type": "bind", "source": str(folder), "options": ["rbind", "rw"]}
        for place, folder in mounts.items()
    ]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": user,
            "args": list(command),
            "env": image.config["Env"],
            "cwd": image.config["WorkingDir"] or "/",
            "capabilities": {kind: [] for kind in _CAPABILITIES},
            "noNewPrivileges": True,
        },
        "root": {"path": str(image.root), "readonly": True},
        "hostname": "pod",
        "mounts": [*system, *volumes],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")],
            "cgroupsPath": f"/offramp-tests/{uuid.uuid4().hex}",
        },
    }

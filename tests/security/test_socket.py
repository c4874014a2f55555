"""The unix socket: its permissions and its group."""

import os
import stat
from pathlib import Path

import pytest

from sidecar.model.errors import StartError
from sidecar.server.sockets import UnixListener
from tests.e2e.harness import Sidecar
from tests.e2e.test_listening import refusal


def another_group() -> int:
    """A group that this user may give a file to."""
    if os.getuid() == 0:
        return 4_770
    others = [group for group in os.getgroups() if group != os.getgid()]
    if not others:
        pytest.skip("this user is in one group only")
    return others[0]


def test_the_socket_belongs_to_the_group_that_is_configured(tmp_path: Path) -> None:
    group = another_group()
    with Sidecar(tmp_path, listen={"socket_group": str(group)}) as sidecar:
        found = sidecar.socket.stat()
        assert found.st_gid == group
        assert stat.S_IMODE(found.st_mode) == 0o660


def test_a_group_that_there_is_not_is_refused(tmp_path: Path) -> None:
    said = refusal(Sidecar(tmp_path, listen={"socket_group": "no-such-group"}))
    assert said == "listen.socket_group: no-such-group is not a group of this machine; use a name of one, or a number"


def test_a_group_that_the_user_is_not_in_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Server:
        def add_insecure_port(self, address: str) -> int:
            Path(address.removeprefix("unix:")).touch()
            return 0

    def refuse(path: Path, user: int, group: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    # Root may give a file to any group, and tests are often root's.
    monkeypatch.setattr(os, "chown", refuse)
    listener = UnixListener(str(tmp_path / "s"), 0o660, "4770")
    with pytest.raises(StartError, match=r"listen.socket_group: 4770: the sidecar's user \d+ cannot give the socket"):
        listener.prepare(Server())  # type: ignore[arg-type]
    listener.close()


def test_the_socket_is_never_open_wider_than_configured(tmp_path: Path) -> None:
    """gRPC makes it in a folder that is closed to others, and it gets its place with its final permissions."""
    seen: list[tuple[int, int]] = []

    class Server:
        def add_insecure_port(self, address: str) -> int:
            path = Path(address.removeprefix("unix:"))
            os.mknod(path, stat.S_IFSOCK | 0o777)
            seen.append((stat.S_IMODE(path.parent.stat().st_mode), len(list(tmp_path.glob("s")))))
            return 0

    listener = UnixListener(str(tmp_path / "s"), 0o600)
    listener.prepare(Server())  # type: ignore[arg-type]
    # While it is made: a folder for its owner alone, and nothing in its place yet.
    assert seen == [(0o700, 0)]
    listener.show()
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
    listener.close()

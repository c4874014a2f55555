"""The unix socket: its permissions, its group, and its folder, in which other users may do as they like."""

import asyncio
import os
import shutil
import signal
import socket
import stat
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import grpc
import pytest

from offramp.v1 import record_pb2
from sidecar.model.errors import StartError
from sidecar.server.unix_socket import UnixSocket
from tests.e2e.harness import Sidecar, Worker, eventually
from tests.e2e.test_listening import refusal
from tests.security.kit import attacking, status
from tests.security.swapper import private_folder

#: starts of a listener while an app swaps names
ROUNDS = 2_000 if os.environ.get("OFFRAMP_TEST_LONG") else 150
LOST = "the socket was removed or replaced, and is bound again"


def bind(path: str) -> None:
    """What gRPC does with a path. The socket stays bound for as long as the file exists."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(path)


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
    def refuse(path: Path, user: int, group: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    # Root may give a file to any group, and tests are often root's.
    monkeypatch.setattr(os, "chown", refuse)
    listener = UnixSocket(str(tmp_path / "s"), 0o660, "4770")
    with pytest.raises(StartError, match=r"listen.socket_group: 4770: the sidecar's user \d+ cannot give the socket"):
        listener.prepare(bind)
    listener.close()
    assert [path.name for path in tmp_path.iterdir()] == ["s.lock"]


def test_the_socket_is_never_open_wider_than_configured(tmp_path: Path) -> None:
    """gRPC makes it in a folder that is closed to others, and it gets its place with its final permissions."""
    seen: list[tuple[int, int]] = []

    def look(path: str) -> None:
        bind(path)
        os.chmod(path, 0o777)
        seen.append((stat.S_IMODE(Path(path).parent.stat().st_mode), len(list(tmp_path.glob("s")))))

    listener = UnixSocket(str(tmp_path / "s"), 0o600)
    listener.prepare(look)
    # While it is made: a folder for its owner alone, and nothing in its place yet.
    assert seen == [(0o700, 0)]
    listener.show()
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
    listener.close()
    assert [path.name for path in tmp_path.iterdir()] == ["s.lock"]


# What an app may do to the folder


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_in_place_of_the_lock_file_does_not_reach_the_database(
    tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    with Sidecar(tmp_path) as sidecar:
        sidecar.publish("orders", [b"%d" % number for number in range(1_000)])
        sidecar.kill()
        lock = tmp_path / "offramp.sock.lock"
        lock.unlink()
        link(tmp_path / "offramp-data" / "offramp.db", lock)
        assert "offramp.sock.lock" in refusal(sidecar)
        lock.unlink()
        sidecar.start()
        assert eventually(lambda: sum(lane.lag for lane in sidecar.status().lanes)) == 1_000


@pytest.mark.parametrize("name", ["s", "s.lock", private_folder("s")])
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_in_place_of_anything_that_a_start_uses_is_refused(
    tmp_path: Path, name: str, link: Callable[[Path, Path], None]
) -> None:
    victim, shared = tmp_path / "victim", tmp_path / "shared"
    shared.mkdir()
    victim.write_text("precious")
    victim.chmod(0o640)
    listener = UnixSocket(str(shared / "s"), 0o666, str(os.getgid()))
    link(victim, shared / name)
    with pytest.raises(StartError):
        listener.prepare(bind)
    listener.close()
    assert (victim.read_text(), stat.S_IMODE(victim.stat().st_mode)) == ("precious", 0o640)
    (shared / name).unlink()
    listener.prepare(bind)
    listener.show()
    assert stat.S_IMODE((shared / "s").lstat().st_mode) == 0o666
    listener.close()


def test_a_folder_of_the_sidecar_that_was_moved_to_the_name_of_the_private_one_is_not_emptied(tmp_path: Path) -> None:
    listener = UnixSocket(str(tmp_path / "s"), 0o660)
    moved = tmp_path / private_folder("s")
    moved.mkdir(0o700)
    (moved / "offramp.db").write_text("precious")
    with pytest.raises(StartError):
        listener.prepare(bind)
    listener.close()
    assert (moved / "offramp.db").read_text() == "precious"


def swapping(shared: Path, victims: Path, user: int) -> AbstractContextManager[Callable[[], bytes]]:
    """An app that swaps names. The function yielded returns when it has swapped a hundred more."""
    return attacking("tests.security.swapper", shared, victims, "s", user)


def contents(folder: Path) -> dict[str, tuple[object, ...]]:
    """Everything about the files of a folder that an attack could have changed."""
    found = {}
    for path in [folder, *folder.iterdir()]:
        now = path.lstat()
        text = path.read_text() if path.is_file() else ""
        found[path.name] = (now.st_mode, now.st_uid, now.st_gid, now.st_ino, text)
    return found


async def starts(path: Path) -> bool:
    """Whether a server of gRPC could take the path; it ends at once."""
    listener = UnixSocket(str(path), 0o666, str(os.getgid()))
    server = grpc.aio.server()
    try:
        listener.prepare(lambda where: server.add_insecure_port(f"unix:{where}"))
        await server.start()
        listener.show()
        listener.keep()
    except StartError:
        return False
    finally:
        await server.stop(None)
        listener.close()
    return True


@pytest.mark.parametrize("user", ["the same", "another"])
def test_an_app_that_swaps_names_during_the_start_reaches_no_file_of_the_sidecar(user: str) -> None:
    if user == "another" and os.getuid() != 0:
        pytest.skip("only root can be another user")
    # Not in `tmp_path`, which is closed to other users.
    folder = Path(tempfile.mkdtemp(prefix="offramp-"))
    victims, shared = folder / "victims", folder / "shared"
    victims.mkdir(0o700)
    shared.mkdir()
    folder.chmod(0o755)
    shared.chmod(0o777)
    for name in ("database", "key"):
        (victims / name).write_text(f"precious {name}")
        (victims / name).chmod(0o640)
    before = contents(victims)
    started: list[bool] = []
    try:
        with swapping(shared, victims, 65_534 if user == "another" else os.getuid()) as swapped:
            for _ in range(ROUNDS):
                assert swapped(), "the app has ended"
                started.append(asyncio.run(starts(shared / "s")))
                assert contents(victims) == before
        assert set(started) == {True, False}, "some starts met what they needed, and some a name that was swapped"
    finally:
        shutil.rmtree(folder)


# A socket that is lost


def holding(sidecar: Sidecar) -> Worker:
    """A worker that has a batch, and settles it when told."""
    sidecar.publish("orders", [b"first"])
    worker = Worker(sidecar, "settle")
    worker.event("welcome")
    worker.event("batch")
    return worker


def remove(sidecar: Sidecar) -> None:
    sidecar.socket.unlink()


def replace_by_a_dead_socket(sidecar: Sidecar) -> None:
    sidecar.socket.unlink()
    bind(str(sidecar.socket))


def remove_with_the_lock(sidecar: Sidecar) -> None:
    sidecar.socket.unlink()
    sidecar.socket.with_name("offramp.sock.lock").unlink()


def remove_the_folder(sidecar: Sidecar) -> None:
    shutil.rmtree(sidecar.socket.parent)


LOSSES = (remove, replace_by_a_dead_socket, remove_with_the_lock, remove_the_folder)


def test_a_socket_that_was_removed_or_replaced_is_bound_again_and_nobody_loses_a_batch(tmp_path: Path) -> None:
    with Sidecar(tmp_path, socket=tmp_path / "run" / "offramp.sock") as sidecar, holding(sidecar) as worker:
        for number, lose in enumerate(LOSSES, 1):
            lose(sidecar)
            eventually(lambda n=number: [e["message"] for e in sidecar.events()].count(LOST) == n, lose.__name__)
            with sidecar.channel() as channel:
                (said,) = status(channel, "").trouble
            assert f"{sidecar.socket} (listen.socket) was removed or replaced" in said
            assert sidecar.get("/healthz")[0] == 200
        # The worker is still connected: by a socket that is long gone.
        worker.tell()
        assert worker.event("result")["status"] == record_pb2.SETTLE_STATUS_SETTLED
        assert stat.S_IMODE(sidecar.socket.stat().st_mode) == 0o660
        assert sidecar.terminate() == 0
        assert [path.name for path in sidecar.socket.parent.iterdir()] == ["offramp.sock.lock"]


def test_a_socket_that_is_removed_again_and_again_leaves_nothing_open(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar:
        before = sidecar.metric("process_open_fds")
        for number in range(1, 5):
            sidecar.socket.unlink()
            eventually(lambda n=number: [e["message"] for e in sidecar.events()].count(LOST) == n)
        eventually(lambda: sidecar.metric("process_open_fds") <= before)


@pytest.mark.parametrize("put", [Path.mkdir, lambda path: path.symlink_to("aside")])
def test_a_socket_that_cannot_be_bound_again_fails_the_liveness_probe_until_it_can(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    with Sidecar(tmp_path) as sidecar:
        # Still there, under another name.
        sidecar.socket.rename(tmp_path / "aside")
        put(sidecar.socket)
        code, said = eventually(lambda: (found := sidecar.get("/healthz"))[0] != 200 and found)
        assert code == 500
        assert "a file of that name exists, and it is not a socket" in said
        sidecar.socket.rename(tmp_path / "in-the-way")
        eventually(lambda: sidecar.get("/healthz")[0] == 200)
        with sidecar.channel() as channel:
            assert status(channel, "").subscriptions


def test_a_sidecar_whose_socket_another_one_has_taken_does_not_take_it_back(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as first:
        # Stopped, so that it is the other one that is first to take the free place.
        first.signal(signal.SIGSTOP)
        remove_with_the_lock(first)
        with Sidecar(tmp_path, name="second", socket=first.socket) as second:
            first.signal(signal.SIGCONT)
            eventually(lambda: f"is held by another sidecar, process {second.pid}" in first.get("/healthz")[1])
            assert second.publish("orders", [b"1"])
            assert second.metric("offramp_refused_calls_total") == 0
        eventually(lambda: first.get("/healthz")[0] == 200)
        assert first.publish("orders", [b"1"])

"""Sockets, ports and locks: one sidecar at a time, whatever the one before left behind."""

import os
import signal
import socket
import stat
from pathlib import Path

import pytest

from tests.e2e.harness import Sidecar, Worker, eventually


def refusal(sidecar: Sidecar) -> str:
    """Why it does not start."""
    sidecar.launch()
    assert sidecar.wait() == 1
    error: str = sidecar.event("cannot start")["error"]
    return error


def still_serves(sidecar: Sidecar) -> bool:
    sidecar.publish("orders", [b"1"])
    with Worker(sidecar, "open") as worker:
        return bool(worker.batch())


def test_a_second_sidecar_on_the_same_socket_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as first:
        second = Sidecar(tmp_path, name="second", listen={"socket": str(first.socket)})
        error = refusal(second)
        assert str(first.socket) in error
        assert f"process {first.pid}" in error
        assert still_serves(first)


@pytest.mark.parametrize("setting", ["http.address", "listen.tcp"])
def test_a_second_sidecar_on_the_same_port_is_refused_and_told_who_holds_it(tmp_path: Path, setting: str) -> None:
    with Sidecar(tmp_path, listen={"tcp": "127.0.0.1:0"}) as first:
        ready = first.event("ready")
        section, key = setting.split(".")
        address = ready["http"] if section == "http" else ready["tcp"]
        second = Sidecar(tmp_path, name="second", **{section: {key: address}})
        error = refusal(second)
        assert setting in error
        assert address in error
        assert f"process {first.pid}" in error
        assert still_serves(first)


def test_a_second_sidecar_on_the_same_data_directory_is_refused(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as first:
        second = Sidecar(tmp_path, name="second", brokers=first.settings["brokers"])
        assert str(tmp_path / "offramp-data") in refusal(second)
        assert not second.socket.exists()
        assert still_serves(first)


def test_two_sidecars_side_by_side_stop_without_disturbing_each_other(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as first, Sidecar(tmp_path, name="second") as second:
        assert first.terminate() == 0
        assert not first.socket.exists()
        assert still_serves(second)
        first.start()
        second.kill()
        assert still_serves(first)


def test_a_socket_left_by_a_killed_sidecar_is_replaced(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar:
        sidecar.kill()
        assert sidecar.socket.exists()
        sidecar.start()
        assert still_serves(sidecar)


def test_a_clean_stop_leaves_no_socket_and_nothing_but_the_lock(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar:
        assert sidecar.terminate() == 0
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {"offramp.yaml", "offramp.log", "offramp-data", "offramp.sock.lock"}


def test_a_file_that_is_not_a_socket_is_never_replaced(tmp_path: Path) -> None:
    sidecar = Sidecar(tmp_path)
    sidecar.socket.write_text("precious")
    assert "not a socket" in refusal(sidecar)
    assert sidecar.socket.read_text() == "precious"


def test_a_socket_of_another_program_is_not_taken_away(tmp_path: Path) -> None:
    sidecar = Sidecar(tmp_path)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(sidecar.socket))
        other.listen()
        assert "in use by another program" in refusal(sidecar)


@pytest.mark.parametrize(("mode", "expected"), [("0660", 0o660), ("0600", 0o600), ("0666", 0o666)])
def test_the_socket_has_the_permissions_that_are_configured(tmp_path: Path, mode: str, expected: int) -> None:
    with Sidecar(tmp_path, listen={"socket_mode": mode}) as sidecar:
        assert stat.S_IMODE(sidecar.socket.stat().st_mode) == expected


def test_the_folder_of_the_socket_is_made(tmp_path: Path) -> None:
    path = tmp_path / "run" / "offramp" / "a.sock"
    with Sidecar(tmp_path, listen={"socket": str(path)}):
        assert stat.S_ISSOCK(path.stat().st_mode)


def test_a_path_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * (106 - len(str(tmp_path))))
    sidecar = Sidecar(tmp_path, listen={"admin_socket": str(folder / "s")})
    assert "(listen.admin_socket): its path is too long by 2 bytes" in refusal(sidecar)


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_refused_with_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    sidecar = Sidecar(tmp_path, listen={"socket": str(folder / "s")})
    assert str(folder) in refusal(sidecar)


def test_signals_during_the_start_do_not_leave_anything_behind(tmp_path: Path) -> None:
    sidecar = Sidecar(tmp_path)
    sidecar.launch()
    eventually(lambda: sidecar.socket.with_name("offramp.sock.lock").exists() or sidecar.process.poll() is not None)
    sidecar.signal(signal.SIGTERM)
    assert sidecar.wait() == 0
    assert not sidecar.socket.exists()
    with sidecar:
        assert still_serves(sidecar)

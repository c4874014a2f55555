"""A server whose socket is lost, within one process. tests/security/test_socket.py has whole sidecars."""

import os
from pathlib import Path

import grpc
import grpc.aio
import pytest

from sidecar.server.grpc.socket_server import SocketServer
from sidecar.server.unix_socket import UnixSocket
from tests.event_loop import on_event_loop


async def connects(path: Path) -> bool:
    async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
        await channel.channel_ready()
        return True


@on_event_loop
async def test_attempts_to_bind_again_that_fail_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    path = tmp_path / "s"
    server = SocketServer(UnixSocket(str(path), 0o660, str(os.getgid())), grpc.aio.server)
    server.prepare()
    await server.open()
    await server.check()
    assert not server.notice
    os.unlink(path)
    monkeypatch.setattr(os, "chown", refuse)
    await server.check()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await server.check()
    assert len(os.listdir("/proc/self/fd")) == before
    assert "cannot give the socket to it" in server.trouble
    monkeypatch.undo()
    await server.check()
    assert not server.trouble
    assert "was removed or replaced at" in server.notice
    assert await connects(path)
    await server.stop(None)
    server.close()
    assert os.listdir(tmp_path) == ["s.lock"]

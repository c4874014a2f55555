"""A quota that is used up. SQLite reports it like a disk that fails, and the embedded broker tells them apart."""

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from sidecar.brokers.base import Trouble
from sidecar.brokers.local.catalog import LaneView
from sidecar.brokers.local.writer import Store
from sidecar.model.errors import OutOfRoom, StartError, Unavailable
from sidecar.model.records import Commit, Lane
from tests.brokers.harness import consuming, publish
from tests.brokers.local.harness import running
from tests.event_loop import on_event_loop

LANE = Lane("topic", 0)


class FailingDisk:
    """From `fail` on, no transaction can be written while the reserve exists, and no space can be allocated: the file
    system reports `code`."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._reserve = folder / "offramp.reserve"
        self._patch = patch
        self._commit = Store.commit

    def fail(self, code: int) -> None:
        def no_room(handle: int, offset: int, size: int) -> None:
            raise OSError(code, os.strerror(code))

        self._patch.setattr(os, "posix_fallocate", no_room)
        self._patch.setattr(Store, "commit", lambda store: self._written(store))

    def _written(self, store: Store) -> list[LaneView]:
        if self._reserve.exists():
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
            raise error
        return self._commit(store)


@on_event_loop
async def test_a_quota_that_is_used_up_is_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as broker, consuming(broker, "topic") as consumer:
        await publish(broker, "topic", b"before")
        await consumer.take(1)
        FailingDisk(tmp_path, monkeypatch).fail(errno.EDQUOT)
        with pytest.raises(OutOfRoom, match="is full: nothing can be published, settling continues"):
            await publish(broker, "topic", b"refused")
        assert not (tmp_path / "offramp.reserve").exists()
        assert not (tmp_path / "offramp.probe").exists()
        await consumer.commit(LANE, Commit(1))
        monkeypatch.undo()
        await consumer.until(lambda: Trouble("disk", "") in consumer.events)
        await publish(broker, "topic", b"again")
        assert (await consumer.take(2))[-1] == b"again"


@on_event_loop
async def test_a_disk_that_fails_does_not_count_as_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as broker:
        await publish(broker, "topic", b"before")
        FailingDisk(tmp_path, monkeypatch).fail(errno.EIO)
        with pytest.raises(Unavailable, match="disk I/O error") as raised:
            await publish(broker, "topic", b"refused")
        assert not isinstance(raised.value, OutOfRoom)
        assert not broker.trouble
        assert (tmp_path / "offramp.reserve").exists()
        monkeypatch.undo()
        await publish(broker, "topic", b"again")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@on_event_loop
async def test_the_broker_opens_without_space_for_the_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    FailingDisk(tmp_path, monkeypatch).fail(code)
    async with running(tmp_path) as broker, consuming(broker, "topic") as consumer:
        await consumer.until(lambda: broker.trouble)


@on_event_loop
async def test_any_other_failure_to_make_the_reserve_is_refused_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "offramp.reserve").mkdir()
    with pytest.raises(StartError, match=r"cannot be used: Is a directory: .*offramp\.reserve"):
        async with running(tmp_path):
            pass


@on_event_loop
async def test_the_reserve_is_written_where_the_file_system_cannot_allocate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FailingDisk(tmp_path, monkeypatch).fail(errno.EOPNOTSUPP)
    async with running(tmp_path):
        assert (tmp_path / "offramp.reserve").stat().st_blocks * 512 >= 1 << 20

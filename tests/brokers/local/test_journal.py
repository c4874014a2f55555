"""The size of the journal of the embedded broker."""

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from sidecar.brokers.local import writer
from sidecar.brokers.local.schema import open_reader
from tests.brokers.harness import publish
from tests.brokers.local.harness import running
from tests.event_loop import on_event_loop

MIB = 1 << 20


@on_event_loop
async def test_the_journal_stays_small_while_there_is_always_a_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine an attempt may meet a reader that takes too long; the next one does not.
    monkeypatch.setattr(writer, "_JOURNAL_RETRY_INTERVAL", 0.0)
    async with running(tmp_path, lanes=1, reserve_bytes=MIB) as broker:
        done = threading.Event()
        readers = asyncio.create_task(asyncio.to_thread(_read_all_the_time, tmp_path / "offramp.db", done))
        sizes = []
        for _ in range(80):
            await publish(broker, "topic", bytes(100_000))
            sizes.append((tmp_path / "offramp.db-wal").stat().st_size)
        done.set()
        await readers
        assert max(sizes) < 3 * MIB


@on_event_loop
async def test_a_reader_that_never_ends_does_not_keep_others_from_publishing(tmp_path: Path) -> None:
    async with running(tmp_path, lanes=1, reserve_bytes=MIB) as broker:
        reader = open_reader(tmp_path / "offramp.db")
        _begin(reader)
        async with asyncio.timeout(10.0):
            for _ in range(80):
                await publish(broker, "topic", bytes(100_000))
        reader.close()


def _read_all_the_time(path: Path, done: threading.Event) -> None:
    """Two readers in turn, so that at any moment one of them reads, and none for long."""
    one, other = open_reader(path), open_reader(path)
    _begin(one)
    while not done.is_set():
        _begin(other)
        one.execute("ROLLBACK")
        one, other = other, one
    one.close()
    other.close()


def _begin(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM topics").fetchall()

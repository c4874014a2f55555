"""The journal of the embedded broker: how long it gets."""

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from sidecar.brokers.local import writer
from sidecar.brokers.local.schema import open_reader
from tests.brokers.local import play, publish, running

MIB = 1 << 20


def test_the_journal_keeps_to_the_reserve_while_readers_take_turns_without_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine now and then one try meets a reader that does not come to its end; the next one does not.
    monkeypatch.setattr(writer, "_JOURNAL_RETRY", 0.0)

    async def body() -> None:
        async with running(tmp_path, lanes=1, reserve_bytes=MIB) as broker:
            done = threading.Event()
            turns = asyncio.create_task(asyncio.to_thread(_take_turns, tmp_path / "offramp.db", done))
            sizes = []
            for _ in range(80):
                await publish(broker, "topic", bytes(100_000))
                sizes.append((tmp_path / "offramp.db-wal").stat().st_size)
            done.set()
            await turns
            assert max(sizes) < 3 * MIB

    play(body)


def test_a_reader_that_lingers_does_not_keep_others_from_publishing(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, lanes=1, reserve_bytes=MIB) as broker:
            lingering = open_reader(tmp_path / "offramp.db")
            _begin(lingering)
            async with asyncio.timeout(10.0):
                for _ in range(80):
                    await publish(broker, "topic", bytes(100_000))
            lingering.close()

    play(body)


def _take_turns(path: Path, done: threading.Event) -> None:
    """At any moment somebody reads, nobody for long."""
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

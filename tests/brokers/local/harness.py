"""The embedded broker for the shared suites, and helpers for tests of it alone."""

import contextlib
import shutil
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from sidecar.brokers.local import LocalBroker, LocalOptions
from sidecar.model.clock import Clock
from sidecar.model.records import Lane
from sidecar.settings import Bytes
from tests.brokers.harness import BrokerPerSidecar, read

MINUTE_MS = 60_000


class SetClock(Clock):
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def wall_ms(self) -> int:
        return self.ms


class LocalHarness(BrokerPerSidecar[LocalBroker]):
    """The embedded broker with real files, for one sidecar at a time."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    async def crash(self) -> LocalBroker:
        """Continues with a copy of the files as they are on disk now; the old broker is not closed before that."""
        after = self._folder.with_name(self._folder.name + "-again")
        # In the writer thread, so that the copy is consistent.
        await self._brokers[-1].write(lambda store: _copy(self._folder, after))
        self._folder = after
        return await self.start()

    async def sibling(self) -> LocalBroker:
        return self._brokers[-1]

    def _create(self) -> LocalBroker:
        return LocalBroker(LocalOptions(directory=str(self._folder), reserve_bytes=Bytes(1 << 20)))


def _copy(before: Path, after: Path) -> None:
    # Without the shared-memory file: it dies with the process and is rebuilt from the journal.
    shutil.copytree(before, after, ignore=shutil.ignore_patterns("*-shm", "*.lock", "*.reserve"))


@contextlib.asynccontextmanager
async def running(directory: Path, clock: Clock | None = None, **options: Any) -> AsyncIterator[LocalBroker]:
    """An open broker."""
    broker = LocalBroker(LocalOptions(directory=str(directory), **{"reserve_bytes": 1 << 20, **options}), clock)
    await broker.open()
    try:
        yield broker
    finally:
        await broker.close()


async def positions(broker: LocalBroker) -> dict[str, dict[Lane, int]]:
    """The stored positions of each group."""
    rows = await broker.read_with(
        lambda connection: connection.execute(
            "SELECT groups.name, topics.name, lanes.number, position FROM cursors "
            'JOIN groups ON groups.id = "group" JOIN lanes ON lanes.id = lane JOIN topics ON topics.id = topic'
        ).fetchall()
    )
    found: dict[str, dict[Lane, int]] = {}
    for group, topic, number, position in rows:
        found.setdefault(group, {})[Lane(topic, number)] = position
    return found


async def stored(broker: LocalBroker, topic: str, lane: int = 0) -> list[bytes | None]:
    """The values of a lane."""
    return await read(broker, Lane(topic, lane))


def execute(directory: Path, statement: str) -> None:
    """Changes the database, which no broker may have open."""
    with contextlib.closing(sqlite3.connect(directory / "offramp.db")) as connection, connection:
        connection.execute(statement)

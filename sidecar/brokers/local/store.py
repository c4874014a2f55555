"""Everything that writes, on one connection, within a transaction."""

import sqlite3
from collections.abc import Sequence

from sidecar.brokers.local.appending import Appender
from sidecar.brokers.local.catalog import Catalog, LaneChange
from sidecar.brokers.local.cursors import Cursors
from sidecar.brokers.local.options import LocalOptions
from sidecar.brokers.local.retention import Retention
from sidecar.model.clock import Clock
from sidecar.model.records import Message, Place


class Store:
    """The writer's side of the database. Synchronous; used by one thread.

    Everything happens between `begin` and `commit` or `rollback`. After a rollback it is as after the last commit.
    """

    cursors: Cursors
    retention: Retention

    def __init__(self, connection: sqlite3.Connection, options: LocalOptions, clock: Clock) -> None:
        self._connection = connection
        self._options = options
        self._clock = clock
        self._load()

    def begin(self) -> None:
        if self._is_stale:
            self._load()
        self._connection.execute("BEGIN IMMEDIATE")

    def reload(self) -> None:
        """Somebody else may have written: what is known of the lanes may be behind the disk."""
        self._load()

    def commit(self) -> list[LaneChange]:
        """Returns once everything is on the disk, with the lanes that changed."""
        self._appender.flush()
        self._connection.execute("COMMIT")
        return self._catalog.changes()

    def rollback(self) -> None:
        # What is known of the lanes ran ahead of the disk: it is read again before anything else is done.
        self._is_stale = True
        # A full disk makes the database roll back by itself.
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def append(self, topic: str, messages: Sequence[Message]) -> list[Place]:
        return self._appender.append(topic, messages)

    def ensure_topic(self, topic: str, lanes: int) -> None:
        self._catalog.ensure(topic, lanes)

    def add_lanes(self, topic: str, lanes: int) -> None:
        self.cursors.adopt(topic, self._catalog.add_lanes(topic, lanes))

    def retire(self) -> bool:
        """One step of retention. True: there may be more to do."""
        return self.retention.step(self._clock.wall_ms())

    def lanes(self) -> list[LaneChange]:
        return self._catalog.everything()

    def close(self) -> None:
        self._connection.close()

    def _load(self) -> None:
        self._catalog = Catalog(self._connection)
        self._appender = Appender(self._connection, self._catalog, self._clock, self._options.lanes)
        self.cursors = Cursors(self._connection, self._catalog, self._options.lanes)
        self.retention = Retention(self._connection, self._catalog, self.cursors, self._options)
        self._is_stale = False

"""The threads that read."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from sidecar.brokers.local.faults import translate
from sidecar.brokers.local.schema import open_reader

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = 4


class Readers:
    """A few threads with a connection each. They see what is committed, and never wait for the writer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._pool = ThreadPoolExecutor(_THREADS, "offramp-local-reader")

    async def run(self, read: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`read` with a connection, in a thread. Raises `Unavailable` or `Corrupt`."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: self._run(read, *args, **kwargs))

    def close(self) -> None:
        """Waits for what is being read."""
        self._pool.shutdown()
        for connection in self._connections:
            connection.close()

    def _run(self, read: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            connection = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._local.connection = open_reader(self._path)
                self._connections.append(connection)
            return read(connection, *args, **kwargs)
        except sqlite3.Error as error:
            raise translate(error, self._path) from error

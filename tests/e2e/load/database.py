"""Reads the SQLite file of the embedded broker. Shares no code with the sidecar.

May be read at any time, also while a sidecar writes.
"""

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from offramp.v1 import record_pb2


class Cursor(NamedTuple):
    """The position of a group in a lane: runs of settled positions, the first from 0 on."""

    topic: str
    lane: int
    runs: tuple[tuple[int, int], ...]


class Database:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "offramp.db"

    def cursors(self, group: str) -> list[Cursor]:
        """Of a group, in all its lanes. Raises `OSError` while it cannot be read, as everything here."""
        with self._reading() as database:
            rows = database.execute(
                "SELECT topics.name, number, position, beyond FROM cursors JOIN lanes ON lanes.id = lane "
                'JOIN topics ON topics.id = topic JOIN groups ON groups.id = "group" WHERE groups.name = ?',
                (group,),
            ).fetchall()
        return [
            Cursor(topic, lane, ((0, position), *struct.iter_unpack("<qq", beyond)))
            for topic, lane, position, beyond in rows
        ]

    def ends(self) -> dict[tuple[str, int], int]:
        """Where each lane of each topic ends."""
        with self._reading() as database:
            rows = database.execute(
                "SELECT topics.name, number, coalesce((SELECT max(stop) FROM blocks WHERE lane = lanes.id), start) "
                "FROM lanes JOIN topics ON topics.id = topic"
            ).fetchall()
        return {(topic, lane): end for topic, lane, end in rows}

    def records(self, topic: str) -> Iterator[record_pb2.Record]:
        """Of a topic, if there is one."""
        with self._reading() as database:
            rows = database.execute(
                "SELECT lengths, frames FROM blocks JOIN lanes ON lanes.id = lane JOIN topics ON topics.id = topic "
                "WHERE name = ? ORDER BY number, blocks.start",
                (topic,),
            ).fetchall()
        for lengths, frames in rows:
            at = 0
            for (length,) in struct.iter_unpack("<I", lengths):
                # A frame is a record as it stands in a batch.
                (record,) = record_pb2.Batch.FromString(frames[at : at + length]).records
                yield record
                at += length

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            database = sqlite3.connect(f"{self._path.resolve().as_uri()}?mode=ro", uri=True, timeout=5.0)
            try:
                yield database
            finally:
                database.close()
        except sqlite3.Error as error:
            raise OSError(f"{self._path}: {error}") from error


def headers_of(record: record_pb2.Record) -> dict[str, str]:
    return {header.name: header.value.decode() for header in record.headers}

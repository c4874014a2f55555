"""Groups, and their cursors in lanes."""

import sqlite3
from collections.abc import Iterable, Mapping
from itertools import pairwise
from struct import pack, unpack
from typing import NamedTuple

from sidecar.brokers.base import SourceSpec
from sidecar.brokers.fencing import Attached, check_token, next_token
from sidecar.brokers.local.catalog import Catalog, StoredLane
from sidecar.brokers.local.queries import attached_to
from sidecar.brokers.local.sqlite_errors import MalformedRow, check_row
from sidecar.model.errors import NotFound
from sidecar.model.records import Commit, Lane, Run, Start


class OpenedGroup(NamedTuple):
    """A group that is ready to be consumed."""

    id: int
    cursors: dict[Lane, Commit]
    #: lanes in which it had no cursor before
    new: set[Lane]


class Groups:
    def __init__(self, connection: sqlite3.Connection, catalog: Catalog, lanes: int) -> None:
        self._connection = connection
        self._catalog = catalog
        self._lanes = lanes

    def open(self, spec: SourceSpec) -> OpenedGroup:
        """A group's cursors in all lanes of its topics. Missing topics and cursors are created."""
        for topic, count in spec.own_topics.items():
            self._catalog.ensure(topic, count)
        group = self._ensure(spec.group)
        cursors: dict[Lane, Commit] = {}
        pinned: dict[int, Commit] = {}
        new: set[Lane] = set()
        for topic in dict.fromkeys((*spec.topics, *spec.own_topics)):
            lanes = self._catalog.ensure(topic, self._lanes)
            known = {lane.id: self._find(group, lane.id) for lane in lanes}
            # `latest` skips what was there before the group. Lanes that are added later are read from their start.
            is_new = all(commit is None for commit in known.values())
            latest = is_new and spec.start is Start.LATEST and topic not in spec.own_topics
            for lane in lanes:
                commit = known[lane.id]
                if commit is None:
                    commit = pinned[lane.id] = Commit(lane.end.position if latest else lane.start)
                    new.add(lane.lane)
                cursors[lane.lane] = commit
        self.save(group, pinned)
        return OpenedGroup(group, cursors, new)

    def save(self, group: int, commits: Mapping[int, Commit]) -> None:
        """Stores a group's cursors, by the ids of their lanes."""
        if not commits:
            return
        places = ", ".join(["(?, ?, ?, ?, ?)"] * len(commits))
        values: list[int | bytes | None] = []
        for lane, commit in commits.items():
            values += (lane, group, commit.position, pack_runs(commit.beyond), commit.reach)
        self._connection.execute(
            f'REPLACE INTO cursors (lane, "group", position, beyond, reach) VALUES {places}', values
        )

    def ensure(self, name: str, topics: Iterable[str]) -> int:
        """The id of a group that is read by ranges. It and its topics are created if missing, but no cursors."""
        for topic in topics:
            self._catalog.ensure(topic, self._lanes)
        return self._ensure(name)

    def attach(self, group: int, reader: str, now_ms: int) -> Attached:
        before = attached_to(self._connection, group)
        attached = Attached(next_token(before.token if before else 0, now_ms), reader, now_ms)
        self._connection.execute(
            'REPLACE INTO readers ("group", token, name, since_ms) VALUES (?, ?, ?, ?)', (group, *attached)
        )
        return attached

    def pin(self, group: int, token: int, positions: Mapping[int, int]) -> None:
        """Stores positions, by the ids of their lanes, where there are none. Raises `Fenced`, `Refused`."""
        check_token(token, attached_to(self._connection, group), exact=True)
        new = {lane: Commit(position) for lane, position in positions.items() if self._find(group, lane) is None}
        self.save(group, new)

    def advance(self, group: int, token: int, positions: Mapping[int, int]) -> None:
        """Moves positions forward, by the ids of their lanes. Raises `Fenced`, `Refused`."""
        check_token(token, attached_to(self._connection, group), exact=True)
        moved = {}
        for lane, position in positions.items():
            before = self._find(group, lane)
            if before is None or before.position < position:
                moved[lane] = Commit(position)
        self.save(group, moved)

    def join_lanes(self, topic: str, lanes: list[StoredLane]) -> None:
        """Gives every group of a topic a cursor at the start of its new lanes."""
        groups = self._connection.execute(
            'SELECT DISTINCT "group" FROM cursors JOIN lanes ON lanes.id = lane JOIN topics ON topics.id = topic '
            "WHERE name = ?",
            (topic,),
        ).fetchall()
        for (group,) in groups:
            self.save(group, {lane.id: Commit(lane.start) for lane in lanes})

    def delete(self, group: str) -> None:
        """Raises `NotFound`."""
        row = self._find_group(group)
        if row is None:
            known = [name for (name,) in self._connection.execute("SELECT name FROM groups ORDER BY name")]
            raise NotFound(
                f"There is no group {group!r}. There {'is' if len(known) == 1 else 'are'} "
                f"{', '.join(map(repr, known)) or 'none'}."
            )
        self._connection.execute('DELETE FROM cursors WHERE "group" = ?', (row,))
        self._connection.execute('DELETE FROM readers WHERE "group" = ?', (row,))
        self._connection.execute("DELETE FROM groups WHERE id = ?", (row,))

    def low_watermark(self, lane: StoredLane) -> int | None:
        """The position before which every group has settled everything. None: no group has a cursor in the lane."""
        ((position,),) = self._connection.execute(
            "SELECT min(position) FROM cursors WHERE lane = ?", (lane.id,)
        ).fetchall()
        return position if position is None else int(position)

    def _ensure(self, name: str) -> int:
        found = self._find_group(name)
        if found is not None:
            return found
        cursor = self._connection.execute("INSERT INTO groups (name) VALUES (?)", (name,))
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def _find_group(self, name: str) -> int | None:
        row = self._connection.execute("SELECT id FROM groups WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def _find(self, group: int, lane: int) -> Commit | None:
        row = self._connection.execute(
            'SELECT position, beyond, ifnull(reach, -1) FROM cursors WHERE lane = ? AND "group" = ?', (lane, group)
        ).fetchone()
        if row is None:
            return None
        position, beyond, reach = check_row(row, int, bytes, int)
        runs = unpack_runs(beyond)
        if position < 0 or (runs and runs[0].start <= position):
            raise MalformedRow(f"a cursor at {position} has runs from {runs[0].start if runs else position} on")
        return Commit(position, runs, reach if reach >= position else None)


def pack_runs(runs: tuple[Run, ...]) -> bytes:
    return pack(f"<{2 * len(runs)}q", *(edge for run in runs for edge in run))


def unpack_runs(data: bytes) -> tuple[Run, ...]:
    """Raises `MalformedRow`."""
    if len(data) % 16:
        raise MalformedRow(f"{len(data)} bytes are no runs")
    edges = unpack(f"<{len(data) // 8}q", data)
    if any(later <= earlier for earlier, later in pairwise(edges)):
        raise MalformedRow("the runs of a cursor do not ascend")
    return tuple(map(Run, edges[::2], edges[1::2]))

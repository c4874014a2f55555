"""Topics and lanes: as the writer keeps them, and as the event loop sees them."""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from sidecar.brokers.local.blocks import COLUMNS, Block, End, end_after
from sidecar.brokers.local.sqlite_errors import MalformedRow, check_row, check_rows
from sidecar.model.errors import NotFound, Refused
from sidecar.model.records import Lane
from sidecar.observability.logs import Log

log = Log("local")


@dataclass(slots=True)
class StoredLane:
    """A lane as the writer keeps it. `end` is ahead of the database until the transaction is committed."""

    id: int
    lane: Lane
    #: the first position that was not removed
    start: int
    #: bytes of frames ever removed
    removed: int
    end: End

    @property
    def kept_bytes(self) -> int:
        return self.end.written - self.removed


@dataclass(slots=True)
class LaneView:
    """A lane as the event loop sees it, and as the writer reports it after a commit: never ahead of the disk."""

    id: int
    lane: Lane
    start: int
    end: int


class Catalog:
    """Reads the lanes once, and follows what is written. After a rollback, a new one must be made."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._topics: dict[str, list[StoredLane]] = {}
        self._changed: dict[int, StoredLane] = {}
        for (name,) in check_rows(connection.execute("SELECT name FROM topics ORDER BY id").fetchall(), str):
            self._topics[name] = []
        rows = connection.execute(
            "SELECT lanes.id, name, number, start FROM lanes JOIN topics ON topics.id = topic ORDER BY topic, number"
        ).fetchall()
        for lane_id, name, number, start in check_rows(rows, int, str, int, int):
            lanes = self._topics.get(name)
            if lanes is None or number != len(lanes):
                raise MalformedRow(f"topic {name!r} has a lane {number} out of order")
            lanes.append(self._load(lane_id, Lane(name, number), start))

    def topics(self) -> Iterable[list[StoredLane]]:
        return self._topics.values()

    def find(self, topic: str) -> list[StoredLane] | None:
        """The lanes of a topic, by number."""
        return self._topics.get(topic)

    def ensure(self, topic: str, lanes: int, max_topics: int | None = None) -> list[StoredLane]:
        """The lanes of a topic, which is created if it is missing. Raises `Refused` for an invalid name, and if it
        would be one more than `max_topics`."""
        found = self._topics.get(topic)
        if found is not None:
            return found
        if max_topics is not None and len(self._topics) >= max_topics:
            raise Refused(
                f"There is no topic {topic!r}, and publishing does not create it: there are {len(self._topics):,} "
                f"topics, and `max_topics` is {max_topics:,}. Check the name, or raise `max_topics`."
            )
        if not topic or len(topic) > 255 or not topic.isprintable():
            raise Refused(f"{topic!r} cannot be the name of a topic: it takes 1 to 255 printable characters.")
        self._connection.execute("INSERT INTO topics (name) VALUES (?)", (topic,))
        self._topics[topic] = []
        self.add_lanes(topic, lanes)
        log.info(f"created a topic with {lanes} lanes", topic=topic)
        return self._topics[topic]

    def add_lanes(self, topic: str, lanes: int) -> list[StoredLane]:
        """Gives a topic this many lanes in all. Returns the new ones. Lanes are never removed."""
        found = self._topics.get(topic)
        if found is None:
            raise NotFound(f"There is no topic {topic!r}.")
        added = []
        for number in range(len(found), lanes):
            cursor = self._connection.execute(
                "INSERT INTO lanes (topic, number) SELECT id, ? FROM topics WHERE name = ?", (number, topic)
            )
            assert cursor.lastrowid is not None
            lane = StoredLane(cursor.lastrowid, Lane(topic, number), 0, 0, End(cursor.lastrowid, 0, 0))
            self.touch(lane)
            added.append(lane)
        found += added
        return added

    def touch(self, lane: StoredLane) -> None:
        """Marks a lane as changed in this transaction."""
        self._changed[lane.id] = lane

    def pop_changes(self) -> list[LaneView]:
        """The lanes that were marked since the last call."""
        changed = _views(self._changed.values())
        self._changed.clear()
        return changed

    def all_lanes(self) -> list[LaneView]:
        return _views(lane for topic in self._topics.values() for lane in topic)

    def _load(self, lane_id: int, lane: Lane, start: int) -> StoredLane:
        oldest = self._connection.execute(
            "SELECT bytes_before FROM blocks WHERE lane = ? ORDER BY start LIMIT 1", (lane_id,)
        ).fetchone()
        if oldest is None:
            return StoredLane(lane_id, lane, start, 0, End(lane_id, start, 0))
        newest = Block.read(
            self._connection.execute(
                f"SELECT {COLUMNS} FROM blocks WHERE lane = ? ORDER BY start DESC LIMIT 1", (lane_id,)
            ).fetchone()
        )
        # A damaged block must not grow: it would get a valid checksum.
        end = end_after(newest) if newest.is_intact else end_after(newest)._replace(tail=None)
        (removed,) = check_row(oldest, int)
        return StoredLane(lane_id, lane, start, removed, end)


def _views(lanes: Iterable[StoredLane]) -> list[LaneView]:
    return [LaneView(lane.id, lane.lane, lane.start, lane.end.position) for lane in lanes]

"""Topics and lanes as the writer knows them."""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sidecar.brokers.local.blocks import COLUMNS, Block, End, end_after
from sidecar.brokers.local.rows import Malformed, all_typed, typed
from sidecar.model.errors import NotFound, Refused
from sidecar.model.records import Lane
from sidecar.observability.logs import Log

log = Log("local")


@dataclass(slots=True)
class StoredLane:
    """One lane. `end` runs ahead of the database until the transaction is committed."""

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


class LaneChange(NamedTuple):
    """A lane as it is after a commit."""

    id: int
    lane: Lane
    start: int
    end: int


class Catalog:
    """Read once, then kept in step with what is written. After a rollback it must be made anew."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._topics: dict[str, list[StoredLane]] = {}
        self._changed: dict[int, StoredLane] = {}
        for (name,) in all_typed(connection.execute("SELECT name FROM topics ORDER BY id").fetchall(), str):
            self._topics[name] = []
        rows = connection.execute(
            "SELECT lanes.id, name, number, start FROM lanes JOIN topics ON topics.id = topic ORDER BY topic, number"
        ).fetchall()
        for lane_id, name, number, start in all_typed(rows, int, str, int, int):
            lanes = self._topics.get(name)
            if lanes is None or number != len(lanes):
                raise Malformed(f"topic {name!r} has a lane {number} out of turn")
            lanes.append(self._load(lane_id, Lane(name, number), start))

    def topics(self) -> Iterable[list[StoredLane]]:
        return self._topics.values()

    def find(self, topic: str) -> list[StoredLane] | None:
        """The lanes of a topic, by number."""
        return self._topics.get(topic)

    def ensure(self, topic: str, lanes: int) -> list[StoredLane]:
        """The lanes of a topic, which is made if it is missing. Raises `Refused` for an impossible name."""
        found = self._topics.get(topic)
        if found is not None:
            return found
        if not topic or len(topic) > 255 or not topic.isprintable():
            raise Refused(f"{topic!r} cannot be the name of a topic: it takes 1 to 255 printable characters.")
        self._connection.execute("INSERT INTO topics (name) VALUES (?)", (topic,))
        self._topics[topic] = []
        self.add_lanes(topic, lanes)
        log.info(f"made a topic with {lanes} lanes", topic=topic)
        return self._topics[topic]

    def add_lanes(self, topic: str, lanes: int) -> list[StoredLane]:
        """Give a topic so many lanes; answers those that are new. Lanes are never taken away."""
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
        """The lane has changed in this transaction."""
        self._changed[lane.id] = lane

    def changes(self) -> list[LaneChange]:
        """What was touched since the last time."""
        changed = [LaneChange(lane.id, lane.lane, lane.start, lane.end.position) for lane in self._changed.values()]
        self._changed.clear()
        return changed

    def everything(self) -> list[LaneChange]:
        lanes = (lane for topic in self._topics.values() for lane in topic)
        return [LaneChange(lane.id, lane.lane, lane.start, lane.end.position) for lane in lanes]

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
        # A damaged block must not grow: that would give it a checksum that fits.
        end = end_after(newest) if newest.is_intact else end_after(newest)._replace(tail=None)
        (removed,) = typed(oldest, int)
        return StoredLane(lane_id, lane, start, removed, end)

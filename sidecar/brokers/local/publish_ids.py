"""The deduplication ids of what was published lately."""

import sqlite3
from collections.abc import Iterable

from sidecar.model.records import Place

#: milliseconds for which an id is remembered: longer than anyone tries to publish the same message
REMEMBERED_MS = 3_600_000
#: ids forgotten in one transaction
_STEP = 1_000
#: ids of one SQL statement
_ROWS = 200


class PublishIds:
    """Written in the transaction of the messages, so that either both are durable or neither is."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def find(self, topic: str, ids: Iterable[str]) -> dict[str, Place]:
        """Where messages with these ids are, as far as there are any."""
        wanted = [*ids]
        found: dict[str, Place] = {}
        for at in range(0, len(wanted), _ROWS):
            some = wanted[at : at + _ROWS]
            marks = ", ".join("?" * len(some))
            rows = self._connection.execute(
                f"SELECT id, lane, position FROM publish_ids WHERE topic = ? AND id IN ({marks})", (topic, *some)
            )
            found |= {id_: Place(lane, position) for id_, lane, position in rows.fetchall()}
        return found

    def add(self, topic: str, placed: Iterable[tuple[str, Place]], now_ms: int) -> None:
        self._connection.executemany(
            "INSERT INTO publish_ids (topic, id, lane, position, written_ms) VALUES (?, ?, ?, ?, ?)",
            [(topic, id_, place.lane, place.position, now_ms) for id_, place in placed],
        )

    def forget(self, now_ms: int) -> bool:
        """Removes some old ids. True: there may be more."""
        removed = self._connection.execute(
            "DELETE FROM publish_ids WHERE (topic, id) IN "
            "(SELECT topic, id FROM publish_ids WHERE written_ms < ? LIMIT ?)",
            (now_ms - REMEMBERED_MS, _STEP),
        )
        return removed.rowcount == _STEP

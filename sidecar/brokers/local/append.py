"""Appending messages to lanes."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from zlib import crc32

from sidecar.brokers.local.blocks import COLUMNS, Block, build, end_after
from sidecar.brokers.local.catalog import Catalog, StoredLane
from sidecar.brokers.local.options import LocalOptions
from sidecar.brokers.local.publish_ids import PublishIds
from sidecar.model.clock import Clock
from sidecar.model.errors import Refused
from sidecar.model.records import Message, Place
from sidecar.model.wire import encode_frame

#: rows of one SQL statement
_ROWS = 64


@dataclass(slots=True)
class _Staged:
    """What a transaction appends to one lane."""

    lane: StoredLane
    #: the next position
    position: int
    frames: list[bytes] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)


class Appender:
    """Stages the messages of one transaction, so that a lane gets few large blocks and the database few statements."""

    def __init__(self, connection: sqlite3.Connection, catalog: Catalog, clock: Clock, options: LocalOptions) -> None:
        self._connection = connection
        self._catalog = catalog
        self._clock = clock
        self._options = options
        self._ids = PublishIds(connection)
        self._staged: dict[int, _Staged] = {}
        #: by topic: counts messages without a key, which go to the lanes in turn
        self._turns: dict[str, int] = {}

    def append(self, topic: str, messages: Sequence[Message]) -> list[Place]:
        """Stages all messages or, with an exception, none. Raises `Refused` for a lane that does not exist, and for a
        topic that does not exist and cannot be created."""
        # The sidecar's own topics must not run out because of what apps have made.
        max_topics = None if messages[0].aside else self._options.max_topics
        lanes = self._catalog.ensure(topic, self._options.lanes, max_topics)
        count = len(lanes)
        now = self._clock.wall_ms()
        turn = self._turns.get(topic, 0)
        parts: dict[int, _Staged] = {}
        places = []
        ids = {message.deduplication_id for message in messages if message.deduplication_id}
        known = self._ids.find(topic, ids)
        new: dict[str, Place] = {}
        for message in messages:
            earlier = known.get(message.deduplication_id) or new.get(message.deduplication_id)
            if earlier is not None:
                places.append(earlier)
                continue
            number = message.lane
            if number is None:
                if message.key is None:
                    number, turn = turn % count, turn + 1
                else:
                    number = crc32(message.key) % count
            elif not 0 <= number < count:
                raise Refused(f"Topic {topic!r} has no lane {number}: it has {count}, counted from 0.")
            part = parts.get(number)
            if part is None:
                part = parts[number] = _Staged(lanes[number], self._next(lanes[number]))
            position = part.position
            part.position = position + 1
            timestamp = message.timestamp_ms if message.timestamp_ms > 0 else now
            part.frames.append(encode_frame(message.key, message.value, message.headers, number, position, timestamp))
            part.timestamps.append(timestamp)
            place = Place(number, position)
            places.append(place)
            if message.deduplication_id:
                new[message.deduplication_id] = place
        if new:
            self._ids.add(topic, new.items(), now)
        self._turns[topic] = turn
        for part in parts.values():
            self._stage(part)
        return places

    def flush(self) -> None:
        """Writes what is staged."""
        if not self._staged:
            return
        now = self._clock.wall_ms()
        rows: list[Block] = []
        for staged in self._staged.values():
            blocks = list(build(staged.lane.end, staged.frames, staged.timestamps, now))
            staged.lane.end = end_after(blocks[-1])
            self._catalog.touch(staged.lane)
            rows += blocks
        self._staged = {}
        for at in range(0, len(rows), _ROWS):
            some = rows[at : at + _ROWS]
            places = ", ".join([f"({', '.join('?' * len(Block._fields))})"] * len(some))
            values = [value for row in some for value in row]
            self._connection.execute(f"REPLACE INTO blocks ({COLUMNS}) VALUES {places}", values)

    def _next(self, lane: StoredLane) -> int:
        staged = self._staged.get(lane.id)
        return lane.end.position if staged is None else staged.position

    def _stage(self, part: _Staged) -> None:
        staged = self._staged.setdefault(part.lane.id, part)
        if staged is not part:
            staged.position = part.position
            staged.frames += part.frames
            staged.timestamps += part.timestamps

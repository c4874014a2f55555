"""What is read from the database. Each function takes a connection and is done with it when it returns: a reader
that lingers would keep the journal from being emptied."""

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

from sidecar.brokers.cursor import GroupState
from sidecar.brokers.fencing import Attached
from sidecar.brokers.local.blocks import COLUMNS, Block, Frames, without
from sidecar.brokers.local.rows import all_typed, is_damage
from sidecar.model.records import Chunk, Lane, Run
from sidecar.model.wire import decode_frame


class Want(NamedTuple):
    """What is to be read of a lane: the records of `run` that are not in `settled`."""

    id: int
    lane: Lane
    run: Run
    settled: Sequence[Run] = ()


class Taken(NamedTuple):
    """What was read of a lane."""

    lane: Lane
    chunks: list[Chunk]
    records: int
    size: int
    #: where to go on
    position: int
    #: why the lane cannot be read on from there; empty if it can
    damage: str = ""


def take(connection: sqlite3.Connection, wants: Sequence[Want], max_records: int, max_bytes: int) -> list[Taken]:
    """Records of several lanes, each its share; what one leaves goes to those after it.

    A record that is larger than `max_bytes` is taken if it is the first.
    """
    taken: list[Taken] = []
    records = size = 0
    for index, want in enumerate(wants):
        lanes_left, records_left, bytes_left = len(wants) - index, max_records - records, max_bytes - size
        if records_left < 1 or bytes_left < 1:
            break
        share = max(1, records_left // lanes_left)
        got = take_lane(connection, want, share, bytes_left // lanes_left, at_least=0 if records else 1)
        records += got.records
        size += got.size
        taken.append(got)
    return taken


def take_lane(
    connection: sqlite3.Connection, want: Want, max_records: int, max_bytes: int, *, at_least: int = 1
) -> Taken:
    """Records of one lane, up to the limits, but `at_least` so many whatever their size."""
    basket = _Basket(want.run.start, max_records, max_bytes, at_least)
    try:
        damage = _gather(connection, want, basket)
    except sqlite3.DatabaseError as error:
        # The page may be this lane's alone: others must be able to go on.
        if not is_damage(error):
            raise
        damage = _gather_one(connection, want, basket)
    return basket.taken(want.lane, damage)


def first_at_time(connection: sqlite3.Connection, lane: int, timestamp_ms: int) -> int | None:
    """The position of the first record with this timestamp or a later one."""
    row = connection.execute(
        f"SELECT {COLUMNS} FROM blocks WHERE lane = ? AND newest_ms >= ? ORDER BY start LIMIT 1", (lane, timestamp_ms)
    ).fetchone()
    if row is None:
        return None
    block = Block.read(row)
    if not block.is_intact:
        return block.start
    for frame in Frames(block).cut(Run(block.start, block.stop), len(block.frames)):
        record = decode_frame(frame)
        if record.timestamp_ms >= timestamp_ms:
            return record.position
    return block.stop


def all_cursors(connection: sqlite3.Connection) -> dict[str, dict[Lane, int]]:
    """The positions of all groups."""
    groups: dict[str, dict[Lane, int]] = {
        name: {} for (name,) in connection.execute("SELECT name FROM groups ORDER BY name").fetchall()
    }
    rows = connection.execute(
        "SELECT groups.name, topics.name, lanes.number, position FROM cursors "
        'JOIN groups ON groups.id = "group" JOIN lanes ON lanes.id = lane JOIN topics ON topics.id = topic '
        "ORDER BY groups.name, topics.name, lanes.number"
    ).fetchall()
    for group, topic, number, position in all_typed(rows, str, str, int, int):
        groups.setdefault(group, {})[Lane(topic, number)] = position
    return groups


def standing(connection: sqlite3.Connection, group: int) -> GroupState:
    """What there is for a group that is read by ranges."""
    rows = connection.execute(
        "SELECT name, number, position FROM cursors JOIN lanes ON lanes.id = lane JOIN topics ON topics.id = topic "
        'WHERE "group" = ?',
        (group,),
    ).fetchall()
    return GroupState(
        {Lane(topic, number): position for topic, number, position in rows}, attached_to(connection, group)
    )


def attached_to(connection: sqlite3.Connection, group: int) -> Attached | None:
    row = connection.execute('SELECT token, name, since_ms FROM readers WHERE "group" = ?', (group,)).fetchone()
    return None if row is None else Attached(*row)


def _gather(connection: sqlite3.Connection, want: Want, basket: "_Basket") -> str:
    """Fill the basket. Answers why the lane cannot be read on from where that ends; empty if it can."""
    with closing(_blocks(connection, want.id, want.run)) as blocks:
        for block in blocks:
            if not block.start <= basket.position < block.stop:
                break
            if not block.is_intact:
                return f"the records at {block.start} to {block.stop - 1} are damaged"
            stop = min(block.stop, want.run.stop)
            frames = Frames(block)
            for run in without(Run(basket.position, stop), want.settled):
                basket.put(frames, run)
                if basket.position < run.stop:
                    return ""
            basket.position = stop
            if basket.is_full:
                return ""
    if basket.position < want.run.stop and _start(connection, want.id) <= basket.position:
        return f"the records at {basket.position} and after are missing"
    return ""


def _gather_one(connection: sqlite3.Connection, want: Want, basket: "_Basket") -> str:
    """The same with the next block alone. Python looks a row ahead, so the damage may have been in the one after it."""
    try:
        ((following,),) = connection.execute(
            "SELECT min(start) FROM blocks WHERE lane = ? AND start > ?", (want.id, basket.position)
        ).fetchall()
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return f"the records at {basket.position} and after are damaged"
    run = Run(basket.position, want.run.stop if following is None else min(following, want.run.stop))
    try:
        return _gather(connection, want._replace(run=run), basket)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return f"the records at {run.start} to {run.stop - 1} are damaged"


# The block that has the first position, and those that follow it.
_BLOCKS = (
    f"SELECT {COLUMNS} FROM blocks WHERE lane = ?1 AND start < ?3 "
    "AND start >= (SELECT max(start) FROM blocks WHERE lane = ?1 AND start <= ?2) ORDER BY start"
)


def _blocks(connection: sqlite3.Connection, lane: int, run: Run) -> Generator[Block, None, None]:
    with closing(connection.execute(_BLOCKS, (lane, run.start, run.stop))) as rows:
        for row in rows:
            yield Block.read(row)


def _start(connection: sqlite3.Connection, lane: int) -> int:
    ((start,),) = connection.execute("SELECT start FROM lanes WHERE id = ?", (lane,)).fetchall()
    return int(start)


@dataclass(slots=True)
class _Basket:
    """Records of a lane on their way out."""

    #: the one after them: where to go on
    position: int
    max_records: int
    max_bytes: int
    at_least: int
    records: int = 0
    size: int = 0
    #: position and frames of each stretch without a gap
    stretches: list[tuple[int, list[bytes]]] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return self.records >= self.max_records or self.size >= self.max_bytes

    def put(self, frames: Frames, run: Run) -> None:
        """Take of a run what there is room for."""
        short = Run(run.start, min(run.stop, run.start + self.max_records - self.records))
        cut = frames.cut(short, self.max_bytes - self.size, self.at_least - self.records)
        self.position = run.start + len(cut)
        if not cut:
            return
        self.records += len(cut)
        self.size += sum(map(len, cut))
        if self.stretches and self.stretches[-1][0] + len(self.stretches[-1][1]) == run.start:
            self.stretches[-1][1].extend(cut)
        else:
            self.stretches.append((run.start, cut))

    def taken(self, lane: Lane, damage: str) -> Taken:
        chunks = [Chunk(lane, range(start, start + len(cut)), cut) for start, cut in self.stretches]
        return Taken(lane, chunks, self.records, self.size, self.position, damage)

"""What is read from the database, and the threads that read.

Each query ends its read when it returns: a reader that stays would keep the journal from starting again."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from sidecar.brokers.fencing import Attached
from sidecar.brokers.local.blocks import COLUMNS, Block, Frames, without
from sidecar.brokers.local.schema import open_reader
from sidecar.brokers.local.sqlite_errors import is_damage, translate
from sidecar.brokers.range_cursor import GroupState
from sidecar.model.records import Chunk, Lane, Run
from sidecar.model.wire import decode_frame

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = 4


class ReaderThreads:
    """A few threads with a connection each. They see what is committed, and never wait for the writer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._pool = ThreadPoolExecutor(_THREADS, "offramp-local-reader")

    async def run(self, read: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls `read` with a connection, in a thread. Raises `Unavailable` or `Corrupt`."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: self._run(read, *args, **kwargs))

    def close(self) -> None:
        """Waits for reads that are under way."""
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


class LaneQuery(NamedTuple):
    """What is to be read of a lane: the records of `run` that are not in `settled`."""

    id: int
    lane: Lane
    run: Run
    settled: Sequence[Run] = ()


class LaneRecords(NamedTuple):
    """What was read of a lane."""

    lane: Lane
    chunks: list[Chunk]
    records: int
    size: int
    #: where to continue
    position: int
    #: why the lane cannot be read from there; empty if it can
    damage: str = ""


def read_lanes(
    connection: sqlite3.Connection, queries: Sequence[LaneQuery], max_records: int, max_bytes: int
) -> list[LaneRecords]:
    """Records of several lanes. Each has a share; what one leaves goes to those after it.

    A record that is larger than `max_bytes` is returned if it is the first.
    """
    taken: list[LaneRecords] = []
    records = size = 0
    for index, query in enumerate(queries):
        lanes_left, records_left, bytes_left = len(queries) - index, max_records - records, max_bytes - size
        if records_left < 1 or bytes_left < 1:
            break
        share = max(1, records_left // lanes_left)
        got = read_lane(connection, query, share, bytes_left // lanes_left, at_least=0 if records else 1)
        records += got.records
        size += got.size
        taken.append(got)
    return taken


def read_lane(
    connection: sqlite3.Connection, query: LaneQuery, max_records: int, max_bytes: int, *, at_least: int = 1
) -> LaneRecords:
    """Records of one lane, up to the limits, but at least `at_least` of them, whatever their size."""
    collector = _Collector(query.run.start, max_records, max_bytes, at_least)
    try:
        damage = _collect(connection, query, collector)
    except sqlite3.DatabaseError as error:
        # The page may hold only this lane: others must be able to continue.
        if not is_damage(error):
            raise
        damage = _collect_block(connection, query, collector)
    return collector.result(query.lane, damage)


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


def group_state(connection: sqlite3.Connection, group: int) -> GroupState:
    """The state of a group that is read by ranges."""
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


def _collect(connection: sqlite3.Connection, query: LaneQuery, collector: "_Collector") -> str:
    """Fills the collector. Returns why the lane cannot be read from the position where it ends; empty if it can."""
    with closing(_blocks(connection, query.id, query.run)) as blocks:
        for block in blocks:
            if not block.start <= collector.position < block.stop:
                break
            if not block.is_intact:
                return f"the records at {block.start} to {block.stop - 1} are damaged"
            stop = min(block.stop, query.run.stop)
            frames = Frames(block)
            for run in without(Run(collector.position, stop), query.settled):
                collector.add(frames, run)
                if collector.position < run.stop:
                    return ""
            collector.position = stop
            if collector.is_full:
                return ""
    if collector.position < query.run.stop and _start(connection, query.id) <= collector.position:
        return f"the records at {collector.position} and after are missing"
    return ""


def _collect_block(connection: sqlite3.Connection, query: LaneQuery, collector: "_Collector") -> str:
    """The same with the next block alone. Python reads one row ahead, so the damage may be in the block after it."""
    start, stop = collector.position, query.run.stop
    where = f"{start} and after"
    try:
        ((following,),) = connection.execute(
            "SELECT min(start) FROM blocks WHERE lane = ? AND start > ?", (query.id, start)
        ).fetchall()
        stop = stop if following is None else min(following, stop)
        where = f"{start} to {stop - 1}"
        return _collect(connection, query._replace(run=Run(start, stop)), collector)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return f"the records at {where} are damaged"


# The block with the first position, and those after it.
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
class _Collector:
    """Collects records of a lane."""

    #: the position after the last one, where to continue
    position: int
    max_records: int
    max_bytes: int
    at_least: int
    records: int = 0
    size: int = 0
    #: first position and frames of each sequence without a gap
    sequences: list[tuple[int, list[bytes]]] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return self.records >= self.max_records or self.size >= self.max_bytes

    def add(self, frames: Frames, run: Run) -> None:
        """Adds as much of a run as the limits allow."""
        short = Run(run.start, min(run.stop, run.start + self.max_records - self.records))
        cut = frames.cut(short, self.max_bytes - self.size, self.at_least - self.records)
        self.position = run.start + len(cut)
        if not cut:
            return
        self.records += len(cut)
        self.size += sum(map(len, cut))
        if self.sequences and self.sequences[-1][0] + len(self.sequences[-1][1]) == run.start:
            self.sequences[-1][1].extend(cut)
        else:
            self.sequences.append((run.start, cut))

    def result(self, lane: Lane, damage: str) -> LaneRecords:
        chunks = [Chunk(lane, range(start, start + len(cut)), cut) for start, cut in self.sequences]
        return LaneRecords(lane, chunks, self.records, self.size, self.position, damage)

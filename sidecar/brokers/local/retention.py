"""Removal of what is old or too much, in small steps."""

import sqlite3
from collections.abc import Iterator
from heapq import merge
from typing import NamedTuple

from sidecar.brokers.local.blocks import TAIL_MS
from sidecar.brokers.local.catalog import Catalog, StoredLane
from sidecar.brokers.local.groups import Groups
from sidecar.brokers.local.options import LocalOptions
from sidecar.brokers.local.publish_ids import PublishIds

#: blocks removed in one transaction, so that publishes never wait long behind it
_STEP = 64
#: pages returned to the file system in one transaction
_SHRINK_PAGES = 512
#: free pages that are kept for the next records
_SPARE_PAGES = 4096


class _Candidate(NamedTuple):
    written_ms: int
    lane: StoredLane
    start: int
    stop: int
    bytes_after: int


class Retention:
    """Removes blocks by age and size. Keeps what some group has not settled, unless the options say otherwise."""

    def __init__(self, connection: sqlite3.Connection, catalog: Catalog, groups: Groups, options: LocalOptions) -> None:
        self._connection = connection
        self._catalog = catalog
        self._groups = groups
        self._options = options
        self._ids = PublishIds(connection)

    def step(self, now_ms: int) -> bool:
        """Removes some blocks and old ids. True: there may be more to remove."""
        if self._ids.forget(now_ms):
            return True
        left = _STEP
        for lanes in self._catalog.topics():
            for candidate in self._removable(lanes, now_ms):
                if not left:
                    return True
                left -= 1
                self._remove(candidate)
        return False

    def shrink(self, *, all_of_it: bool) -> bool:
        """Returns free pages of the file to the file system. True: there may be more to return."""
        free = self._pragma("freelist_count")
        if free <= (0 if all_of_it else max(_SPARE_PAGES, self._pragma("page_count") // 4)):
            return False
        self._connection.execute(f"PRAGMA incremental_vacuum({_SHRINK_PAGES})").fetchall()
        # A copy that some other tool made may not be able to shrink.
        return self._pragma("freelist_count") < free

    def _pragma(self, name: str) -> int:
        ((value,),) = self._connection.execute(f"PRAGMA {name}").fetchall()
        return int(value)

    def _removable(self, lanes: list[StoredLane], now_ms: int) -> Iterator[_Candidate]:
        """The blocks of a topic that must go, oldest first."""
        options = self._options
        # The last record of a block may be younger than the block by up to TAIL_MS.
        cutoff = now_ms - int(options.retention_age * 1000) - TAIL_MS if options.retention_age else 0
        limit = options.retention_bytes
        # Merged, not sorted: blocks of a lane are removed in their order, even if the wall clock went back.
        for candidate in merge(*map(self._candidates, lanes), key=lambda each: each.written_ms):
            too_much = limit and sum(lane.kept_bytes for lane in lanes) > limit
            if candidate.written_ms >= cutoff and not too_much:
                return
            yield candidate

    def _candidates(self, lane: StoredLane) -> list[_Candidate]:
        floor = None if self._options.retention_ignores_groups else self._groups.low_watermark(lane)
        if floor is None:
            floor = lane.end.position
        rows = self._connection.execute(
            "SELECT written_ms, start, stop, bytes_before + length(frames) FROM blocks "
            "WHERE lane = ? AND start < ? AND stop <= ? ORDER BY start LIMIT ?",
            (lane.id, floor, floor, _STEP + 1),
        )
        return [_Candidate(written, lane, *rest) for written, *rest in rows.fetchall()]

    def _remove(self, block: _Candidate) -> None:
        lane = block.lane
        self._connection.execute("DELETE FROM blocks WHERE lane = ? AND start = ?", (lane.id, block.start))
        self._connection.execute("UPDATE lanes SET start = ? WHERE id = ?", (block.stop, lane.id))
        lane.start, lane.removed = block.stop, block.bytes_after
        if lane.start == lane.end.position:
            lane.end = lane.end._replace(tail=None)
        self._catalog.touch(lane)

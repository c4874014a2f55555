"""How far past its committed position a lane may be delivered."""

from bisect import bisect_left, bisect_right
from collections import deque

from sidecar.model.records import Chunk
from sidecar.settings import WindowSettings

#: a lane that was full is fetched again when this share of its window is used
_RESUME = 0.8


class Window:
    """Measures along one lane from its committed position: in records, bytes and positions. Pure.

    The first record past the committed position is always within the window, so a lane can never lock itself.
    Costs by what arrived beyond the window, which is little, not by what is inside.
    """

    __slots__ = ("_before", "_bytes", "_chunks", "_committed", "_full", "_records", "_settings", "_tracked")

    def __init__(self, settings: WindowSettings, start: int) -> None:
        self._settings = settings
        #: chunks with records past the committed position, the index of the first of those, and when they arrived
        self._chunks: deque[tuple[Chunk, int, float]] = deque()
        #: past the committed position
        self._records = 0
        self._bytes = 0
        self._committed = start
        self._tracked = start
        self._before: int | None = None
        self._full = False

    @property
    def records(self) -> int:
        """How many arrived past the committed position."""
        return self._records

    def track(self, chunk: Chunk, now: float) -> None:
        """Records arrived. Those that the broker gives for the second time do not count again."""
        first = bisect_left(chunk.positions, self._tracked)
        if first == len(chunk.positions):
            return
        self._chunks.append((chunk, first, now))
        self._records += len(chunk.positions) - first
        self._bytes += chunk.size(first, len(chunk.positions))
        self._tracked = chunk.positions[-1] + 1
        self._drop_committed()

    def commit(self, position: int) -> None:
        """The broker was told that everything before `position` is settled."""
        self._committed = position
        self._tracked = max(self._tracked, position)
        self._drop_committed()

    def clear(self) -> None:
        """Free all that arrived: the lane is gone."""
        for chunk, _, _ in self._chunks:
            chunk.drop(0, len(chunk.frames))
        self._chunks.clear()
        self._records = self._bytes = 0
        self._before = None

    def before(self) -> int:
        """Records before this position may be delivered."""
        if self._before is None:
            self._before = self._measure()
        return self._before

    def full(self) -> bool:
        """What has arrived fills the window: fetching more would be in vain.

        Full at 100 %, free again at 80 %: pausing and resuming a lane costs the broker a fetch.
        """
        share = _RESUME if self._full else 1.0
        self._full = (
            self._records >= max(1, self._settings.records * share)
            or self._bytes >= self._settings.bytes * share
            or self._tracked - self._committed >= max(1, self._settings.span * share)
        )
        return self._full

    def first_from(self, position: int) -> tuple[int, float] | None:
        """The record at `position`, or the next after it: where it is, and when it arrived. None if it has not."""
        for chunk, _, arrived in self._chunks:
            if chunk.positions[-1] >= position:
                return chunk.positions[bisect_left(chunk.positions, position)], arrived
        return None

    def _drop_committed(self) -> None:
        self._before = None
        while self._chunks:
            chunk, first, arrived = self._chunks[0]
            passed = bisect_left(chunk.positions, self._committed, first)
            self._records -= passed - first
            self._bytes -= chunk.size(first, passed)
            if passed < len(chunk.positions):
                self._chunks[0] = chunk, passed, arrived
                return
            self._chunks.popleft()

    def _measure(self) -> int:
        limit = self._committed + self._settings.span
        if not self._chunks:
            return limit
        # However large it is, and however large the gap before it: the first record is within the window.
        chunk, first, _ = self._chunks[0]
        least = chunk.positions[first] + 1
        records, size = self._records, self._bytes
        if records <= self._settings.records and size <= self._settings.bytes:
            return max(limit, least)
        for chunk, first, _ in reversed(self._chunks):
            # Without this chunk: does the window end within it?
            records -= len(chunk.positions) - first
            size -= chunk.size(first, len(chunk.positions))
            if records <= self._settings.records and size <= self._settings.bytes:
                by_count = first + self._settings.records - records
                by_size = bisect_right(chunk.ends, chunk.size(0, first) + self._settings.bytes - size, first)
                limit = min(limit, chunk.positions[min(by_count, by_size)])
                break
        return max(limit, least)

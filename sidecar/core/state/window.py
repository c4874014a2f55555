"""How far past its committed position a lane may be delivered. Pure."""

from bisect import bisect_left, bisect_right
from collections import deque

from sidecar.model.records import Chunk
from sidecar.settings import WindowSettings

#: a lane that was full is fetched again once no more than this share of its window is used
_RESUME = 0.8


class Window:
    """Limits what may be delivered past the committed position of one lane, in records, bytes and positions.

    The first record past the committed position is always within the window, so that a lane cannot block itself.
    Nothing is delivered at or beyond the reach that the broker has, if it has one: by that, the next owner of the lane
    knows what may have been delivered.
    The cost depends on what has arrived beyond the window, which is little, not on what is inside it.
    """

    __slots__ = ("_bytes", "_chunks", "_committed", "_full", "_limit", "_records", "_settings", "_tracked", "reach")

    def __init__(self, settings: WindowSettings, start: int, reach: int | None = None) -> None:
        self._settings = settings
        #: that of the last commit which the broker has stored; that of the first one already when it is sent
        self.reach = reach
        #: chunks with records past the committed position: chunk, index of the first such record, time of arrival
        self._chunks: deque[tuple[Chunk, int, float]] = deque()
        #: past the committed position
        self._records = 0
        self._bytes = 0
        self._committed = start
        self._tracked = start
        #: None: not measured since the last change
        self._limit: int | None = None
        self._full = False

    @property
    def records(self) -> int:
        """Records that have arrived past the committed position."""
        return self._records

    def track(self, chunk: Chunk, now: float) -> None:
        """Records arrived. Those that the broker sends for the second time do not count again."""
        first = bisect_left(chunk.positions, self._tracked)
        if first == len(chunk.positions):
            return
        self._chunks.append((chunk, first, now))
        self._records += len(chunk.positions) - first
        self._bytes += chunk.size(first, len(chunk.positions))
        self._tracked = chunk.positions[-1] + 1
        self._drop_committed()

    def commit(self, position: int, reach: int | None = None) -> None:
        """The broker has stored `position` as committed."""
        self._committed = position
        self.reach = reach
        self._tracked = max(self._tracked, position)
        self._drop_committed()

    def clear(self) -> None:
        """Free everything that has arrived: the lane is gone."""
        for chunk, _, _ in self._chunks:
            chunk.drop(0, len(chunk.frames))
        self._chunks.clear()
        self._records = self._bytes = 0
        self._limit = None

    def delivery_limit(self) -> int:
        """Records before this position may be delivered."""
        limit = self._window_end()
        return limit if self.reach is None or limit < self.reach else self.reach

    def short_of_reach(self) -> bool:
        """Whether records are within the window that the reach keeps from being delivered."""
        return self.reach is not None and self.reach < min(self._window_end(), self._tracked)

    def next_reach(self, position: int) -> int:
        """The reach to commit with `position`. It suffices until the next commit, unless records arrive that are
        further apart than by one position."""
        records, size = self._records, self._bytes
        for chunk, first, _ in self._chunks:
            passed = bisect_left(chunk.positions, position, first)
            records -= passed - first
            size -= chunk.size(first, passed)
            if passed < len(chunk.positions):
                least = chunk.positions[passed] + 1
                break
        else:
            least = position
        outside = self._first_outside(records, size)
        if outside is None:
            outside = max(self._tracked, position) + self._settings.records - records
        return max(min(position + self._settings.span, outside), least)

    def full(self) -> bool:
        """Whether what has arrived fills the window, so that fetching more is useless.

        Full at 100 %, free again at 80 %: to pause and resume a lane costs the broker a fetch.
        """
        share = _RESUME if self._full else 1.0
        self._full = (
            self._records >= max(1, self._settings.records * share)
            or self._bytes >= self._settings.bytes * share
            or self._tracked - self._committed >= max(1, self._settings.span * share)
        )
        return self._full

    def first_from(self, position: int) -> tuple[int, float] | None:
        """Position and time of arrival of the record at `position`, or of the next one. None if none has arrived."""
        for chunk, _, arrived in self._chunks:
            if chunk.positions[-1] >= position:
                return chunk.positions[bisect_left(chunk.positions, position)], arrived
        return None

    def _drop_committed(self) -> None:
        self._limit = None
        while self._chunks:
            chunk, first, arrived = self._chunks[0]
            passed = bisect_left(chunk.positions, self._committed, first)
            self._records -= passed - first
            self._bytes -= chunk.size(first, passed)
            if passed < len(chunk.positions):
                self._chunks[0] = chunk, passed, arrived
                return
            self._chunks.popleft()

    def _window_end(self) -> int:
        if self._limit is None:
            self._limit = self._measure()
        return self._limit

    def _measure(self) -> int:
        limit = self._committed + self._settings.span
        if not self._chunks:
            return limit
        # The first record is within the window however large it or the gap before it is.
        chunk, first, _ = self._chunks[0]
        least = chunk.positions[first] + 1
        outside = self._first_outside(self._records, self._bytes)
        return max(limit if outside is None else min(limit, outside), least)

    def _first_outside(self, records: int, size: int) -> int | None:
        """The first record that is not within a window which begins this many records and bytes before the last one."""
        if records <= self._settings.records and size <= self._settings.bytes:
            return None
        for chunk, first, _ in reversed(self._chunks):
            # Without this chunk: does the window end within it?
            records -= len(chunk.positions) - first
            size -= chunk.size(first, len(chunk.positions))
            if records <= self._settings.records and size <= self._settings.bytes:
                by_count = first + self._settings.records - records
                by_size = bisect_right(chunk.ends, chunk.size(0, first) + self._settings.bytes - size, first)
                return chunk.positions[min(by_count, by_size)]
        return None

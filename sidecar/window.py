"""How far past its committed position a lane may be delivered."""

from bisect import bisect_left
from collections import deque

from sidecar.model import Chunk
from sidecar.settings import WindowSettings

#: a lane that was full is fetched again when this share of its window is used
_RESUME = 0.8


class Window:
    """Measures along one lane from its committed position: in records, bytes and positions. Pure.

    The first record past the committed position is always within the window, so a lane can never lock itself.
    Costs by what arrived beyond the window, which is little, not by what is inside.
    """

    __slots__ = ("_before", "_bytes", "_chunks", "_committed", "_full", "_records", "_settings", "_skip", "_tracked")

    def __init__(self, settings: WindowSettings, start: int) -> None:
        self._settings = settings
        #: chunks past the committed position and when they arrived
        self._chunks: deque[tuple[Chunk, float]] = deque()
        #: records of the first chunk that are before the committed position
        self._skip = 0
        #: past the committed position
        self._records = 0
        self._bytes = 0
        self._committed = start
        self._tracked = start
        self._before: int | None = None
        self._full = False

    def track(self, chunk: Chunk, now: float) -> None:
        self._chunks.append((chunk, now))
        self._records += len(chunk.positions)
        self._bytes += chunk.ends[-1]
        self._tracked = chunk.positions[-1] + 1
        self._drop_committed()

    def commit(self, position: int) -> None:
        """The broker was told that everything before `position` is settled."""
        self._committed = position
        self._tracked = max(self._tracked, position)
        self._drop_committed()

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

    def arrival(self, position: int) -> float | None:
        """When the record at `position`, or the next after it, arrived. None if it has not."""
        for chunk, arrived in self._chunks:
            if chunk.positions[-1] >= position:
                return arrived
        return None

    def _drop_committed(self) -> None:
        self._before = None
        while self._chunks:
            chunk = self._chunks[0][0]
            passed = bisect_left(chunk.positions, self._committed, self._skip)
            self._records -= passed - self._skip
            self._bytes -= chunk.size(self._skip, passed)
            self._skip = passed
            if passed < len(chunk.positions):
                return
            self._chunks.popleft()
            self._skip = 0

    def _measure(self) -> int:
        limit = self._committed + self._settings.span
        if not self._chunks:
            return limit
        # However large it is, and however large the gap before it: the first record is within the window.
        first = self._chunks[0][0].positions[self._skip]
        limit = max(limit, first + 1)
        records, size = self._records, self._bytes
        if records <= self._settings.records and size <= self._settings.bytes:
            return limit
        for index in range(len(self._chunks) - 1, -1, -1):
            # Without this chunk: does the window end within it?
            chunk = self._chunks[index][0]
            skip = self._skip if index == 0 else 0
            records -= len(chunk.positions) - skip
            size -= chunk.size(skip, len(chunk.positions))
            if records <= self._settings.records and size <= self._settings.bytes:
                used = chunk.ends[skip - 1] if skip else 0
                by_count = skip + self._settings.records - records
                by_size = bisect_left(chunk.ends, used + self._settings.bytes - size + 1, skip)
                return max(first + 1, min(limit, chunk.positions[min(by_count, by_size)]))
        return limit

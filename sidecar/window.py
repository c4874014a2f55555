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
    """

    __slots__ = ("_before", "_chunks", "_committed", "_full", "_settings", "_stale", "_tracked")

    def __init__(self, settings: WindowSettings, start: int) -> None:
        self._settings = settings
        #: chunks past the committed position and when they arrived
        self._chunks: deque[tuple[Chunk, float]] = deque()
        self._committed = start
        self._tracked = start
        self._before = start + settings.span
        self._full = False
        self._stale = False

    def track(self, chunk: Chunk, now: float) -> None:
        self._chunks.append((chunk, now))
        self._tracked = chunk.positions[-1] + 1
        self._stale = True

    def commit(self, position: int) -> None:
        """The broker was told that everything before `position` is settled."""
        self._committed = position
        self._tracked = max(self._tracked, position)
        while self._chunks and self._chunks[0][0].positions[-1] < position:
            self._chunks.popleft()
        self._stale = True

    def before(self) -> int:
        """Records before this position may be delivered."""
        self._refresh()
        return self._before

    def full(self) -> bool:
        """What has arrived fills the window: fetching more would be in vain."""
        self._refresh()
        return self._full

    def arrival(self, position: int) -> float | None:
        """When the record at `position`, or the next after it, arrived. None if it has not."""
        for chunk, arrived in self._chunks:
            if chunk.positions[-1] >= position:
                return arrived
        return None

    def _refresh(self) -> None:
        if self._stale:
            self._before, full = self._measure(1.0)
            # Full at 100 %, free again at 80 %: pausing and resuming a lane costs the broker a fetch.
            self._full = self._measure(_RESUME)[1] if self._full else full
            self._stale = False

    def _measure(self, share: float) -> tuple[int, bool]:
        """The first position outside of the window, and whether the window is used up."""
        limit = self._committed + max(1, int(self._settings.span * share))
        records = max(1, int(self._settings.records * share))
        size = int(self._settings.bytes * share)
        first_of_all = True
        for chunk, _ in self._chunks:
            first = bisect_left(chunk.positions, self._committed)
            base = chunk.ends[first - 1] if first else 0
            stop = min(first + max(0, records), bisect_left(chunk.ends, base + max(0, size) + 1, first))
            if first_of_all:
                # At least one record is within the window, whatever its size and however large the gap before it.
                stop = max(stop, first + 1)
                limit = max(limit, chunk.positions[first] + 1)
                first_of_all = False
            if stop < len(chunk.positions):
                return min(limit, chunk.positions[stop]), True
            records -= len(chunk.positions) - first
            size -= chunk.ends[-1] - base
        return limit, records <= 0 or size <= 0 or self._tracked >= limit

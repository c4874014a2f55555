"""How much memory records may hold, and which lanes must be paused for it. Pure."""

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from sidecar.settings import MemorySettings

#: a paused lane resumes once its own or the common part is down to this share
_RESUME = 0.8
#: the share of the common part that one fetch may take: less than lies between pausing and resuming
_FETCH = 0.125


class LaneUsage(NamedTuple):
    """What a lane has in memory."""

    name: Hashable
    records: int
    bytes: int
    #: the lane belongs to the retry topic, whose records only wait
    waits_only: bool


class MemoryLimit:
    """Half of the limit is divided evenly: each lane is guaranteed its own part. The rest is common.

    A lane is full when it has used up its own part and the common part has no room for another fetch. So a slow lane
    can take all of the common part, but nothing that is guaranteed to others. Lanes of the retry topic get nothing of
    the common part. What a lane has beyond its own part counts as common.
    """

    def __init__(self, settings: MemorySettings) -> None:
        self._limits = (settings.records, int(settings.bytes))
        self._fetch = (
            max(1, min(settings.poll_records, int(settings.records / 2 * _FETCH))),
            max(1, min(int(settings.poll_bytes), int(settings.bytes / 2 * _FETCH))),
        )
        self._full: set[Hashable] = set()

    def full(self, lanes: Iterable[LaneUsage]) -> set[Hashable]:
        """The names of the lanes that must be paused. Full at 100 %, free again at 80 %: it remembers who was full."""
        lanes = list(lanes)
        full = self._full_by(self._limits[0], self._fetch[0], [(lane, lane.records) for lane in lanes])
        full |= self._full_by(self._limits[1], self._fetch[1], [(lane, lane.bytes) for lane in lanes])
        self._full = full
        return full

    def _full_by(self, limit: int, fetch: int, lanes: Sequence[tuple[LaneUsage, int]]) -> set[Hashable]:
        half = limit / 2
        own = half / max(1, len(lanes))
        common = sum([used - own for _, used in lanes if used > own])
        full: set[Hashable] = set()
        for lane, used in lanes:
            if used <= own * _RESUME:
                # Nearly all lanes, nearly always.
                continue
            was_full = lane.name in self._full
            own_used_up = was_full or used >= own
            common_used_up = common > (half * _RESUME if was_full else half - fetch)
            if own_used_up and (lane.waits_only or common_used_up):
                full.add(lane.name)
        return full

    def next_fetch(self, records: int, size: int) -> tuple[int, int]:
        """The records and bytes of the next fetch while this much is in memory: at least one record."""
        return (
            max(1, min(self._fetch[0], self._limits[0] - records)),
            max(1, min(self._fetch[1], self._limits[1] - size)),
        )

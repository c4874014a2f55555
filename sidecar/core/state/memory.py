"""What records may hold in memory, and which lanes must be paused. Pure."""

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from sidecar.settings import MemorySettings

#: a lane that was paused goes on when it, or the common part, is down to this share
_RESUME = 0.8
#: most of the common part that one fetch may take: less than what lies between pausing and resuming
_FETCH = 0.125


class Held(NamedTuple):
    """What a lane holds."""

    name: Hashable
    records: int
    bytes: int
    #: a lane of the retry topic
    waits_only: bool


class Memory:
    """Half of the limit is shared out evenly: each lane is guaranteed its part. The rest is common.

    A lane is full when it has used up its own part and the common one has no room for another fetch. So a slow
    lane can take the common part, and nothing of what belongs to the others. Lanes of the retry topic only wait;
    they get nothing of the common part. What a fetch brings beyond a lane's own part counts as common, whoever has it.
    """

    def __init__(self, settings: MemorySettings) -> None:
        self._limits = (settings.records, int(settings.bytes))
        self._fetch = (
            max(1, min(settings.poll_records, int(settings.records / 2 * _FETCH))),
            max(1, min(int(settings.poll_bytes), int(settings.bytes / 2 * _FETCH))),
        )
        self._full: set[Hashable] = set()

    def full(self, lanes: Iterable[Held]) -> set[Hashable]:
        """Which lanes must be paused. Remembers who was full: full at 100 %, free again at 80 %."""
        lanes = list(lanes)
        full = self._full_by(self._limits[0], self._fetch[0], [(lane, lane.records) for lane in lanes])
        full |= self._full_by(self._limits[1], self._fetch[1], [(lane, lane.bytes) for lane in lanes])
        self._full = full
        return full

    def _full_by(self, limit: int, fetch: int, lanes: Sequence[tuple[Held, int]]) -> set[Hashable]:
        half = limit / 2
        own = half / max(1, len(lanes))
        common = sum(max(0.0, used - own) for _, used in lanes)
        full: set[Hashable] = set()
        for lane, used in lanes:
            was_full = lane.name in self._full
            own_used_up = used > own * _RESUME if was_full else used >= own
            common_used_up = common > (half * _RESUME if was_full else half - fetch)
            if own_used_up and (lane.waits_only or common_used_up):
                full.add(lane.name)
        return full

    def next_fetch(self, records: int, size: int) -> tuple[int, int]:
        """How much to fetch at a time while so much is held: at least one record."""
        return (
            max(1, min(self._fetch[0], self._limits[0] - records)),
            max(1, min(self._fetch[1], self._limits[1] - size)),
        )

"""Counts records by the reason for which they were dead-lettered or parked. Pure."""

from collections.abc import Sequence

#: reasons that are counted separately: a handler whose reasons name each record would fill the memory
_MOST = 50
#: characters of a reason that are kept
_LENGTH = 160
#: stands for all reasons that are not counted separately any more
OTHERS = "other reasons"


class ReasonCounts:
    """Records per reason since the sidecar started.

    Bounded: if there are too many reasons, the least recent one is counted among the others.
    """

    def __init__(self) -> None:
        #: the most recent reason last
        self._counts: dict[str, int] = {}
        self._others = 0

    def add(self, reason: str, records: int) -> None:
        """Reasons are compared by their first line: the rest of a traceback only varies."""
        key = (reason.strip().partition("\n")[0] or "no reason given")[:_LENGTH]
        self._counts[key] = self._counts.pop(key, 0) + records
        if len(self._counts) > _MOST:
            self._others += self._counts.pop(next(iter(self._counts)))

    def most(self, count: int) -> Sequence[tuple[str, int]]:
        """The most frequent reasons, and the rest as `OTHERS`."""
        ranked = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        rest = self._others + sum(records for _, records in ranked[count:])
        return [*ranked[:count], *([(OTHERS, rest)] if rest else [])]

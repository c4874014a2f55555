"""Why records were put aside, counted. Pure."""

from collections.abc import Sequence

#: reasons that are told apart; a handler that names each record in its words would fill the memory
_MOST = 50
#: characters of a reason that are kept
_LENGTH = 160
#: what stands for all reasons that are not told apart any more
OTHERS = "other reasons"


class ReasonCounts:
    """How many records were put aside for which reason, since the sidecar started.

    Bounded: when there are too many reasons, the one that was not heard for longest is counted among the others.
    """

    def __init__(self) -> None:
        #: the one heard last stands last
        self._counts: dict[str, int] = {}
        self._others = 0

    def add(self, reason: str, records: int) -> None:
        """Only the first line counts: the rest of a traceback tells nothing apart."""
        key = (reason.strip().partition("\n")[0] or "no reason given")[:_LENGTH]
        self._counts[key] = self._counts.pop(key, 0) + records
        if len(self._counts) > _MOST:
            self._others += self._counts.pop(next(iter(self._counts)))

    def most(self, count: int) -> Sequence[tuple[str, int]]:
        """The most frequent ones, and what is left over as `OTHERS`."""
        ranked = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        rest = self._others + sum(records for _, records in ranked[count:])
        return [*ranked[:count], *([(OTHERS, rest)] if rest else [])]

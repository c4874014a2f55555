"""Pauses between attempts to reach the sidecar. Pure."""

from random import Random

#: seconds before the second attempt: a sidecar that restarts in place is back soon
FIRST = 0.05
#: seconds; the sidecar is close by, so an attempt costs next to nothing
LONGEST = 2.0
FACTOR = 2.0


class Backoff:
    """Growing pauses, each drawn from the upper half of its range, so that clients do not come back all at once."""

    def __init__(self, random: Random | None = None) -> None:
        self._random = random or Random()
        self._longest = FIRST

    def next(self) -> float:
        longest = self._longest
        self._longest = min(LONGEST, longest * FACTOR)
        return self._random.uniform(longest / 2, longest)

    def reset(self) -> None:
        self._longest = FIRST

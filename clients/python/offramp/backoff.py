"""How long to wait before the sidecar is tried again. Pure."""

from random import Random

#: seconds before the second try: a sidecar that restarts in place is back soon
FIRST = 0.05
#: seconds; it is next door, so that trying costs nearly nothing
LONGEST = 2.0
FACTOR = 2.0


class Backoff:
    """Waits that grow, each drawn from the upper half of its range, so that clients do not come back all at once."""

    def __init__(self, random: Random | None = None) -> None:
        self._random = random or Random()
        self._most = FIRST

    def next(self) -> float:
        most = self._most
        self._most = min(LONGEST, most * FACTOR)
        return self._random.uniform(most / 2, most)

    def reset(self) -> None:
        self._most = FIRST

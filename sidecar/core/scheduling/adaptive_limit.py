"""How many batches at once get the most done, found by trying a little less and a little more. Pure."""

from math import sqrt

#: by how much less and more is tried
_STEP = 1.25
#: batches that a level is judged by: so many at least, and so many for each that may be in flight
_LEAST, _FOR_EACH = 32, 2
#: rounds for which it stays where it is once it has found its place
_REST = 8
#: so few are allowed however little there is to do
_FEW = 4


class AdaptiveLimit:
    """Finds the knee of what is behind the handlers, whatever a batch takes there and however much that varies.

    Two levels are tried, one right after the other: with more in flight, more gets done if batches do not take longer
    by as much. Where they take longer by the square root of that, throughput divided by latency is at its best: below,
    it goes up, beyond, down. Nothing is remembered of what batches took long ago, so there is nothing to drift.
    What counts is how many were in flight, not how many could have been: it keeps near what there is to do.
    """

    __slots__ = ("_ceiling", "_high", "_low", "_lower", "_rest", "_rising", "_round", "_spare")

    def __init__(self, level: float, ceiling: float) -> None:
        self._ceiling = ceiling
        self._rising = True
        #: what is tried, and what the lower of two levels has shown
        self._round: _Sample
        self._lower: _Sample | None
        self.start(level, float("-inf"))

    @property
    def level(self) -> int:
        """Most batches in flight, for now."""
        return self._round.level

    def start(self, level: float, now: float) -> None:
        """Go on from there. What was tried before says nothing any more."""
        #: rounds for which nothing is tried
        self._rest = 0
        #: it rests because there was not more to do; that ends when there is
        self._spare = False
        self._look(level, level * _STEP * _STEP, now)

    def done(self, seconds: float, in_flight: int, now: float) -> None:
        """A batch succeeded after so many seconds, while so many were in flight, itself included."""
        tried = self._round
        if not tried.add(seconds, in_flight, now):
            return
        if self._rest:
            self._rest = 0 if self._spare and tried.filled else self._rest - 1
            self._round = _Sample(tried.level if self._rest else self._low, now)
        elif self._lower is None:
            self._lower = tried
            self._round = _Sample(self._high, now)
        else:
            self._compare(self._lower, tried, now)

    def _compare(self, lower: "_Sample", upper: "_Sample", now: float) -> None:
        more = upper.most / lower.most
        rising = more > 1.0 and upper.average < lower.average * sqrt(more)
        level = upper.most if rising else lower.level
        if not rising and not lower.filled:
            level = int(min(max(level, _FEW), self._ceiling))
        turned, self._rising = rising is not self._rising, rising
        self._look(level / _STEP, level * _STEP, now)
        # Once it has found its place it tries seldom, because trying costs something.
        self._spare = rising and not upper.filled
        if self._spare or turned or level in (1, self._ceiling):
            self._rest, self._round = _REST, _Sample(self._high if self._spare else level, now)

    def _look(self, low: float, high: float, now: float) -> None:
        """Try these two next."""
        self._low = int(max(1.0, min(low, self._ceiling)))
        self._high = int(max(self._low, min(max(high, low * _STEP + 1.0), self._ceiling)))
        self._lower = None
        self._round = _Sample(self._low, now)


class _Sample:
    """What batches took while no more than `level` were in flight."""

    __slots__ = ("_began", "_count", "_seconds", "_steady", "level", "most")

    def __init__(self, level: int, now: float) -> None:
        self.level = level
        #: as many were in flight at once
        self.most = 1
        self._began = now
        #: from when on batches count: the first ones met those of another level on their way
        self._steady = float("inf")
        self._count = 0
        self._seconds = 0.0

    @property
    def average(self) -> float:
        return self._seconds / self._count

    @property
    def filled(self) -> bool:
        """The level was reached, so that it may have held something back."""
        return self.most >= self.level

    def add(self, seconds: float, in_flight: int, now: float) -> bool:
        """Answers whether it has seen enough."""
        went = now - seconds
        if went < self._began:
            return False
        if went < self._steady:
            self._steady = min(self._steady, now)
            return False
        self.most = min(self.level, max(self.most, in_flight))
        self._count += 1
        self._seconds += seconds
        return self._count >= max(_LEAST, _FOR_EACH * self.most)

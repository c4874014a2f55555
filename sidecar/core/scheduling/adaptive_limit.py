"""Finds the concurrency with the best throughput, by trying a little less and a little more. Pure."""

from math import sqrt

#: the factor between the levels that are tried
_STEP = 1.25
#: batches in a sample: the minimum, and the number for each batch that may be in flight
_MIN_BATCHES, _PER_LEVEL = 32, 2
#: samples for which the level stays once it is found
_REST = 8
#: the share of a sample that failed, beyond which the service fails
_MOST = 0.5
#: the level does not fall below this for lack of work
_MIN_LEVEL = 4


class AdaptiveLimit:
    """Finds the knee of the throughput curve of whatever is behind the handlers.

    Two levels are tried, one right after the other. More in flight gets more done as long as latency grows by less.
    Where latency grows by the square root of the concurrency, throughput divided by latency is at its best: the level
    rises below that point and falls beyond it. No latency of long ago is remembered, so nothing can drift. A
    sample counts with what was in flight, not with what was allowed, so the level stays near what there is to do.

    What fails is work that was lost: latency counts for what succeeded, divided by the share that did. Records that
    fail at any level change nothing by that; a service that fails for more of them when it is pushed is pushed less. If
    most of a sample failed, there is nothing to compare: the level falls by half of the share that did.
    """

    __slots__ = ("_ceiling", "_high", "_low", "_lower", "_rest", "_rising", "_sample", "_unfilled")

    def __init__(self, level: float, ceiling: float) -> None:
        self._ceiling = ceiling
        self._rising = True
        #: the sample being taken, and the finished one of the lower of the two levels
        self._sample: _Sample
        self._lower: _Sample | None
        self.start(level, float("-inf"))

    @property
    def level(self) -> int:
        """Batches that may be in flight now."""
        return self._sample.level

    def start(self, level: float, now: float) -> None:
        """Start again from this level."""
        #: samples for which nothing is tried
        self._rest = 0
        #: it rests because there was too little to do; that ends when there is more
        self._unfilled = False
        self._try(level, level * _STEP * _STEP, now)

    def settled(self, succeeded: float, failed: float, seconds: float, in_flight: int, now: float) -> None:
        """These shares of a batch succeeded and failed this many seconds after its delivery, with this many batches in
        flight, itself included."""
        tried = self._sample
        if not tried.add(succeeded, failed, seconds, in_flight, now):
            return
        if tried.failed > _MOST:
            self.start(tried.most * (1.0 - tried.failed / 2), now)
        elif self._rest:
            self._rest = 0 if self._unfilled and tried.filled else self._rest - 1
            self._sample = _Sample(tried.level if self._rest else self._low, now)
        elif self._lower is None:
            self._lower = tried
            self._sample = _Sample(self._high, now)
        else:
            self._compare(self._lower, tried, now)

    def _compare(self, lower: "_Sample", upper: "_Sample", now: float) -> None:
        more = upper.most / lower.most
        rising = more > 1.0 and upper.average < lower.average * sqrt(more)
        level = upper.most if rising else lower.level
        if not rising and not lower.filled:
            level = int(min(max(level, _MIN_LEVEL), self._ceiling))
        turned, self._rising = rising is not self._rising, rising
        self._try(level / _STEP, level * _STEP, now)
        # Once the level is found it tries seldom, because trying costs throughput.
        self._unfilled = rising and not upper.filled
        if self._unfilled or turned or level in (1, self._ceiling):
            self._rest, self._sample = _REST, _Sample(self._high if self._unfilled else level, now)

    def _try(self, low: float, high: float, now: float) -> None:
        """Try these two levels next."""
        self._low = int(max(1.0, min(low, self._ceiling)))
        self._high = int(max(self._low, min(max(high, low * _STEP + 1.0), self._ceiling)))
        self._lower = None
        self._sample = _Sample(self._low, now)


class _Sample:
    """Latencies of batches while no more than `level` were in flight."""

    __slots__ = ("_began", "_count", "_seconds", "_steady", "_succeeded", "level", "most")

    def __init__(self, level: int, now: float) -> None:
        self.level = level
        #: the most that were in flight at once
        self.most = 1
        self._began = now
        #: batches delivered from then on count: earlier ones were in flight together with those of another level
        self._steady = float("inf")
        self._count = 0.0
        self._succeeded = 0.0
        self._seconds = 0.0

    @property
    def average(self) -> float:
        """Seconds for a batch that succeeds, and for the share of those that fail."""
        return self._seconds / self._succeeded / (self._succeeded / self._count)

    @property
    def failed(self) -> float:
        """The share that failed."""
        return 1.0 - self._succeeded / self._count

    @property
    def filled(self) -> bool:
        """Whether the level was reached, so that it may have limited something."""
        return self.most >= self.level

    def add(self, succeeded: float, failed: float, seconds: float, in_flight: int, now: float) -> bool:
        """Returns whether the sample is complete."""
        delivered = now - seconds
        if delivered < self._began:
            return False
        if delivered < self._steady:
            self._steady = min(self._steady, now)
            return False
        self.most = min(self.level, max(self.most, in_flight))
        self._count += succeeded + failed
        self._succeeded += succeeded
        self._seconds += seconds * succeeded
        return self._count >= max(_MIN_BATCHES, _PER_LEVEL * self.most)

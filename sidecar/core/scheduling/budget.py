"""How many batches may be in flight, and how many records a second may go. Pure."""

from sidecar.core.scheduling.adaptive_limit import AdaptiveLimit
from sidecar.settings import BudgetSettings

#: no limit in practice
_UNLIMITED = float(1 << 40)
#: what remains of the limit after OVERLOADED, and after a failure
_OVERLOADED, _FAILED = 0.6, 0.9
#: what remains of the limit after a stall: the backlog must not flood what has just recovered
_RESTART = 0.25
#: where an adaptive limit begins
_START = 4.0


class Budget:
    """One limit on concurrency, found by trial, and an optional rate.

    The limit falls by a factor on OVERLOADED, and grows by one batch per round trip while it is used up. What a
    batch says that went before the last fall is old news, so the limit falls once per round trip. If the settings say
    `adaptive` failures count too, and instead of growing the limit climbs to where most gets done.
    """

    def __init__(self, settings: BudgetSettings) -> None:
        self._ceiling = float(settings.concurrency) if settings.concurrency else _UNLIMITED
        self._climb = AdaptiveLimit(_START, self._ceiling) if settings.adaptive else None
        #: at least 1; what it has beyond a whole number has been earned towards the next
        self._limit = float(self._climb.level) if self._climb else self._ceiling
        self._last_cut = float("-inf")
        self._rate = settings.rate
        self._tokens = 1.0
        self._refilled = 0.0

    @property
    def limit(self) -> int:
        """Most batches in flight; 0: no limit."""
        return 0 if self._limit >= _UNLIMITED else int(self._limit)

    def allows(self, in_flight: int, now: float) -> bool:
        """Whether another batch may go while so many are in flight. With none in flight only the rate can say no."""
        if in_flight >= int(self._limit):
            return False
        return self._rate == 0.0 or self._refill(now) > 0.0

    def next_token(self, now: float) -> float | None:
        """When the rate allows the next batch; None if it does now."""
        if self._rate == 0.0 or self._refill(now) > 0.0:
            return None
        return now + (1e-6 - self._tokens) / self._rate

    def sent(self, records: int) -> None:
        """A batch may take more tokens than there are: the next one waits the longer."""
        if self._rate:
            self._tokens -= records

    def success(self, seconds: float, in_flight: int, now: float) -> None:
        """A batch was acked after so many seconds, while so many were in flight, itself included."""
        if self._climb is not None:
            self._climb.done(seconds, in_flight, now)
            self._limit = float(self._climb.level)
        elif self._limit < self._ceiling and in_flight >= 0.8 * int(self._limit):
            self._limit = min(self._ceiling, self._limit + 1.0 / self._limit)

    def failure(self, seconds: float, in_flight: int, now: float) -> None:
        """A batch failed: as with `success`."""
        if self._climb is not None:
            self._cut(_FAILED, seconds, in_flight, now)

    def overloaded(self, seconds: float, in_flight: int, now: float) -> None:
        """A worker asked for less: as with `success`."""
        self._cut(_OVERLOADED, seconds, in_flight, now)

    def restart(self, in_flight: int, now: float) -> None:
        """The handler is back after a stall."""
        if self._climb is not None or self._limit < self._ceiling:
            self._fall(min(self._limit, float(max(in_flight, 4))) * _RESTART, now)

    def _cut(self, factor: float, seconds: float, in_flight: int, now: float) -> None:
        if now - seconds >= self._last_cut:
            self._last_cut = now
            self._fall(min(self._limit, float(in_flight)) * factor, now)

    def _fall(self, limit: float, now: float) -> None:
        self._limit = max(1.0, limit)
        if self._climb is not None:
            self._climb.start(self._limit, now)

    def _refill(self, now: float) -> float:
        # A tenth of a second may be saved up, so that small batches flow smoothly and idle time buys no flood.
        if now > self._refilled:
            most = max(1.0, self._rate * 0.1)
            self._tokens = min(most, self._tokens + (now - self._refilled) * self._rate)
            self._refilled = now
        return self._tokens

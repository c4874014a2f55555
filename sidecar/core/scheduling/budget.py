"""Limits how many batches are in flight, and how many records are delivered per second. Pure."""

from sidecar.core.scheduling.adaptive_limit import AdaptiveLimit
from sidecar.settings import BudgetSettings

_UNLIMITED = float(1 << 40)
#: the share of the limit that remains after OVERLOADED
_OVERLOADED = 0.6
#: the share that remains after an outage: the backlog must not flood the service that has just recovered
_RESTART = 0.25
#: the first value of an adaptive limit
_START = 4.0


class Budget:
    """One limit on concurrency, which adapts to the workers, and an optional rate.

    The limit falls by a factor on OVERLOADED, at most once per round trip: batches that were delivered before the last
    fall do not count. It grows by one batch per round trip while it is used up. With the setting `adaptive`,
    `AdaptiveLimit` finds the value with the best throughput, and failures count as work that was lost.
    """

    def __init__(self, settings: BudgetSettings) -> None:
        self._ceiling = float(settings.concurrency) if settings.concurrency else _UNLIMITED
        self._adaptive = AdaptiveLimit(_START, self._ceiling) if settings.adaptive else None
        #: at least 1; the fraction is growth towards the next whole number
        self._limit = float(self._adaptive.level) if self._adaptive else self._ceiling
        self._last_cut = float("-inf")
        self._rate = settings.rate
        self._tokens = 1.0
        self._refilled = 0.0

    @property
    def limit(self) -> int:
        """Batches that may be in flight; 0: no limit."""
        return 0 if self._limit >= _UNLIMITED else int(self._limit)

    def allows(self, in_flight: int, now: float) -> bool:
        """Whether another batch may be delivered while this many are in flight. If none is, only the rate limits it."""
        if in_flight >= int(self._limit):
            return False
        return self._rate == 0.0 or self._refill(now) > 0.0

    def next_token(self, now: float) -> float | None:
        """When the rate allows the next batch; None if it allows one now."""
        if self._rate == 0.0 or self._refill(now) > 0.0:
            return None
        return now + (1e-6 - self._tokens) / self._rate

    def sent(self, records: int) -> None:
        """A batch was delivered. It may take more tokens than there are: then the next one waits longer."""
        if self._rate:
            self._tokens -= records

    def settled(self, succeeded: float, failed: float, seconds: float, in_flight: int, now: float) -> None:
        """These shares of a batch succeeded and failed this many seconds after its delivery, with this many batches in
        flight, itself included."""
        if self._adaptive is not None:
            self._adaptive.settled(succeeded, failed, seconds, in_flight, now)
            self._limit = float(self._adaptive.level)
        elif self._limit < self._ceiling and in_flight >= 0.8 * int(self._limit):
            self._limit = min(self._ceiling, self._limit + succeeded / self._limit)

    def overloaded(self, seconds: float, in_flight: int, now: float) -> None:
        """A worker asked for less. Arguments as for `settled`."""
        if now - seconds >= self._last_cut:
            self._last_cut = now
            self._fall(min(self._limit, float(in_flight)) * _OVERLOADED, now)

    def restart(self, in_flight: int, now: float) -> None:
        """The handler has recovered from an outage."""
        if self._adaptive is not None or self._limit < self._ceiling:
            self._fall(min(self._limit, float(max(in_flight, 4))) * _RESTART, now)

    def _fall(self, limit: float, now: float) -> None:
        self._limit = max(1.0, limit)
        if self._adaptive is not None:
            self._adaptive.start(self._limit, now)

    def _refill(self, now: float) -> float:
        # Tokens for a tenth of a second are kept: small batches flow smoothly, and idle time allows no burst.
        if now > self._refilled:
            most = max(1.0, self._rate * 0.1)
            self._tokens = min(most, self._tokens + (now - self._refilled) * self._rate)
            self._refilled = now
        return self._tokens

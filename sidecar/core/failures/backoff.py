"""Waits after failures. Pure."""

import random

from sidecar.settings import RetrySettings


class Backoff:
    """Exponential, with jitter, so that records that failed together do not come back together."""

    def __init__(self, first: float, factor: float, longest: float, jitter: float, rng: random.Random) -> None:
        self._first = first
        self._factor = factor
        self._longest = longest
        self._jitter = jitter
        self._random = rng

    @classmethod
    def of(cls, settings: RetrySettings, rng: random.Random) -> "Backoff":
        return cls(settings.first, settings.factor, settings.max, settings.jitter, rng)

    def wait(self, failures: int) -> float:
        """Seconds to wait after this many failures in a row."""
        try:
            full = min(self._longest, self._first * self._factor ** max(0, failures - 1))
        except OverflowError:
            full = self._longest if self._first else 0.0
        return full * (1.0 - self._jitter * self._random.random())

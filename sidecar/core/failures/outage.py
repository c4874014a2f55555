"""Telling an outage of the handler, or a wrong handler, from bad records. Pure."""

from sidecar.settings import OutageSettings


class OutageDetector:
    """Tells an outage of the handler from poison among the records.

    A batch that fails while others succeed has bad records in it; when every batch fails, the handler is down. It is
    down once `failures` different batches failed with no success in between, or as soon as one fails and nothing has
    succeeded lately. Any success ends that.
    """

    def __init__(self, settings: OutageSettings) -> None:
        self._settings = settings
        self._last_success: float | None = None
        #: batches that failed since the last success, by origin
        self._failing: set[int] = set()
        self.down = False

    def success(self, now: float) -> bool:
        """A batch succeeded. Answers whether this ended an outage."""
        recovered, self.down = self.down, False
        self._last_success = now
        if self._failing:
            self._failing = set()
        return recovered

    def failure(self, first_lease: int, now: float) -> bool:
        """A batch failed. Answers whether an outage began with it."""
        if not self._settings.enabled or self.down:
            return False
        self._failing.add(first_lease)
        self.down = len(self._failing) >= self._settings.failures or not self._lately(now)
        return self.down

    def may_split(self, now: float) -> bool:
        """Whether a failing batch is worth looking into: the handler works for others."""
        return not self._settings.enabled or (not self.down and self._lately(now))

    def may_give_up(self, first_failed: float | None) -> bool:
        """Whether a record that failed for the first time then may be given up: others succeeded since."""
        if not self._settings.enabled:
            return True
        if self.down or self._last_success is None or first_failed is None:
            return False
        return self._last_success >= first_failed

    def _lately(self, now: float) -> bool:
        return self._last_success is not None and now - self._last_success <= self._settings.lately


class RejectRateMonitor:
    """The share of rejected records among the last ones settled.

    A handler that rejects nearly everything is more likely wrong than the records are.
    """

    def __init__(self, settings: OutageSettings) -> None:
        self._limit = settings.reject_share
        self._sample = settings.reject_sample
        self._settled = 0.0
        self._rejected = 0.0

    def settled(self, records: int, *, rejected: bool) -> None:
        self._settled += records
        if rejected:
            self._rejected += records
        if self._settled > 2 * self._sample:
            # Old ones fade: halving both keeps the share and lets newer records weigh more.
            self._settled /= 2
            self._rejected /= 2

    def alarming(self) -> bool:
        return self._limit < 1.0 and self._settled >= self._sample and self._rejected > self._limit * self._settled

    def reset(self) -> None:
        self._settled = self._rejected = 0.0

"""Tells an outage of the handler, or a wrong handler, from bad records. Pure."""

from sidecar.settings import OutageSettings


class OutageDetector:
    """Whether the handler is down.

    A batch that fails while others succeed has bad records in it; if every batch fails, the handler is down. It is down
    once `failures` different batches have failed without a success in between, or as soon as one fails and nothing has
    succeeded recently. Any success ends the outage.
    """

    def __init__(self, settings: OutageSettings) -> None:
        self._settings = settings
        self._last_success: float | None = None
        #: batches that failed since the last success, by their first lease
        self._failing: set[int] = set()
        self.down = False

    def success(self, now: float) -> bool:
        """A batch succeeded. Returns whether this ended an outage."""
        recovered, self.down = self.down, False
        self._last_success = now
        if self._failing:
            self._failing = set()
        return recovered

    def failure(self, first_lease: int, now: float) -> bool:
        """A batch failed. Returns whether this began an outage."""
        if not self._settings.enabled or self.down:
            return False
        self._failing.add(first_lease)
        self.down = len(self._failing) >= self._settings.failures or not self._recently(now)
        return self.down

    def may_split(self, now: float) -> bool:
        """Whether to split a failing batch: the handler works for others, so it has bad records in it."""
        return not self._settings.enabled or (not self.down and self._recently(now))

    def may_give_up(self, first_failed: float | None) -> bool:
        """Whether to give up a record that failed for the first time then: another batch has succeeded since."""
        if not self._settings.enabled:
            return True
        if self.down or self._last_success is None or first_failed is None:
            return False
        return self._last_success >= first_failed

    def _recently(self, now: float) -> bool:
        return self._last_success is not None and now - self._last_success <= self._settings.lately


class RejectRateMonitor:
    """The share of rejected records among those settled recently.

    If nearly all records are rejected, the handler is more likely at fault than the records.
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
            # Halving both keeps the share, and gives newer records more weight.
            self._settled /= 2
            self._rejected /= 2

    def alarming(self) -> bool:
        return self._limit < 1.0 and self._settled >= self._sample and self._rejected > self._limit * self._settled

    def reset(self) -> None:
        self._settled = self._rejected = 0.0

"""Tells an outage of the handler, or a wrong handler, from bad records. Pure."""

from sidecar.settings import OutageSettings


class OutageDetector:
    """Whether the handler is down.

    A batch that fails while others succeed has bad records in it; if every batch fails, the handler is down. It is
    considered down once `failures` different batches have failed without a success in between, or as soon as one fails
    and nothing has succeeded recently. Any success ends that.

    Only batches without earlier failures count: a record that fails again after others have succeeded is bad, which
    says nothing about the handler. Bad records may still come in a row. So an outage is certain only when as many
    batches again have failed, or nothing has succeeded recently.
    """

    def __init__(self, settings: OutageSettings) -> None:
        self._settings = settings
        self._last_success: float | None = None
        #: leases that failed since the last success, of records that had not failed before
        self._failing: set[int] = set()
        #: nothing is delivered but probes
        self.down = False
        #: certain enough to alert a person. Implies `down`
        self.certain = False

    def success(self, now: float) -> None:
        """A batch succeeded."""
        self.down = self.certain = False
        self._last_success = now
        if self._failing:
            self._failing = set()

    def failure(self, lease: int, now: float, *, first: bool) -> bool:
        """A batch failed. `first`: none of its records had failed before. Returns whether the handler is
        considered down from now on."""
        if not self._settings.enabled:
            return False
        if first:
            self._failing.add(lease)
        failures, recently = self._settings.failures, self._recently(now)
        if self.down:
            self.certain |= len(self._failing) >= 2 * failures or (bool(self._failing) and not recently)
            return False
        self.down = len(self._failing) >= failures or not recently
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

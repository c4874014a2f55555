"""Decides what happens to records that were not acked. Pure.

- A failing batch is split until the failing record is alone; only then do attempts count.
- A record whose worker has crashed twice is delivered alone; if that worker crashes too, it is given up.
- While the handler is down nothing is split, nothing is given up, and nothing counts against a record.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sidecar.core.failures.backoff import Backoff
from sidecar.core.failures.outage import OutageDetector
from sidecar.core.failures.splitting import split_batch
from sidecar.core.state.record_slices import SUSPECTED, RecordSlice, count
from sidecar.observability.counters import Counters
from sidecar.settings import Exhausted, SubscriptionSettings


@dataclass(frozen=True, slots=True)
class Redeliver:
    """Deliver these records again, together."""

    slices: Sequence[RecordSlice]
    #: seconds from now
    after: float
    isolated: bool
    first_lease: int
    uncounted_failures: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Dead-letter these records."""

    slices: Sequence[RecordSlice]
    reason: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Settle these records: the settings say to drop them."""

    slices: Sequence[RecordSlice]


Decision = Redeliver | DeadLetter | Discard


class FailedRecords(NamedTuple):
    """Records of one lease that failed alike."""

    slices: Sequence[RecordSlice]
    #: the worker singled these records out: they need not be searched for
    blamed: bool
    #: records that the failure is about, including those of lanes that are gone
    covered: int
    #: these three: see `RedeliveryGroup`
    first_lease: int
    uncounted_failures: int
    isolated: bool


class RedeliveryPolicy:
    """Turns failures into decisions. In all methods `in_outage` says that the handler was known to be down before: then
    the failure counts against no record."""

    def __init__(
        self, settings: SubscriptionSettings, outage: OutageDetector, counters: Counters, rng: random.Random
    ) -> None:
        self._retry = settings.retry
        self._order = settings.order
        self._outage = outage
        self._counters = counters
        self._backoff = Backoff.of(settings.retry, rng)

    def failed(
        self,
        failed: FailedRecords,
        now: float,
        *,
        reason: str,
        retry_after: float | None = None,
        possibly_processed: bool = False,
        in_outage: bool = False,
    ) -> list[Decision]:
        """After a nack or an expiry. `possibly_processed`: the worker may have processed them nevertheless."""
        records = count(failed.slices)
        # A record that the worker singled out need not be isolated: it is known which one fails.
        max_batch_size = 0 if failed.blamed and failed.covered == 1 else (records + 1) // 2
        slices = [
            _failed_once(slice_, now, max_batch_size, possibly_processed=possibly_processed) for slice_ in failed.slices
        ]
        if failed.covered == 1:
            return [self._failed_alone(slices[0], failed, reason, retry_after, counts=not in_outage)]
        if self._outage.may_split(now):
            self._counters.splits += 1
            after = retry_after or 0.0
            return [
                Redeliver(half, after, True, failed.first_lease, 0) for half in split_batch(slices, self._order) if half
            ]
        uncounted_failures = failed.uncounted_failures + 1
        after = self._backoff.wait(uncounted_failures) if retry_after is None else retry_after
        return [Redeliver(slices, after, True, failed.first_lease, uncounted_failures)]

    def abandoned(self, failed: FailedRecords, now: float, *, alone: bool, in_outage: bool = False) -> list[Decision]:
        """After a lost session: the worker crashed with these records in hand. `alone`: it had no other batch."""
        together: list[RecordSlice] = []
        decisions: list[Decision] = []
        alone = alone and failed.covered == 1
        for slice_ in failed.slices:
            history = slice_.history
            crashed = slice_.with_history(
                history._replace(
                    failures=history.failures + 1,
                    counted_failures=history.counted_failures + (not in_outage),
                    worker_crashes=history.worker_crashes + (not in_outage),
                    possibly_processed=True,
                    first_failed=now if history.first_failed is None else history.first_failed,
                )
            )
            if crashed.history.worker_crashes < SUSPECTED:
                together.append(crashed)
                continue
            suspected = crashed.with_history(crashed.history._replace(max_batch_size=1))
            for single in suspected.singles():
                decisions.append(self._crashed_again(single, failed, alone=alone))
        if together:
            # Isolated: if one of them crashed the worker, it must not take others with it next time.
            decisions.insert(0, Redeliver(together, 0.0, True, failed.first_lease, failed.uncounted_failures))
        return decisions

    def released(self, failed: FailedRecords) -> list[Decision]:
        """After a release or an orderly end of the session: at once, and it does not count."""
        return [Redeliver(failed.slices, 0.0, failed.isolated, failed.first_lease, failed.uncounted_failures)]

    def unreceived(self, failed: FailedRecords) -> list[Decision]:
        """The batch was written, and its worker says that it did not arrive: at once, and it does not count. Flagged,
        because another process may speak for that worker now."""
        slices = [slice_.with_history(slice_.history._replace(possibly_processed=True)) for slice_ in failed.slices]
        return [Redeliver(slices, 0.0, failed.isolated, failed.first_lease, failed.uncounted_failures)]

    def overloaded(self, failed: FailedRecords, retry_after: float | None) -> list[Decision]:
        """After OVERLOADED: later, and it does not count."""
        uncounted_failures = failed.uncounted_failures + 1
        after = self._backoff.wait(uncounted_failures) if retry_after is None else retry_after
        return [Redeliver(failed.slices, after, failed.isolated, failed.first_lease, uncounted_failures)]

    def _failed_alone(
        self, slice_: RecordSlice, failed: FailedRecords, reason: str, retry_after: float | None, *, counts: bool
    ) -> Decision:
        history = slice_.history
        slice_ = slice_.with_history(
            history._replace(failures=history.failures + 1, counted_failures=history.counted_failures + counts)
        )
        if slice_.history.counted_failures >= self._retry.attempts and self._outage.may_give_up(history.first_failed):
            return self._given_up(slice_, failed, reason, retry_after)
        after = self._backoff.wait(slice_.history.failures) if retry_after is None else retry_after
        return Redeliver([slice_], after, not failed.blamed, failed.first_lease, failed.uncounted_failures)

    def _crashed_again(self, slice_: RecordSlice, failed: FailedRecords, *, alone: bool) -> Decision:
        history = slice_.history
        if alone and history.worker_crashes >= 3 and self._outage.may_give_up(history.first_failed):
            return self._given_up(slice_, failed, "WORKER_DIED", None)
        return Redeliver(
            [slice_],
            self._backoff.wait(history.worker_crashes - 1),
            True,
            failed.first_lease,
            failed.uncounted_failures,
        )

    def _given_up(self, slice_: RecordSlice, failed: FailedRecords, reason: str, retry_after: float | None) -> Decision:
        if self._retry.exhausted is Exhausted.DROP:
            return Discard([slice_])
        if self._retry.exhausted is Exhausted.HOLD:
            after = max(self._retry.max, retry_after or 0.0)
            return Redeliver([slice_], after, True, failed.first_lease, failed.uncounted_failures)
        return DeadLetter([slice_], reason)


def _failed_once(slice_: RecordSlice, now: float, max_batch_size: int, *, possibly_processed: bool) -> RecordSlice:
    history = slice_.history
    return slice_.with_history(
        history._replace(
            first_failed=now if history.first_failed is None else history.first_failed,
            possibly_processed=history.possibly_processed or possibly_processed,
            max_batch_size=max_batch_size,
        )
    )

"""What becomes of records that were not acked. Pure: a failure comes in, moves come out.

- A failing batch is split until the failing record is alone; only then do attempts count.
- A record whose worker died twice is delivered alone; when that kills its worker too, it is given up.
- While the handler is down nothing is split, nothing is given up, and nothing speaks against a record.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sidecar.core.failures.backoff import Backoff
from sidecar.core.failures.outage import OutageDetector
from sidecar.core.failures.splitting import split_batch
from sidecar.core.state.record_slices import SUSPECTED, RecordSlice, count
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
    """Count these records as settled: the user chose to lose them."""

    slices: Sequence[RecordSlice]


Decision = Redeliver | DeadLetter | Discard


class FailedRecords(NamedTuple):
    """Records of one lease that fared alike."""

    slices: Sequence[RecordSlice]
    #: the worker named these records among others: they need not be looked for
    blamed: bool
    #: how many records the failure was about; some of them may have moved away
    covered: int
    #: where they come from: see `Parcel`
    first_lease: int
    uncounted_failures: int
    #: they were delivered with nothing else
    isolated: bool


class RedeliveryPolicy:
    def __init__(self, settings: SubscriptionSettings, outage: OutageDetector, rng: random.Random) -> None:
        self._retry = settings.retry
        self._order = settings.order
        self._outage = outage
        self._backoff = Backoff.of(settings.retry, rng)
        #: how often a failing batch was split
        self.splits = 0

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
        """After a nack, or an expiry (`doubtful`: the worker may have done it all the same).

        `in_outage`: the handler was known to be down, so that this says nothing about the records.
        """
        records = count(failed.slices)
        # A record that the worker named need not be kept apart: it is known which one fails.
        max_batch_size = 0 if failed.blamed and failed.covered == 1 else (records + 1) // 2
        slices = [
            _failed_once(slice_, now, max_batch_size, possibly_processed=possibly_processed) for slice_ in failed.slices
        ]
        if failed.covered == 1:
            return [self._failed_alone(slices[0], failed, reason, retry_after, strike=not in_outage)]
        if self._outage.may_split(now):
            self.splits += 1
            after = retry_after or 0.0
            return [
                Redeliver(half, after, True, failed.first_lease, 0) for half in split_batch(slices, self._order) if half
            ]
        uncounted_failures = failed.uncounted_failures + 1
        after = self._backoff.wait(uncounted_failures) if retry_after is None else retry_after
        return [Redeliver(slices, after, True, failed.first_lease, uncounted_failures)]

    def abandoned(self, failed: FailedRecords, now: float, *, alone: bool, in_outage: bool = False) -> list[Decision]:
        """After the session was lost: the worker died with these records in its hands; `alone`: and with no others.

        `in_outage`: as in `failed`.
        """
        together: list[RecordSlice] = []
        moves: list[Decision] = []
        alone = alone and failed.covered == 1
        for slice_ in failed.slices:
            history = slice_.history
            died = slice_.with_history(
                history._replace(
                    failures=history.failures + 1,
                    counted_failures=history.counted_failures + (not in_outage),
                    worker_crashes=history.worker_crashes + (not in_outage),
                    possibly_processed=True,
                    first_failed=now if history.first_failed is None else history.first_failed,
                )
            )
            if died.history.worker_crashes < SUSPECTED:
                together.append(died)
                continue
            alone_from_now_on = died.with_history(died.history._replace(max_batch_size=1))
            for single in alone_from_now_on.singles():
                moves.append(self._died_again(single, failed, alone=alone))
        if together:
            # By themselves: if one of them killed the worker, it must not take others with it next time.
            moves.insert(0, Redeliver(together, 0.0, True, failed.first_lease, failed.uncounted_failures))
        return moves

    def released(self, failed: FailedRecords) -> list[Decision]:
        """After a release, or an orderly end of the session: at once, and nothing counts."""
        return [Redeliver(failed.slices, 0.0, failed.isolated, failed.first_lease, failed.uncounted_failures)]

    def overloaded(self, failed: FailedRecords, retry_after: float | None) -> list[Decision]:
        """Later, and nothing counts."""
        uncounted_failures = failed.uncounted_failures + 1
        after = self._backoff.wait(uncounted_failures) if retry_after is None else retry_after
        return [Redeliver(failed.slices, after, failed.isolated, failed.first_lease, uncounted_failures)]

    def _failed_alone(
        self, slice_: RecordSlice, failed: FailedRecords, reason: str, retry_after: float | None, *, strike: bool
    ) -> Decision:
        history = slice_.history
        slice_ = slice_.with_history(
            history._replace(failures=history.failures + 1, counted_failures=history.counted_failures + strike)
        )
        if slice_.history.counted_failures >= self._retry.attempts and self._outage.may_give_up(history.first_failed):
            return self._given_up(slice_, failed, reason, retry_after)
        after = self._backoff.wait(slice_.history.failures) if retry_after is None else retry_after
        return Redeliver([slice_], after, not failed.blamed, failed.first_lease, failed.uncounted_failures)

    def _died_again(self, slice_: RecordSlice, failed: FailedRecords, *, alone: bool) -> Decision:
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

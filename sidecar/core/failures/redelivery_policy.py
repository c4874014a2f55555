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

    spans: Sequence[RecordSlice]
    #: seconds from now
    after: float
    apart: bool
    origin: int
    uncounted_failures: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Dead-letter these records."""

    spans: Sequence[RecordSlice]
    reason: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Count these records as settled: the user chose to lose them."""

    spans: Sequence[RecordSlice]


Decision = Redeliver | DeadLetter | Discard


class FailedRecords(NamedTuple):
    """Records of one lease that fared alike."""

    spans: Sequence[RecordSlice]
    #: the worker named these records among others: they need not be looked for
    named: bool
    #: how many records the failure was about; some of them may have moved away
    meant: int
    #: where they come from: see `Parcel`
    origin: int
    uncounted_failures: int
    #: they were delivered with nothing else
    apart: bool


class RedeliveryPolicy:
    def __init__(self, settings: SubscriptionSettings, guard: OutageDetector, rng: random.Random) -> None:
        self._retry = settings.retry
        self._order = settings.order
        self._guard = guard
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
        doubtful: bool = False,
        in_outage: bool = False,
    ) -> list[Decision]:
        """After a nack, or an expiry (`doubtful`: the worker may have done it all the same).

        `in_outage`: the handler was known to be down, so that this says nothing about the records.
        """
        records = count(failed.spans)
        # A record that the worker named need not be kept apart: it is known which one fails.
        company = 0 if failed.named and failed.meant == 1 else (records + 1) // 2
        spans = [_failed_once(span, now, company, doubtful=doubtful) for span in failed.spans]
        if failed.meant == 1:
            return [self._failed_alone(spans[0], failed, reason, retry_after, strike=not in_outage)]
        if self._guard.may_split(now):
            self.splits += 1
            after = retry_after or 0.0
            return [Redeliver(half, after, True, failed.origin, 0) for half in split_batch(spans, self._order) if half]
        uncounted_failures = failed.uncounted_failures + 1
        after = self._backoff.wait(uncounted_failures) if retry_after is None else retry_after
        return [Redeliver(spans, after, True, failed.origin, uncounted_failures)]

    def abandoned(self, failed: FailedRecords, now: float, *, alone: bool, in_outage: bool = False) -> list[Decision]:
        """After the session was lost: the worker died with these records in its hands; `alone`: and with no others.

        `in_outage`: as in `failed`.
        """
        together: list[RecordSlice] = []
        moves: list[Decision] = []
        alone = alone and failed.meant == 1
        for span in failed.spans:
            history = span.history
            died = span.with_history(
                history._replace(
                    failures=history.failures + 1,
                    counted_failures=history.counted_failures + (not in_outage),
                    worker_crashes=history.worker_crashes + (not in_outage),
                    doubtful=True,
                    first_failed=now if history.first_failed is None else history.first_failed,
                )
            )
            if died.history.worker_crashes < SUSPECTED:
                together.append(died)
                continue
            alone_from_now_on = died.with_history(died.history._replace(company=1))
            for single in alone_from_now_on.singles():
                moves.append(self._died_again(single, failed, alone=alone))
        if together:
            # By themselves: if one of them killed the worker, it must not take others with it next time.
            moves.insert(0, Redeliver(together, 0.0, True, failed.origin, failed.uncounted_failures))
        return moves

    def released(self, failed: FailedRecords) -> list[Decision]:
        """After a release, or an orderly end of the session: at once, and nothing counts."""
        return [Redeliver(failed.spans, 0.0, failed.apart, failed.origin, failed.uncounted_failures)]

    def overloaded(self, failed: FailedRecords, retry_after: float | None) -> list[Decision]:
        """Later, and nothing counts."""
        uncounted_failures = failed.uncounted_failures + 1
        after = self._backoff.wait(uncounted_failures) if retry_after is None else retry_after
        return [Redeliver(failed.spans, after, failed.apart, failed.origin, uncounted_failures)]

    def _failed_alone(
        self, span: RecordSlice, failed: FailedRecords, reason: str, retry_after: float | None, *, strike: bool
    ) -> Decision:
        history = span.history
        span = span.with_history(
            history._replace(failures=history.failures + 1, counted_failures=history.counted_failures + strike)
        )
        if span.history.counted_failures >= self._retry.attempts and self._guard.may_give_up(history.first_failed):
            return self._given_up(span, failed, reason, retry_after)
        after = self._backoff.wait(span.history.failures) if retry_after is None else retry_after
        return Redeliver([span], after, not failed.named, failed.origin, failed.uncounted_failures)

    def _died_again(self, span: RecordSlice, failed: FailedRecords, *, alone: bool) -> Decision:
        history = span.history
        if alone and history.worker_crashes >= 3 and self._guard.may_give_up(history.first_failed):
            return self._given_up(span, failed, "WORKER_DIED", None)
        return Redeliver(
            [span], self._backoff.wait(history.worker_crashes - 1), True, failed.origin, failed.uncounted_failures
        )

    def _given_up(self, span: RecordSlice, failed: FailedRecords, reason: str, retry_after: float | None) -> Decision:
        if self._retry.exhausted is Exhausted.DROP:
            return Discard([span])
        if self._retry.exhausted is Exhausted.HOLD:
            after = max(self._retry.max, retry_after or 0.0)
            return Redeliver([span], after, True, failed.origin, failed.uncounted_failures)
        return DeadLetter([span], reason)


def _failed_once(span: RecordSlice, now: float, company: int, *, doubtful: bool) -> RecordSlice:
    history = span.history
    return span.with_history(
        history._replace(
            first_failed=now if history.first_failed is None else history.first_failed,
            doubtful=history.doubtful or doubtful,
            company=company,
        )
    )

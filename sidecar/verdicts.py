"""What becomes of records that were not acked. Pure: a failure comes in, moves come out.

- A failing batch is split until the failing record is alone; only then do attempts count.
- A record whose worker died twice is delivered alone; when that kills its worker too, it is given up.
- While the handler is down nothing is split, nothing is given up, and nothing speaks against a record.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sidecar.retry import Backoff, OutageGuard, halves
from sidecar.settings import Exhausted, SubscriptionSettings
from sidecar.spans import SUSPECTED, Span, count


@dataclass(frozen=True, slots=True)
class Back:
    """Deliver these records again, together."""

    spans: Sequence[Span]
    #: seconds from now
    after: float
    apart: bool
    origin: int
    setbacks: int


@dataclass(frozen=True, slots=True)
class Dead:
    """Dead-letter these records."""

    spans: Sequence[Span]
    reason: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Count these records as settled: the user chose to lose them."""

    spans: Sequence[Span]


Move = Back | Dead | Drop


class Failed(NamedTuple):
    """Records of one lease that fared alike."""

    spans: Sequence[Span]
    #: the worker named these records among others: they need not be looked for
    named: bool
    #: how many records the failure was about; some of them may have moved away
    meant: int
    #: where they come from: see `Parcel`
    origin: int
    setbacks: int
    #: they were delivered with nothing else
    apart: bool


class Verdicts:
    def __init__(self, settings: SubscriptionSettings, guard: OutageGuard, rng: random.Random) -> None:
        self._retry = settings.retry
        self._order = settings.order
        self._guard = guard
        self._backoff = Backoff.of(settings.retry, rng)
        #: how often a failing batch was split
        self.splits = 0

    def failed(
        self,
        failed: Failed,
        now: float,
        *,
        reason: str,
        retry_after: float | None = None,
        doubtful: bool = False,
        in_outage: bool = False,
    ) -> list[Move]:
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
            return [Back(half, after, True, failed.origin, 0) for half in halves(spans, self._order) if half]
        setbacks = failed.setbacks + 1
        after = self._backoff.wait(setbacks) if retry_after is None else retry_after
        return [Back(spans, after, True, failed.origin, setbacks)]

    def abandoned(self, failed: Failed, now: float, *, alone: bool, in_outage: bool = False) -> list[Move]:
        """After the session was lost: the worker died with these records in its hands; `alone`: and with no others.

        `in_outage`: as in `failed`.
        """
        together: list[Span] = []
        moves: list[Move] = []
        alone = alone and failed.meant == 1
        for span in failed.spans:
            history = span.history
            died = span.with_history(
                history._replace(
                    failures=history.failures + 1,
                    strikes=history.strikes + (not in_outage),
                    deaths=history.deaths + (not in_outage),
                    doubtful=True,
                    first_failed=now if history.first_failed is None else history.first_failed,
                )
            )
            if died.history.deaths < SUSPECTED:
                together.append(died)
                continue
            alone_from_now_on = died.with_history(died.history._replace(company=1))
            for single in alone_from_now_on.singles():
                moves.append(self._died_again(single, failed, alone=alone))
        if together:
            # By themselves: if one of them killed the worker, it must not take others with it next time.
            moves.insert(0, Back(together, 0.0, True, failed.origin, failed.setbacks))
        return moves

    def released(self, failed: Failed) -> list[Move]:
        """After a release, or an orderly end of the session: at once, and nothing counts."""
        return [Back(failed.spans, 0.0, failed.apart, failed.origin, failed.setbacks)]

    def overloaded(self, failed: Failed, retry_after: float | None) -> list[Move]:
        """Later, and nothing counts."""
        setbacks = failed.setbacks + 1
        after = self._backoff.wait(setbacks) if retry_after is None else retry_after
        return [Back(failed.spans, after, failed.apart, failed.origin, setbacks)]

    def _failed_alone(
        self, span: Span, failed: Failed, reason: str, retry_after: float | None, *, strike: bool
    ) -> Move:
        history = span.history
        span = span.with_history(history._replace(failures=history.failures + 1, strikes=history.strikes + strike))
        if span.history.strikes >= self._retry.attempts and self._guard.may_give_up(history.first_failed):
            return self._given_up(span, failed, reason, retry_after)
        after = self._backoff.wait(span.history.failures) if retry_after is None else retry_after
        return Back([span], after, not failed.named, failed.origin, failed.setbacks)

    def _died_again(self, span: Span, failed: Failed, *, alone: bool) -> Move:
        history = span.history
        if alone and history.deaths >= 3 and self._guard.may_give_up(history.first_failed):
            return self._given_up(span, failed, "WORKER_DIED", None)
        return Back([span], self._backoff.wait(history.deaths - 1), True, failed.origin, failed.setbacks)

    def _given_up(self, span: Span, failed: Failed, reason: str, retry_after: float | None) -> Move:
        if self._retry.exhausted is Exhausted.DROP:
            return Drop([span])
        if self._retry.exhausted is Exhausted.HOLD:
            after = max(self._retry.max, retry_after or 0.0)
            return Back([span], after, True, failed.origin, failed.setbacks)
        return Dead([span], reason)


def _failed_once(span: Span, now: float, company: int, *, doubtful: bool) -> Span:
    history = span.history
    return span.with_history(
        history._replace(
            first_failed=now if history.first_failed is None else history.first_failed,
            doubtful=history.doubtful or doubtful,
            company=company,
        )
    )

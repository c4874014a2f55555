"""Home: taking the word of workers, and doing what follows from it."""

import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from time import time_ns

from sidecar.brokers.base import Broker
from sidecar.core.failures import dead_letter_topic, retry_topic
from sidecar.core.failures.backoff import Backoff
from sidecar.core.failures.outage import OutageDetector, RejectRateMonitor
from sidecar.core.failures.redelivery_policy import (
    DeadLetter,
    Decision,
    Discard,
    FailedRecords,
    Redeliver,
    RedeliveryPolicy,
)
from sidecar.core.scheduling.budget import Budget
from sidecar.core.state.lane import LanePhase
from sidecar.core.state.leases import (
    Lease,
    LeasePhase,
    SettledPart,
    drop_revoked,
    forget_records,
    forget_unless_waiting,
)
from sidecar.core.state.record_slices import RecordSlice, RedeliveryGroup, RedeliveryState, count
from sidecar.core.tracker import RecordTracker
from sidecar.model.clock import Clock
from sidecar.model.records import Order, Outcome, SessionEnd, Settlement, SettleResult, SettleStatus
from sidecar.observability.tracing import Spans
from sidecar.settings import Oversized, SubscriptionSettings
from sidecar.subscription.delivery import Deliverer
from sidecar.subscription.session import Session
from sidecar.subscription.side_topic_writer import PendingWrite, SideTopicWriter

#: why a record is parked that only waits, and holds up its lane by that
_WINDOW_FULL = "its lane had no room left while it waited for its retry"


class SettlementHandler:
    """Everything that can happen to a lease once it was delivered."""

    def __init__(
        self,
        settings: SubscriptionSettings,
        books: RecordTracker,
        clock: Clock,
        broker: Broker,
        guard: OutageDetector,
        budget: Budget,
        rng: random.Random,
        *,
        settled: Callable[[], None],
        pause: Callable[[str], None],
        spans: Spans | None = None,
    ) -> None:
        self._settings = settings
        self._books = books
        self._clock = clock
        self._guard = guard
        self._budget = budget
        self._verdicts = RedeliveryPolicy(settings, guard, rng)
        self._settled = settled
        self._pause = pause
        self._spans = spans
        self.rejects = RejectRateMonitor(settings.outage)
        #: a record that is held because no connected client takes it
        self._held: RedeliveryGroup | None = None
        self._parks = settings.parking.enabled and settings.order is Order.NONE
        backoff = Backoff(0.1, 2.0, 10.0, 0.2, rng)
        self._parking = SideTopicWriter(
            broker,
            settings.retry_topic,
            settings.parking.lanes,
            backoff,
            doing="park",
            done=self._parked,
            trouble=partial(books.note, "parking"),
            too_large=self._stays_here,
        )
        self._dead_lettering = SideTopicWriter(
            broker,
            settings.dead_letter_topic,
            1,
            backoff,
            doing="dead-letter",
            done=self._dead_lettered,
            trouble=partial(books.note, "dead_letters"),
        )
        self.writers = (self._parking, self._dead_lettering)
        self.delivering: Deliverer

    def settle(self, settlements: Iterable[Settlement], now: float) -> list[SettleResult]:
        """Take the word of workers, which must have passed `Leases.check`."""
        results = [self._settle(settlement, now) for settlement in settlements]
        self._settled()
        return results

    def _settle(self, settlement: Settlement, now: float) -> SettleResult:
        books = self._books
        began = time_ns() if self._spans is not None else 0
        result, lease, settled = books.leases.settle(settlement)
        if lease is None:
            books.counters.unknown_settlements += 1
            return result
        late = lease.phase is LeasePhase.ENDED
        for each in settled:
            (books.remove_waiting_records if late else books.leave_flight)(each.spans)
        if any(span.lane.phase is LanePhase.GONE for each in settled for span in each.spans):
            result, settled = drop_revoked(lease, result, settled)
        if self._spans is not None:
            self._spans.settled(began, lease, settlement, result)
        if result.status is SettleStatus.STALE:
            books.counters.stale_settlements += 1
        # What succeeded first: a batch of which a part succeeds is no sign of an outage, whatever its order.
        in_outage: bool | None = None
        for each in sorted(settled, key=_failed_later) if len(settled) > 1 else settled:
            if in_outage is None and each.part.outcome is Outcome.NACK:
                # Known before this batch failed: its own first part says nothing about its second.
                in_outage = self._guard.down
            self._settle_part(lease, each, now, in_outage=bool(in_outage))
        if lease.phase is LeasePhase.SETTLED and lease.id in lease.holder.leases:
            books.meters.settle_seconds.observe(now - lease.granted)
            self.delivering.release_lease(lease)
            forget_records(lease)
        if self._held is not None and self._held.state is not RedeliveryState.WAITING:
            self._held = None
            self._books.note("oversized", "")
        return result

    def session_ended(self, session: Session, how: SessionEnd, now: float) -> None:
        counters = self._books.counters
        # Only what a dead worker process had alone in its hands can be blamed for it.
        alone = len(session.leases) == 1
        for lease in [*session.leases.values()]:
            spans = self._end(lease)
            failed = _failed(lease, spans)
            if how is SessionEnd.LOST:
                counters.abandoned += count(spans)
                moves = self._verdicts.abandoned(failed, now, alone=alone, in_outage=self._guard.down)
                self._apply(moves, lease, now, "WORKER_DIED", redeliveries=True)
            else:
                counters.released += count(spans)
                self._apply(self._verdicts.released(failed), lease, now, "released", redeliveries=True)
            forget_unless_waiting(lease)
        self._settled()

    def expire(self, now: float) -> None:
        """End the leases whose time is over."""
        for lease in self._books.leases.expire(now):
            spans = self._end(lease)
            self._books.counters.expired += count(spans)
            if spans:
                in_outage = self._batch_failed(lease, now)
                moves = self._verdicts.failed(
                    _failed(lease, spans), now, reason="EXPIRED", doubtful=True, in_outage=in_outage
                )
                self._apply(moves, lease, now, "EXPIRED", redeliveries=True)
            forget_unless_waiting(lease)
            self._settled()

    def park_when_window_full(self, now: float) -> None:
        """A lane whose window is full waits for its slowest records: those that only wait are put aside."""
        # Often asked and seldom needed: looking at the lanes first spares looking at all that waits in the retry topic.
        lanes = {lane for lane in self._books.lanes.values() if lane.waiting and not lane.parked and lane.window.full()}
        if not lanes or not self._parks:
            return
        for parcel in [*self._books.dispatcher.waiting()]:
            if parcel.due > now and not parcel.stays and any(span.lane in lanes for span in parcel.spans):
                self._books.close_waiting_group(parcel, RedeliveryState.ASIDE)
                self._park(parcel, now, _WINDOW_FULL)

    def oversized(self, sessions: Iterable[Session], parcels: Iterable[RedeliveryGroup]) -> None:
        """Records that some worker cannot take. If no worker can, do as the settings say."""
        largest = max((session.hard_bytes for session in sessions), default=0)
        for parcel in parcels:
            span = parcel.spans[0]
            bytes_ = span.chunk.size(span.start, span.start + 1)
            if bytes_ <= largest or parcel.state is not RedeliveryState.WAITING:
                continue
            where = f"{span.chunk.shown}/{span.chunk.positions[span.start]}"
            text = f"{bytes_} bytes are more than any connected client takes ({largest})"
            if self._settings.oversized is Oversized.HOLD:
                # One of them is enough to tell of.
                if self._held is None or self._held.state is not RedeliveryState.WAITING:
                    self._held = parcel
                    self._books.note("oversized", f"the record {where} is held: {text}")
            else:
                self._books.close_waiting_group(parcel, RedeliveryState.ASIDE)
                self._dead_letter(parcel.spans, f"TOO_LARGE: {text}", worker="")

    def _settle_part(self, lease: Lease[Session], settled: SettledPart, now: float, *, in_outage: bool) -> None:
        spans, part, named, meant = settled
        counters = self._books.counters
        self.rejects.settled(part.count, rejected=part.outcome is Outcome.REJECT)
        if part.outcome is Outcome.ACK:
            counters.acked += part.count
            self._books.settle(spans)
            self._budget.success(now - lease.granted, len(self._books.leases) + 1, now)
            if self._guard.success(now):
                self._recovered(now)
            return
        failed = FailedRecords(spans, named, meant, lease.origin, lease.uncounted_failures, lease.apart)
        match part.outcome:
            case Outcome.NACK:
                counters.nacked += part.count
                if not part.retry_after:
                    # A handler that says when to come back is not down.
                    self._batch_failed(lease, now)
                moves = self._verdicts.failed(
                    failed, now, reason=part.reason, retry_after=part.retry_after, in_outage=in_outage
                )
                self._apply(moves, lease, now, part.reason)
            case Outcome.RELEASE:
                counters.released += part.count
                self._apply(self._verdicts.released(failed), lease, now, part.reason)
            case Outcome.OVERLOADED:
                counters.overloaded += part.count
                self._budget.overloaded(now - lease.granted, len(self._books.leases) + 1, now)
                self._apply(
                    self._verdicts.overloaded(failed, part.retry_after), lease, now, part.reason or "overloaded"
                )
            case Outcome.REJECT:
                counters.rejected += part.count
                self._dead_letter(spans, f"REJECTED: {part.reason}" if part.reason else "REJECTED", lease.holder.name)
                if self.rejects.alarming():
                    self._pause("too many records are rejected; look at the dead letters, then resume")

    def _batch_failed(self, lease: Lease[Session], now: float) -> bool:
        """Answers whether the handler was known to be down before this."""
        in_outage = self._guard.down
        self._budget.failure(now - lease.granted, len(self._books.leases) + 1, now)
        if self._guard.failure(lease.origin, now):
            self._books.note(
                "outage", "the handler fails for everything: single probes until one succeeds, nothing is dead-lettered"
            )
            self.delivering.outage_began(now)
        return in_outage

    def _recovered(self, now: float) -> None:
        self._books.note("outage", "")
        self._budget.restart(len(self._books.leases), now)

    def _end(self, lease: Lease[Session]) -> list[RecordSlice]:
        """End a lease without a word of its worker. Answers what is unsettled of it and still ours."""
        spans = self._books.leases.end(lease)
        self._books.leave_flight(spans)
        self.delivering.release_lease(lease)
        return [span for span in spans if span.lane.phase is not LanePhase.GONE]

    def _apply(
        self, moves: Sequence[Decision], lease: Lease[Session], now: float, reason: str, *, redeliveries: bool = False
    ) -> None:
        """Do what the verdicts say. `heirs`: the lease ended, and may be settled while its records wait."""
        self._books.counters.splits = self._verdicts.splits
        for move in moves:
            match move:
                case Redeliver():
                    parcel = RedeliveryGroup(
                        [*move.spans], now + move.after, move.apart, move.origin, move.uncounted_failures
                    )
                    if redeliveries:
                        parcel.expired_lease = lease
                        lease.redeliveries.append(parcel)
                    self._put_back(parcel, now, reason)
                case DeadLetter():
                    self._dead_letter(move.spans, move.reason, lease.holder.name)
                case Discard():
                    self._books.counters.dropped += count(move.spans)
                    self._books.settle(move.spans)

    def _put_back(self, parcel: RedeliveryGroup, now: float, reason: str) -> None:
        parcel.spans = [span for span in parcel.spans if span.lane.phase is LanePhase.ACTIVE]
        if not parcel.spans:
            parcel.state = RedeliveryState.GONE
        elif self._parks and parcel.due - now > self._settings.parking.after:
            parcel.state = RedeliveryState.ASIDE
            self._park(parcel, now, reason)
        else:
            self._books.put_back(parcel, now)

    def _park(self, parcel: RedeliveryGroup, now: float, reason: str) -> None:
        self._books.parked_for.add(reason, parcel.records)
        wall, lanes = self._clock.wall_ms(), self._settings.parking.lanes
        for span in parcel.spans:
            span.lane.aside += span.records
            for single in span.singles():
                message = retry_topic.park(single, now=now, due=parcel.due, wall_ms=wall, lanes=lanes)
                self._parking.add(PendingWrite(single, message, parcel.due))

    def _dead_letter(self, spans: Iterable[RecordSlice], reason: str, worker: str) -> None:
        wall, group = self._clock.wall_ms(), self._settings.group_name
        for span in spans:
            self._books.dead_for.add(reason, span.records)
            span.lane.aside += span.records
            for single in span.singles():
                message = dead_letter_topic.write(single, group=group, reason=reason, worker=worker, wall_ms=wall)
                self._dead_lettering.add(PendingWrite(single, message))

    def _stays_here(self, aside: PendingWrite) -> None:
        """With what is written beside it, it is too large for the retry topic: it waits in memory."""
        lane = aside.span.lane
        if lane.phase is not LanePhase.GONE:
            lane.aside -= 1
        if lane.phase is LanePhase.ACTIVE:
            self._books.put_back(RedeliveryGroup([aside.span], aside.due, stays=True), self._clock.now())
        self._settled()

    def _parked(self, written: Sequence[PendingWrite]) -> None:
        self._books.counters.parked += len(written)
        self._are_aside(written)

    def _dead_lettered(self, written: Sequence[PendingWrite]) -> None:
        self._books.counters.dead_lettered += len(written)
        self._are_aside(written)

    def _are_aside(self, written: Sequence[PendingWrite]) -> None:
        """Only now, with the record durably aside, does it count as settled."""
        for aside in written:
            if aside.span.lane.phase is not LanePhase.GONE:
                aside.span.lane.aside -= 1
                self._books.settle([aside.span])
        self._settled()


def _failed_later(settled: SettledPart) -> bool:
    return settled.part.outcome is not Outcome.ACK


def _failed(lease: Lease[Session], spans: Sequence[RecordSlice]) -> FailedRecords:
    meant = lease.records - len(lease.settled or ())
    return FailedRecords(spans, False, meant, lease.origin, lease.uncounted_failures, lease.apart)

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
from sidecar.observability.tracing import Tracer
from sidecar.settings import Oversized, SubscriptionSettings
from sidecar.subscription.delivery import Deliverer
from sidecar.subscription.session import Session
from sidecar.subscription.side_topic_writer import PendingWrite, SideTopicWriter
from sidecar.subscription.troubles import Troubles

#: why a record is parked that only waits, and holds up its lane by that
_WINDOW_FULL = "its lane had no room left while it waited for its retry"


class SettlementHandler:
    """Everything that can happen to a lease once it was delivered."""

    def __init__(
        self,
        settings: SubscriptionSettings,
        tracker: RecordTracker[Session],
        troubles: Troubles,
        clock: Clock,
        broker: Broker,
        outage: OutageDetector,
        budget: Budget,
        rng: random.Random,
        *,
        settled: Callable[[], None],
        pause: Callable[[str], None],
        tracer: Tracer | None = None,
    ) -> None:
        self._settings = settings
        self._tracker = tracker
        self._troubles = troubles
        self._clock = clock
        self._outage = outage
        self._budget = budget
        self._verdicts = RedeliveryPolicy(settings, outage, rng)
        self._settled = settled
        self._pause = pause
        self._tracer = tracer
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
            trouble=partial(troubles.set, "parking"),
            too_large=self._stays_here,
        )
        self._dead_lettering = SideTopicWriter(
            broker,
            settings.dead_letter_topic,
            1,
            backoff,
            doing="dead-letter",
            done=self._dead_lettered,
            trouble=partial(troubles.set, "dead_letters"),
        )
        self.writers = (self._parking, self._dead_lettering)
        self.delivering: Deliverer

    def settle(self, settlements: Iterable[Settlement], now: float) -> list[SettleResult]:
        """Take the word of workers, which must have passed `Leases.check`."""
        results = [self._settle(settlement, now) for settlement in settlements]
        self._settled()
        return results

    def _settle(self, settlement: Settlement, now: float) -> SettleResult:
        tracker = self._tracker
        began = time_ns() if self._tracer is not None else 0
        result, lease, settled = tracker.leases.settle(settlement)
        if lease is None:
            tracker.counters.unknown_settlements += 1
            return result
        late = lease.phase is LeasePhase.ENDED
        for each in settled:
            (tracker.remove_waiting_records if late else tracker.leave_flight)(each.slices)
        if any(slice_.lane.phase is LanePhase.GONE for each in settled for slice_ in each.slices):
            result, settled = drop_revoked(lease, result, settled)
        if self._tracer is not None:
            self._tracer.settled(began, lease, settlement, result)
        if result.status is SettleStatus.STALE:
            tracker.counters.stale_settlements += 1
        # What succeeded first: a batch of which a part succeeds is no sign of an outage, whatever its order.
        in_outage: bool | None = None
        for each in sorted(settled, key=_failed_later) if len(settled) > 1 else settled:
            if in_outage is None and each.part.outcome is Outcome.NACK:
                # Known before this batch failed: its own first part says nothing about its second.
                in_outage = self._outage.down
            self._settle_part(lease, each, now, in_outage=bool(in_outage))
        if lease.phase is LeasePhase.SETTLED and lease.id in lease.holder.leases:
            tracker.meters.settle_seconds.observe(now - lease.granted)
            self.delivering.release_lease(lease)
            forget_records(lease)
        if self._held is not None and self._held.state is not RedeliveryState.WAITING:
            self._held = None
            self._troubles.clear("oversized")
        return result

    def session_ended(self, session: Session, how: SessionEnd, now: float) -> None:
        counters = self._tracker.counters
        # Only what a dead worker process had alone in its hands can be blamed for it.
        alone = len(session.leases) == 1
        for lease in [*session.leases.values()]:
            slices = self._end(lease)
            failed = _failed(lease, slices)
            if how is SessionEnd.LOST:
                counters.abandoned += count(slices)
                moves = self._verdicts.abandoned(failed, now, alone=alone, in_outage=self._outage.down)
                self._apply(moves, lease, now, "WORKER_DIED", redeliveries=True)
            else:
                counters.released += count(slices)
                self._apply(self._verdicts.released(failed), lease, now, "released", redeliveries=True)
            forget_unless_waiting(lease)
        self._settled()

    def expire(self, now: float) -> None:
        """End the leases whose time is over."""
        for lease in self._tracker.leases.expire(now):
            slices = self._end(lease)
            self._tracker.counters.expired += count(slices)
            if slices:
                in_outage = self._batch_failed(lease, now)
                moves = self._verdicts.failed(
                    _failed(lease, slices), now, reason="EXPIRED", possibly_processed=True, in_outage=in_outage
                )
                self._apply(moves, lease, now, "EXPIRED", redeliveries=True)
            forget_unless_waiting(lease)
            self._settled()

    def park_when_window_full(self, now: float) -> None:
        """A lane whose window is full waits for its slowest records: those that only wait are put aside."""
        # Often asked and seldom needed: looking at the lanes first spares looking at all that waits in the retry topic.
        lanes = {
            lane for lane in self._tracker.lanes.values() if lane.waiting and not lane.parked and lane.window.full()
        }
        if not lanes or not self._parks:
            return
        for group in [*self._tracker.dispatcher.waiting()]:
            if group.due > now and not group.stays and any(slice_.lane in lanes for slice_ in group.slices):
                self._tracker.close_waiting_group(group, RedeliveryState.ASIDE)
                self._park(group, now, _WINDOW_FULL)

    def oversized(self, sessions: Iterable[Session], groups: Iterable[RedeliveryGroup]) -> None:
        """Records that some worker cannot take. If no worker can, do as the settings say."""
        largest = max((session.hard_bytes for session in sessions), default=0)
        for group in groups:
            slice_ = group.slices[0]
            bytes_ = slice_.chunk.size(slice_.start, slice_.start + 1)
            if bytes_ <= largest or group.state is not RedeliveryState.WAITING:
                continue
            where = f"{slice_.chunk.shown}/{slice_.chunk.positions[slice_.start]}"
            text = f"{bytes_} bytes are more than any connected client takes ({largest})"
            if self._settings.oversized is Oversized.HOLD:
                # One of them is enough to tell of.
                if self._held is None or self._held.state is not RedeliveryState.WAITING:
                    self._held = group
                    self._troubles.set("oversized", f"the record {where} is held: {text}")
            else:
                self._tracker.close_waiting_group(group, RedeliveryState.ASIDE)
                self._dead_letter(group.slices, f"TOO_LARGE: {text}", worker="")

    def _settle_part(self, lease: Lease[Session], settled: SettledPart, now: float, *, in_outage: bool) -> None:
        slices, part, blamed, covered = settled
        counters = self._tracker.counters
        self.rejects.settled(part.count, rejected=part.outcome is Outcome.REJECT)
        if part.outcome is Outcome.ACK:
            counters.acked += part.count
            self._tracker.settle(slices)
            self._budget.success(now - lease.granted, len(self._tracker.leases) + 1, now)
            if self._outage.success(now):
                self._recovered(now)
            return
        failed = FailedRecords(slices, blamed, covered, lease.first_lease, lease.uncounted_failures, lease.isolated)
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
                self._budget.overloaded(now - lease.granted, len(self._tracker.leases) + 1, now)
                self._apply(
                    self._verdicts.overloaded(failed, part.retry_after), lease, now, part.reason or "overloaded"
                )
            case Outcome.REJECT:
                counters.rejected += part.count
                self._dead_letter(slices, f"REJECTED: {part.reason}" if part.reason else "REJECTED", lease.holder.name)
                if self.rejects.alarming():
                    self._pause("too many records are rejected; look at the dead letters, then resume")

    def _batch_failed(self, lease: Lease[Session], now: float) -> bool:
        """Answers whether the handler was known to be down before this."""
        in_outage = self._outage.down
        self._budget.failure(now - lease.granted, len(self._tracker.leases) + 1, now)
        if self._outage.failure(lease.first_lease, now):
            self._troubles.set(
                "outage", "the handler fails for everything: single probes until one succeeds, nothing is dead-lettered"
            )
            self.delivering.outage_began(now)
        return in_outage

    def _recovered(self, now: float) -> None:
        self._troubles.clear("outage")
        self._budget.restart(len(self._tracker.leases), now)

    def _end(self, lease: Lease[Session]) -> list[RecordSlice]:
        """End a lease without a word of its worker. Answers what is unsettled of it and still ours."""
        slices = self._tracker.leases.end(lease)
        self._tracker.leave_flight(slices)
        self.delivering.release_lease(lease)
        return [slice_ for slice_ in slices if slice_.lane.phase is not LanePhase.GONE]

    def _apply(
        self, moves: Sequence[Decision], lease: Lease[Session], now: float, reason: str, *, redeliveries: bool = False
    ) -> None:
        """Do what the verdicts say. `heirs`: the lease ended, and may be settled while its records wait."""
        self._tracker.counters.splits = self._verdicts.splits
        for move in moves:
            match move:
                case Redeliver():
                    group = RedeliveryGroup(
                        [*move.slices], now + move.after, move.isolated, move.first_lease, move.uncounted_failures
                    )
                    if redeliveries:
                        group.expired_lease = lease
                        lease.redeliveries.append(group)
                    self._put_back(group, now, reason)
                case DeadLetter():
                    self._dead_letter(move.slices, move.reason, lease.holder.name)
                case Discard():
                    self._tracker.counters.dropped += count(move.slices)
                    self._tracker.settle(move.slices)

    def _put_back(self, group: RedeliveryGroup, now: float, reason: str) -> None:
        group.slices = [slice_ for slice_ in group.slices if slice_.lane.phase is LanePhase.ACTIVE]
        if not group.slices:
            group.state = RedeliveryState.GONE
        elif self._parks and group.due - now > self._settings.parking.after:
            group.state = RedeliveryState.ASIDE
            self._park(group, now, reason)
        else:
            self._tracker.put_back(group, now)

    def _park(self, group: RedeliveryGroup, now: float, reason: str) -> None:
        self._tracker.parked_for.add(reason, group.records)
        wall, lanes = self._clock.wall_ms(), self._settings.parking.lanes
        for slice_ in group.slices:
            slice_.lane.aside += slice_.records
            for single in slice_.singles():
                message = retry_topic.park(single, now=now, due=group.due, wall_ms=wall, lanes=lanes)
                self._parking.add(PendingWrite(single, message, group.due))

    def _dead_letter(self, slices: Iterable[RecordSlice], reason: str, worker: str) -> None:
        wall, group = self._clock.wall_ms(), self._settings.group_name
        for slice_ in slices:
            self._tracker.dead_for.add(reason, slice_.records)
            slice_.lane.aside += slice_.records
            for single in slice_.singles():
                message = dead_letter_topic.write(single, group=group, reason=reason, worker=worker, wall_ms=wall)
                self._dead_lettering.add(PendingWrite(single, message))

    def _stays_here(self, aside: PendingWrite) -> None:
        """With what is written beside it, it is too large for the retry topic: it waits in memory."""
        lane = aside.slice_.lane
        if lane.phase is not LanePhase.GONE:
            lane.aside -= 1
        if lane.phase is LanePhase.ACTIVE:
            self._tracker.put_back(RedeliveryGroup([aside.slice_], aside.due, stays=True), self._clock.now())
        self._settled()

    def _parked(self, written: Sequence[PendingWrite]) -> None:
        self._tracker.counters.parked += len(written)
        self._are_aside(written)

    def _dead_lettered(self, written: Sequence[PendingWrite]) -> None:
        self._tracker.counters.dead_lettered += len(written)
        self._are_aside(written)

    def _are_aside(self, written: Sequence[PendingWrite]) -> None:
        """Only now, with the record durably aside, does it count as settled."""
        for aside in written:
            if aside.slice_.lane.phase is not LanePhase.GONE:
                aside.slice_.lane.aside -= 1
                self._tracker.settle([aside.slice_])
        self._settled()


def _failed_later(settled: SettledPart) -> bool:
    return settled.part.outcome is not Outcome.ACK


def _failed(lease: Lease[Session], slices: Sequence[RecordSlice]) -> FailedRecords:
    covered = lease.records - len(lease.settled or ())
    return FailedRecords(slices, False, covered, lease.first_lease, lease.uncounted_failures, lease.isolated)

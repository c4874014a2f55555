"""Applies workers' settlements, ends leases, and executes what the redelivery policy decides."""

import random
from collections.abc import Iterable, Mapping, Sequence
from time import time_ns

from sidecar.core.failures import dead_letter_topic, retry_topic
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
from sidecar.core.state.leases import Lease, LeasePhase, SettledPart
from sidecar.core.state.record_slices import RecordSlice, RedeliveryGroup, RedeliveryState, count
from sidecar.core.tracker import RecordTracker
from sidecar.model.clock import Clock
from sidecar.model.records import Order, Outcome, SessionEnd, Settlement, SettleResult, SettleStatus
from sidecar.observability.tracing import Tracer
from sidecar.settings import Oversized, SubscriptionSettings
from sidecar.subscription.delivery import Deliverer
from sidecar.subscription.events import SideTopic, SubscriptionEvents
from sidecar.subscription.session import Session
from sidecar.subscription.side_topic_writer import PendingWrite, SideTopicWriter
from sidecar.subscription.troubles import Troubles

#: why a record is parked that would block its lane while it waits
_WINDOW_FULL = "its lane had no room left while it waited for its retry"


class SettlementHandler:
    """Everything that happens to a lease after its delivery."""

    def __init__(
        self,
        settings: SubscriptionSettings,
        tracker: RecordTracker[Session],
        troubles: Troubles,
        clock: Clock,
        outage: OutageDetector,
        budget: Budget,
        rng: random.Random,
        deliverer: Deliverer,
        writers: Mapping[SideTopic, SideTopicWriter],
        events: SubscriptionEvents,
        tracer: Tracer | None,
    ) -> None:
        self._settings = settings
        self._tracker = tracker
        self._troubles = troubles
        self._clock = clock
        self._outage = outage
        self._budget = budget
        self._policy = RedeliveryPolicy(settings, outage, tracker.counters, rng)
        self._deliverer = deliverer
        self._writers = writers
        self._events = events
        self._tracer = tracer
        self.rejects = RejectRateMonitor(settings.outage)
        #: a record that waits because no connected client takes it: the one in the status
        self._oversized: RedeliveryGroup | None = None
        self._parks = settings.parking.enabled and settings.order is Order.NONE

    def settle(self, settlements: Iterable[Settlement], now: float) -> list[SettleResult]:
        """Apply settlements. Returns their results in order."""
        results: list[SettleResult] = []
        acked: list[Lease[Session]] = []
        for settlement in settlements:
            # Nearly all settlements ack a whole batch. A tracer looks at each of them.
            lease = self._tracker.close_acked(settlement) if self._tracer is None else None
            if lease is not None:
                acked.append(lease)
                results.append(SettleResult(lease.id, SettleStatus.SETTLED))
                continue
            self._finish_acked(acked, now)
            acked = []
            results.append(self._settle(settlement, now))
        self._finish_acked(acked, now)
        if self._oversized is not None and self._oversized.state is not RedeliveryState.WAITING:
            self._oversized = None
            self._troubles.clear("oversized")
        self._events.records_settled()
        return results

    def end_session(self, session: Session, how: SessionEnd, now: float) -> None:
        """Redeliver what the session has not settled."""
        counters = self._tracker.counters
        # A crash can be blamed only on a batch that the worker process had alone.
        alone = len(session.leases) == 1
        for lease in [*session.leases.values()]:
            if how is SessionEnd.LOST:
                self._abandon(lease, now, alone=alone)
                continue
            slices = self._end(lease)
            counters.released += count(slices)
            self._execute(self._policy.released(_failed(lease, slices)), lease, now, "released", ended=True)
            lease.forget_unless_waiting()
        self._events.records_settled()

    def abandon(self, lease_id: bytes, now: float, *, alone: bool) -> None:
        """Redeliver a batch whose worker died, though its session goes on. `alone`: the worker had no other batch."""
        lease = self._tracker.leases.get(lease_id)
        if lease is not None:
            self._abandon(lease, now, alone=alone)
            self._events.records_settled()

    def end_unreceived(self, leases: Iterable[Lease[Session]], now: float) -> None:
        """Redeliver batches of which their client says that they never reached it."""
        for lease in leases:
            if lease.phase is LeasePhase.HELD:
                slices = self._end(lease)
                self._tracker.counters.released += count(slices)
                self._execute(self._policy.unreceived(_failed(lease, slices)), lease, now, "unreceived", ended=True)
                lease.forget_unless_waiting()
        self._events.records_settled()

    def expire(self, now: float) -> None:
        """End the leases whose time is over."""
        for lease in self._tracker.leases.expire(now):
            slices = self._end(lease)
            self._tracker.counters.expired += count(slices)
            if slices:
                in_outage = self._outage.down
                self._report_to_budget(lease, 0, _failed_first(slices), now)
                self._batch_failed(lease, slices, now)
                decisions = self._policy.failed(
                    _failed(lease, slices), now, reason="EXPIRED", possibly_processed=True, in_outage=in_outage
                )
                self._execute(decisions, lease, now, "EXPIRED", ended=True)
            lease.forget_unless_waiting()
            self._events.records_settled()

    def park_when_window_full(self, now: float) -> None:
        """Park waiting records of lanes whose windows are full."""
        if self._parks:
            for lane in self._tracker.lanes.values():
                if lane.to_park and lane.window.full():
                    for group in self._tracker.take_to_park(lane, now):
                        self._park(self._tracker.close_group(group), group.due, now, _WINDOW_FULL)

    def handle_too_large(self, groups: Iterable[RedeliveryGroup], sessions: Iterable[Session]) -> None:
        """Records that one worker cannot take. If no worker can, do what the settings say."""
        largest = max((session.hard_bytes for session in sessions), default=0)
        for group in groups:
            slice_ = group.slices[0]
            bytes_ = slice_.chunk.size(slice_.start, slice_.start + 1)
            if bytes_ <= largest or group.state is not RedeliveryState.WAITING:
                continue
            where = f"{slice_.chunk.shown}/{slice_.chunk.positions[slice_.start]}"
            text = f"{bytes_} bytes are more than any connected client takes ({largest})"
            if self._settings.oversized is Oversized.HOLD:
                # The status names one of them.
                if self._oversized is None or self._oversized.state is not RedeliveryState.WAITING:
                    self._oversized = group
                    self._troubles.set("oversized", f"the record {where} is held: {text}")
            else:
                self._dead_letter(self._tracker.close_group(group), f"TOO_LARGE: {text}", worker="")

    def written_aside(self, topic: SideTopic, writes: Sequence[PendingWrite]) -> None:
        """Records are durable in a side topic. Only now do they count as settled."""
        if topic is SideTopic.RETRY:
            self._tracker.counters.parked += len(writes)
        else:
            self._tracker.counters.dead_lettered += len(writes)
        self._tracker.settle_aside([write.slice_ for write in writes])
        self._events.records_settled()

    def keep_in_memory(self, write: PendingWrite) -> None:
        """A record that is too large for the retry topic, with the header added, waits in memory."""
        if self._tracker.return_from_aside(write.slice_):
            # Its group did not survive. That it was to be delivered alone, or with fewer others, is in its history.
            isolated = write.slice_.history.max_batch_size > 0
            group = RedeliveryGroup([write.slice_], write.due, isolated, never_park=True)
            self._tracker.put_back(group, self._clock.now())
        self._events.records_settled()

    def _settle(self, settlement: Settlement, now: float) -> SettleResult:
        tracker = self._tracker
        began = time_ns() if self._tracer is not None else 0
        result, lease, parts = tracker.settle_lease(settlement)
        if lease is None:
            if result.status is SettleStatus.REFUSED:
                tracker.counters.refused_settlements += 1
            else:
                tracker.counters.unknown_settlements += 1
            return result
        if self._tracer is not None:
            self._tracer.settled(began, lease, settlement, result)
        if result.status is SettleStatus.STALE:
            tracker.counters.stale_settlements += 1
        acked = sum(each.part.count for each in parts if each.part.outcome is Outcome.ACK)
        failed = sum(_failed_first(each.slices) for each in parts if _says_it_failed(each))
        self._report_to_budget(lease, acked, failed, now)
        if acked:
            self._batch_succeeded(now)
        # Whether it was known before this batch failed: its first part says nothing about its second.
        in_outage = self._outage.down
        for each in parts:
            # A batch of which a part succeeds is no sign of an outage.
            if not acked and _says_it_failed(each):
                self._batch_failed(lease, each.slices, now)
            self._settle_part(lease, each, now, in_outage=in_outage)
        if lease.phase is LeasePhase.SETTLED and lease.id in lease.holder.leases:
            tracker.meters.settle_seconds.observe(now - lease.granted)
            self._deliverer.release_leases([lease])
            lease.forget_records()
        return result

    def _finish_acked(self, leases: Sequence[Lease[Session]], now: float) -> None:
        """What follows when whole batches were acked: once for all of them, as far as it can be."""
        if not leases:
            return
        tracker = self._tracker
        records = sum([lease.records for lease in leases])
        in_flight = len(tracker.leases) + len(leases)
        for lease in leases:
            self._budget.settled(1.0, 0.0, now - lease.granted, in_flight, now)
            tracker.meters.settle_seconds.observe(now - lease.granted)
        self._batch_succeeded(now)
        self.rejects.settled(records, rejected=False)
        tracker.counters.acked += records
        tracker.settle([slice_ for lease in leases for slice_ in lease.slices])
        self._deliverer.release_leases(leases)
        for lease in leases:
            lease.forget_records()

    def _settle_part(self, lease: Lease[Session], settled: SettledPart, now: float, *, in_outage: bool) -> None:
        slices, part, blamed, covered, waits = settled
        counters = self._tracker.counters
        self.rejects.settled(part.count, rejected=part.outcome is Outcome.REJECT)
        failed = FailedRecords(slices, blamed, covered, lease.first_lease, lease.uncounted_failures, lease.isolated)
        match part.outcome:
            case Outcome.ACK:
                counters.acked += part.count
                self._tracker.settle(slices)
            case Outcome.NACK:
                counters.nacked += part.count
                if not waits:
                    decisions = self._policy.failed(
                        failed,
                        now,
                        reason=part.reason,
                        retry_after=part.retry_after,
                        possibly_processed=part.possibly_processed,
                        in_outage=in_outage,
                    )
                    self._execute(decisions, lease, now, part.reason)
            case Outcome.RELEASE:
                counters.released += part.count
                if not waits:
                    self._execute(self._policy.released(failed), lease, now, part.reason)
            case Outcome.OVERLOADED:
                counters.overloaded += part.count
                self._budget.overloaded(now - lease.granted, len(self._tracker.leases) + 1, now)
                if not waits:
                    decisions = self._policy.overloaded(failed, part.retry_after)
                    self._execute(decisions, lease, now, part.reason or "overloaded")
            case Outcome.REJECT:
                counters.rejected += part.count
                self._dead_letter(slices, f"REJECTED: {part.reason}" if part.reason else "REJECTED", lease.holder.name)
                if self.rejects.alarming():
                    self._events.too_many_rejected()

    def _report_to_budget(self, lease: Lease[Session], succeeded: int, failed: int, now: float) -> None:
        """Records of a batch that were acked, and records that failed for the first time."""
        if succeeded or failed:
            share = 1 / lease.records
            in_flight = len(self._tracker.leases) + 1
            self._budget.settled(succeeded * share, failed * share, now - lease.granted, in_flight, now)

    def _batch_succeeded(self, now: float) -> None:
        was_certain = self._outage.certain
        self._outage.success(now)
        if was_certain:
            self._budget.restart(len(self._tracker.leases), now)
            self._events.outage_changed()

    def _batch_failed(self, lease: Lease[Session], slices: Sequence[RecordSlice], now: float) -> None:
        """These records of a batch failed, and no other record of it succeeded."""
        if self._outage.failure(lease.number, now, first=_failed_first(slices) == count(slices)):
            self._deliverer.outage_began(now)
        self._events.outage_changed()

    def _abandon(self, lease: Lease[Session], now: float, *, alone: bool) -> None:
        slices = self._end(lease)
        self._tracker.counters.abandoned += count(slices)
        decisions = self._policy.abandoned(_failed(lease, slices), now, alone=alone, in_outage=self._outage.down)
        self._execute(decisions, lease, now, "WORKER_DIED", ended=True)
        lease.forget_unless_waiting()

    def _end(self, lease: Lease[Session]) -> list[RecordSlice]:
        """End a lease without a settlement. Returns its unsettled records of lanes that are not gone."""
        slices = self._tracker.end_lease(lease)
        self._deliverer.release_leases([lease])
        return slices

    def _execute(
        self, decisions: Sequence[Decision], lease: Lease[Session], now: float, reason: str, *, ended: bool = False
    ) -> None:
        """`ended`: the lease has ended, so it can still be settled while its records wait."""
        for decision in decisions:
            match decision:
                case Redeliver():
                    self._redeliver(decision, lease if ended else None, now, reason)
                case DeadLetter():
                    self._dead_letter(decision.slices, decision.reason, lease.holder.name)
                case Discard():
                    self._tracker.counters.dropped += count(decision.slices)
                    self._tracker.settle(decision.slices)

    def _redeliver(self, decision: Redeliver, expired_lease: Lease[Session] | None, now: float, reason: str) -> None:
        """In memory, or by the retry topic if the wait is long. Records of lanes that are leaving are left to those who
        get them."""
        slices = [slice_ for slice_ in decision.slices if slice_.lane.phase is LanePhase.ACTIVE]
        due = now + decision.after
        if slices and self._parks and due - now > self._settings.parking.after:
            self._park(slices, due, now, reason)
        elif slices:
            group = RedeliveryGroup(slices, due, decision.isolated, decision.first_lease, decision.uncounted_failures)
            if expired_lease is not None:
                group.expired_lease = expired_lease
                expired_lease.redeliveries.append(group)
            self._tracker.put_back(group, now)

    def _park(self, slices: Sequence[RecordSlice], due: float, now: float, reason: str) -> None:
        self._tracker.parked_for.add(reason, count(slices))
        wall, lanes = self._clock.wall_ms(), self._settings.parking.lanes
        for slice_ in slices:
            self._tracker.put_aside(slice_)
            for single in slice_.singles():
                message = retry_topic.park(single, now=now, due=due, wall_ms=wall, lanes=lanes)
                self._writers[SideTopic.RETRY].add(PendingWrite(single, message, due))

    def _dead_letter(self, slices: Iterable[RecordSlice], reason: str, worker: str) -> None:
        wall, group = self._clock.wall_ms(), self._settings.group_name
        for slice_ in slices:
            self._tracker.dead_for.add(reason, slice_.records)
            self._tracker.put_aside(slice_)
            for single in slice_.singles():
                message = dead_letter_topic.write(single, group=group, reason=reason, worker=worker, wall_ms=wall)
                self._writers[SideTopic.DEAD_LETTERS].add(PendingWrite(single, message))


def _says_it_failed(settled: SettledPart) -> bool:
    """A handler that says when to retry is not down. What comes late was counted when its lease ended."""
    return settled.part.outcome is Outcome.NACK and not settled.part.retry_after and not settled.waits


def _failed_first(slices: Sequence[RecordSlice]) -> int:
    """Records that had not failed before: the failure of others says more of them than of the handler."""
    return sum(slice_.records for slice_ in slices if slice_.history.first_failed is None)


def _failed(lease: Lease[Session], slices: Sequence[RecordSlice]) -> FailedRecords:
    covered = lease.records - len(lease.settled or ())
    return FailedRecords(slices, False, covered, lease.first_lease, lease.uncounted_failures, lease.isolated)

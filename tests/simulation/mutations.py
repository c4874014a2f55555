"""Plausible mistakes that are patched into the shipped code while a simulation runs. Each must be found."""

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from sidecar.brokers.base import Revoked
from sidecar.core.failures import redelivery_policy, retry_topic
from sidecar.core.failures.backoff import Backoff
from sidecar.core.failures.outage import OutageDetector
from sidecar.core.failures.redelivery_policy import FailedRecords, RedeliveryPolicy
from sidecar.core.scheduling.dispatcher import Dispatcher
from sidecar.core.state.lane import LanePhase, LaneState
from sidecar.core.state.leases import Lease, Leases
from sidecar.core.state.ledger import Ledger
from sidecar.core.state.memory_limit import LaneUsage, MemoryLimit
from sidecar.core.state.ordering import KeyOrder, LaneOrder, NoOrder
from sidecar.core.state.record_slices import RecordSlice, cut
from sidecar.core.state.window import Window
from sidecar.core.tracker import RecordTracker
from sidecar.model.records import Assigned, Chunk, Commit, Order, Outcome, Run, Settlement, SettleResult, SettleStatus
from sidecar.model.wire import decode_frame
from sidecar.server.grpc.consumer.fetch_session import FetchSession
from sidecar.server.subscriptions import SubscriptionRegistry
from sidecar.subscription.assignment import AssignmentHandler
from sidecar.subscription.committer import Committer
from sidecar.subscription.delivery import Deliverer
from sidecar.subscription.session import Session
from sidecar.subscription.settlement import SettlementHandler
from sidecar.subscription.side_topic_writer import PendingWrite
from sidecar.subscription.subscription import Subscription


@dataclass(frozen=True, slots=True)
class Mutation:
    #: the number of the promise that it breaks
    promise: int
    mistake: str
    #: the class or module whose method or function it is
    where: Any
    method: str
    #: makes the wrong method from the right one
    mutate: Callable[[Any], Any]
    #: another promise that it breaks as directly
    also: int = 0

    def applied(self) -> Any:
        """A context in which the shipped code has this mistake."""
        return patch.object(self.where, self.method, self.mutate(getattr(self.where, self.method)))

    def is_found_by(self, violation: str) -> bool:
        """By the promise that it breaks: not by an exception, nor by a later consequence."""
        return violation.startswith((f"{self.promise} ", f"{self.also} "))

    def __str__(self) -> str:
        return f"{self.promise} {self.mistake}"


def _one_too_many(settle: Any) -> Any:
    def wrong(self: Ledger, run: Run) -> None:
        settle(self, Run(run.start, run.stop + 1))

    return wrong


def _settled_before_written(dead_letter: Any) -> Any:
    def wrong(self: SettlementHandler, slices: Iterable[RecordSlice], reason: str, worker: str) -> None:
        slices = list(slices)
        dead_letter(self, slices, reason, worker)
        for slice_ in slices:
            slice_.lane.ledger.settle(slice_.run)

    return wrong


def _never_possibly_processed(failed: Any) -> Any:
    def wrong(self: RedeliveryPolicy, what: FailedRecords, now: float, **more: Any) -> Any:
        return failed(self, what, now, **{**more, "possibly_processed": False})

    return wrong


def _unparked_is_not_flagged(unpark: Any) -> Any:
    def wrong(*args: Any, **more: Any) -> retry_topic.Unparked:
        back: retry_topic.Unparked = unpark(*args, **more)
        return replace(back, history=back.history._replace(possibly_processed=False))

    return wrong


def _believes_every_clock(unpark: Any) -> Any:
    def wrong(chunk: Chunk, index: int, **more: Any) -> retry_topic.Unparked:
        back: retry_topic.Unparked = unpark(chunk, index, **more)
        said = json.loads(decode_frame(chunk.frames[index]).headers[-1].value or b"")
        return replace(back, not_before_ms=said["not_before_ms"])

    return wrong


def _reach_is_ignored(init: Any) -> Any:
    def wrong(self: LaneState, assigned: Assigned, *more: Any, **named: Any) -> None:
        init(self, replace(assigned, reach=None), *more, **named)

    return wrong


def _delivers_beyond_the_reach(delivery_limit: Any) -> Any:
    def wrong(self: Window) -> int:
        return self._window_end()

    return wrong


def _stops_with_clean_hands(next_reach: Any) -> Any:
    def wrong(self: LaneState, position: int) -> int:
        return max(position, self._flag_before) if self.stopped else next_reach(self, position)

    return wrong


def _lost_is_released(abandoned: Any) -> Any:
    def wrong(self: RedeliveryPolicy, what: FailedRecords, *more: Any, **named: Any) -> Any:
        return self.released(what)

    return wrong


def _no_boot_id(init: Any) -> Any:
    def wrong(self: Leases[Any], prefix: bytes) -> None:
        init(self, bytes(len(prefix)))

    return wrong


def _accepts_everything(settle: Any) -> Any:
    def wrong(self: SettlementHandler, settlement: Settlement, now: float) -> SettleResult:
        settle(self, settlement, now)
        return SettleResult(settlement.lease, SettleStatus.SETTLED)

    return wrong


def _ignores_that_lanes_are_gone(close_acked: Any) -> Any:
    def wrong(self: Leases[Any], settlement: Settlement) -> Lease[Any] | None:
        lease = self._held.get(settlement.lease)
        if lease is not None:
            # Without the records, whose frames are dropped, so that a wrong answer follows rather than an exception.
            lease.slices = [slice_ for slice_ in lease.slices if slice_.lane.phase is not LanePhase.GONE]
        closed: Lease[Any] | None = close_acked(self, settlement)
        return closed

    return wrong


def _lane_does_not_wait(take: Any) -> Any:
    def wrong(self: LaneOrder, records: int, size: int, limit: int, *, force: bool = True) -> list[RecordSlice]:
        return NoOrder.take(self, records, size, limit, force=force)

    return wrong


def _key_does_not_wait(eligible: Any) -> Any:
    def wrong(self: KeyOrder, slices: Sequence[RecordSlice]) -> tuple[list[RecordSlice], list[RecordSlice]]:
        return list(slices), []

    return wrong


def _commit_wakes_nobody(lane_committed: Any) -> Any:
    def wrong(self: Subscription, lane: LaneState) -> None:
        pass

    return wrong


def _settled_wakes_nobody(wake: Any) -> Any:
    def wrong(self: Dispatcher, lane: LaneState) -> None:
        if not lane.in_flight and not lane.waiting:
            wake(self, lane)

    return wrong


def _never_full(full: Any) -> Any:
    def wrong(self: MemoryLimit, lanes: Iterable[Any]) -> set[Any]:
        return set()

    return wrong


def _revoked_without_notice(leave: Any) -> Any:
    async def wrong(self: AssignmentHandler, states: Sequence[LaneState], event: Revoked) -> None:
        await self._source.release(event.lanes)

    return wrong


def _lost_stays_alive(end_lanes: Any) -> Any:
    def wrong(self: RecordTracker[Any], states: Sequence[LaneState]) -> Any:
        # Keeping the frames, so that a wrong delivery or commit follows rather than an exception.
        with patch.object(Chunk, "drop"):
            touched = end_lanes(self, states)
        for state in states:
            state.phase = LanePhase.LEAVING
        return touched

    return wrong


def _commits_nothing_beyond(committable: Any) -> Any:
    def wrong(self: Ledger, *, with_beyond: bool) -> Commit | None:
        commit = committable(self, with_beyond=with_beyond)
        return None if commit is None else Commit(commit.position)

    return wrong


def _ignores_settled_runs(init: Any) -> Any:
    def wrong(self: Ledger, start: int, settled: Iterable[Run] = ()) -> None:
        init(self, start)

    return wrong


def _delivers_while_draining(drain: Any) -> Any:
    async def wrong(self: Subscription, deadline: float) -> None:
        asyncio.get_running_loop().call_soon(setattr, self._deliverer, "stopped", False)
        await drain(self, deadline)

    return wrong


def _drains_without_a_commit(drain: Any) -> Any:
    async def wrong(self: Subscription, deadline: float) -> None:
        async def nothing(lanes: Iterable[LaneState]) -> None:
            pass

        self._committer.commit_all = nothing  # type: ignore[method-assign]
        await drain(self, deadline)

    return wrong


def _no_window(delivery_limit: Any) -> Any:
    def wrong(self: Window) -> int:
        return 1 << 60

    return wrong


def _last_come_first_served(session_changed: Any) -> Any:
    def wrong(self: Deliverer, session: Session) -> None:
        session_changed(self, session)
        if session in self._ready_sessions:
            self._ready_sessions = {session: None, **self._ready_sessions}

    return wrong


def _no_share_is_guaranteed(full_by: Any) -> Any:
    def wrong(self: MemoryLimit, limit: int, fetch: int, lanes: Sequence[tuple[LaneUsage, int]]) -> set[Any]:
        return {lane.name for lane, _ in lanes} if sum(used for _, used in lanes) >= limit / 4 else set()

    return wrong


def _seek_ends_no_epoch(seek: Any) -> Any:
    async def wrong(self: Committer, targets: Any) -> Any:
        return await self._source.seek(targets)

    return wrong


def _late_is_too_late(still_waiting: Any) -> Any:
    def wrong(self: Lease[Any]) -> list[tuple[int, RecordSlice]]:
        return []

    return wrong


def _no_backoff(wait: Any) -> Any:
    def wrong(self: Backoff, failures: int) -> float:
        return float(wait(self, failures)) / 10

    return wrong


def _splits_off_one_record(split_batch: Any) -> Any:
    def wrong(slices: Sequence[RecordSlice], order: Order) -> Any:
        return cut(slices, 1)

    return wrong


def _counts_for_all(failed: Any) -> Any:
    def wrong(self: RedeliveryPolicy, what: FailedRecords, now: float, **more: Any) -> Any:
        decisions = []
        for slice_ in what.slices:
            for single in slice_.singles():
                decisions += failed(self, what._replace(slices=[single], covered=1), now, **more)
        return decisions

    return wrong


def _always_gives_up(may_give_up: Any) -> Any:
    def wrong(self: OutageDetector, first_failed: float | None) -> bool:
        return True

    return wrong


def _never_down(failure: Any) -> Any:
    def wrong(self: OutageDetector, lease: int, now: float, *, first: bool) -> bool:
        return False

    return wrong


def _every_failure_counts(failure: Any) -> Any:
    def wrong(self: OutageDetector, lease: int, now: float, *, first: bool) -> bool:
        return bool(failure(self, lease, now, first=True))

    return wrong


def _fresh_ones_wait_for_the_next_probe(selectors: Any) -> Any:
    def wrong(self: Deliverer, session: Session, now: float) -> Any:
        return () if self._outage.down and now < self._next_probe else selectors(self, session, now)

    return wrong


def _kept_in_memory_among_others(keep_in_memory: Any) -> Any:
    def wrong(self: SettlementHandler, write: PendingWrite) -> None:
        history = write.slice_.history._replace(max_batch_size=0)
        keep_in_memory(self, replace(write, slice_=write.slice_.with_history(history)))

    return wrong


def _not_alone_in_the_process(has_room: Any) -> Any:
    def wrong(self: Session) -> bool:
        self.exclusive = False
        return bool(has_room(self))

    return wrong


def _late_nacks_are_forgotten(note_outcome: Any) -> Any:
    def wrong(self: Lease[Any], first: int, records: int, outcome: Outcome) -> None:
        if not self.ended or outcome in (Outcome.ACK, Outcome.REJECT):
            note_outcome(self, first, records, outcome)

    return wrong


def _keeps_every_answer(idle: Any) -> Any:
    def wrong(self: FetchSession) -> None:
        pass

    return wrong


def _keeps_every_record(forget_records: Any) -> Any:
    def wrong(self: Lease[Any]) -> None:
        pass

    return wrong


def _by_subscription(settle: Any) -> Any:
    def wrong(self: SubscriptionRegistry, settlements: Sequence[Settlement]) -> list[SettleResult]:
        return list(settle(self, sorted(settlements, key=lambda settlement: settlement.lease[:10])))

    return wrong


MUTATIONS = (
    Mutation(1, "settling a record settles the next one too", Ledger, "settle", _one_too_many),
    Mutation(
        1, "a dead letter counts before it is written", SettlementHandler, "_dead_letter", _settled_before_written
    ),
    Mutation(
        2,
        "an expired lease is not flagged as possibly processed",
        RedeliveryPolicy,
        "failed",
        _never_possibly_processed,
    ),
    Mutation(2, "a record that was parked is not flagged either", retry_topic, "unpark", _unparked_is_not_flagged),
    Mutation(2, "what another window delivered is not flagged", LaneState, "__init__", _reach_is_ignored),
    Mutation(2, "records are delivered that no reach tells", Window, "delivery_limit", _delivers_beyond_the_reach),
    Mutation(2, "a stop forgets what was in hand", LaneState, "_next_reach", _stops_with_clean_hands),
    Mutation(2, "a lost session does not count as an attempt", RedeliveryPolicy, "abandoned", _lost_is_released),
    Mutation(2, "a retry waits a tenth of its time", Backoff, "wait", _no_backoff),
    Mutation(
        2,
        "a record that is too large to park is delivered with others",
        SettlementHandler,
        "keep_in_memory",
        _kept_in_memory_among_others,
    ),
    Mutation(2, "a process with a suspected record gets more", Session, "has_room", _not_alone_in_the_process),
    Mutation(3, "a nack after the expiry is forgotten", Lease, "note_outcome", _late_nacks_are_forgotten),
    Mutation(3, "leases of an earlier process are taken for this one's", Leases, "__init__", _no_boot_id),
    Mutation(3, "every settlement is reported as settled", SettlementHandler, "_settle", _accepts_everything),
    Mutation(3, "an ack after the expiry is always refused", Lease, "still_waiting", _late_is_too_late),
    Mutation(4, "a lane does not wait for the batch before", LaneOrder, "take", _lane_does_not_wait),
    Mutation(4, "a retry does not wait for earlier records of its key", KeyOrder, "eligible", _key_does_not_wait),
    Mutation(
        5,
        "a lane that waited for its window is not woken",
        Subscription,
        "lane_committed",
        _commit_wakes_nobody,
    ),
    Mutation(5, "a clock that was ahead makes a parked record wait", retry_topic, "unpark", _believes_every_clock),
    Mutation(5, "the window is ignored", Window, "delivery_limit", _no_window),
    Mutation(6, "a lane feeds one worker at a time", Dispatcher, "wake", _settled_wakes_nobody),
    Mutation(6, "who came last is served first", Deliverer, "session_changed", _last_come_first_served),
    Mutation(7, "no lane is ever paused", MemoryLimit, "full", _never_full),
    Mutation(7, "one lane may take the share of all others", MemoryLimit, "_full_by", _no_share_is_guaranteed),
    Mutation(7, "a session keeps the answers whose batches are settled", FetchSession, "idle", _keeps_every_answer),
    Mutation(7, "a lease that cannot be settled keeps its records", Lease, "forget_records", _keeps_every_record),
    Mutation(3, "results of two subscriptions are mixed up", SubscriptionRegistry, "settle", _by_subscription),
    Mutation(8, "a revoked lane is released without a notice", AssignmentHandler, "_leave", _revoked_without_notice),
    Mutation(8, "a lane that is gone still takes settlements", RecordTracker, "end_lanes", _lost_stays_alive),
    Mutation(
        8,
        "an ack for a lane that is gone is reported as settled",
        Leases,
        "close_acked",
        _ignores_that_lanes_are_gone,
        also=3,
    ),
    Mutation(8, "a seek does not end what was before", Committer, "seek", _seek_ends_no_epoch),
    Mutation(9, "acks beyond the position are not committed", Ledger, "committable", _commits_nothing_beyond),
    Mutation(9, "acks beyond the position are forgotten after a restart", Ledger, "__init__", _ignores_settled_runs),
    Mutation(10, "the last commit of a drain is left out", Subscription, "drain", _drains_without_a_commit),
    Mutation(10, "a drain does not stop deliveries", Subscription, "drain", _delivers_while_draining),
    Mutation(
        11, "a failing batch counts against each of its records", RedeliveryPolicy, "failed", _counts_for_all, also=2
    ),
    Mutation(11, "a failing batch is not cut in the middle", redelivery_policy, "split_batch", _splits_off_one_record),
    Mutation(12, "a record is given up while nothing else succeeds", OutageDetector, "may_give_up", _always_gives_up),
    Mutation(12, "an outage is never noticed", OutageDetector, "failure", _never_down),
    Mutation(12, "records that fail again are taken for an outage", OutageDetector, "failure", _every_failure_counts),
    Mutation(
        12,
        "a record that was never tried waits for the next probe",
        Deliverer,
        "_selectors",
        _fresh_ones_wait_for_the_next_probe,
    ),
)

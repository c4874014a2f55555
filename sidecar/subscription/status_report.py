"""The status of a subscription with mode `leases`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sidecar.brokers.base import LaneEnd, Traits
from sidecar.core.state.lane import LaneState
from sidecar.core.tracker import RecordTracker
from sidecar.model.records import Lane
from sidecar.observability.status import LaneStatus, SessionStatus, SubscriptionState, SubscriptionStatus
from sidecar.subscription.session import Session

if TYPE_CHECKING:
    from sidecar.subscription.subscription import Subscription


def report(subscription: "Subscription", ends: Mapping[Lane, LaneEnd]) -> SubscriptionStatus:
    settings, tracker, traits = subscription.settings, subscription.tracker, subscription.broker.traits
    now = subscription.clock.now()
    states = sorted(tracker.lanes.values(), key=lambda state: state.lane)
    holders = _holders(tracker)
    lanes = tuple(_lane(state, ends.get(state.lane), holders.get(state, ""), traits, now) for state in states)
    return SubscriptionStatus(
        name=settings.name,
        broker=settings.broker,
        group=settings.group_name,
        topics=settings.topics,
        order=settings.order,
        mode=settings.mode,
        state=_state(subscription),
        trouble=tuple(text for _, text in subscription.troubles),
        lanes=lanes,
        sessions=tuple(_session(session, now) for session in subscription.sessions),
        counters=tracker.counters.snapshot(),
        leases=len(tracker.leases),
        in_flight_records=sum(state.in_flight for state in states),
        waiting_records=sum(state.waiting for state in states),
        buffered_bytes=tracker.bytes,
        buffered_bytes_limit=int(settings.memory.bytes),
        buffered_records=tracker.records,
        concurrency_limit=subscription.budget.limit,
        oldest_unsettled=max((lane.oldest for lane in lanes), default=0.0),
        would_be_replayed=sum(lane.would_be_replayed for lane in lanes),
    )


def _state(subscription: "Subscription") -> SubscriptionState:
    if subscription.draining:
        return SubscriptionState.DRAINING
    if subscription.fetcher.refused or subscription.broken:
        return SubscriptionState.FAILED
    if not subscription.fetcher.opened:
        return SubscriptionState.STARTING
    if subscription.paused_because:
        return SubscriptionState.PAUSED
    return SubscriptionState.PROBING if subscription.outage.down else SubscriptionState.RUNNING


def _holders(tracker: RecordTracker[Session]) -> dict[LaneState, str]:
    """The worker that holds the oldest unsettled record of each lane, if one does."""
    return {
        slice_.lane: lease.holder.name
        for lease in tracker.leases.held()
        for slice_ in lease.slices
        if slice_.low <= slice_.lane.ledger.low_watermark <= slice_.chunk.positions[slice_.stop - 1]
    }


def _session(session: Session, now: float) -> SessionStatus:
    return SessionStatus(
        session=session.id,
        name=session.name,
        language=session.client.language,
        library=session.client.library,
        pid=session.client.pid,
        leases=session.unsettled,
        in_flight_records=sum(lease.records for lease in session.leases.values()),
        credit_batches=session.credit.batches,
        age=now - session.connected,
        oldest_lease=now - min((lease.granted for lease in session.leases.values()), default=now),
        # Never 0, which means connected.
        away=0.0 if session.away_since is None else max(now - session.away_since, 0.001),
    )


def _lane(state: LaneState, end: LaneEnd | None, holder: str, traits: Traits, now: float) -> LaneStatus:
    ledger = state.ledger
    counts = traits.positions_count_records
    lag = -1 if end is None else end.backlog
    if end is not None and counts:
        # Without the records that are settled beyond the low watermark: only those that have yet to be processed.
        lag = max(0, end.end - ledger.low_watermark - ledger.settled_beyond)
    oldest = state.window.first_from(ledger.low_watermark) if state.unsettled_records else None
    return LaneStatus(
        topic=state.lane.topic,
        lane=state.lane.number,
        committed=ledger.committed,
        fetched=ledger.tracked,
        end=end.end if end else -1,
        lag=lag,
        settled_beyond=ledger.settled_beyond if counts else state.window.records - state.unsettled_records,
        ready_records=state.ordering.fresh_records,
        in_flight_records=state.in_flight,
        waiting_records=state.waiting,
        paused=bool(state.paused),
        held_by=state.held_by,
        buffered_bytes=state.unsettled_bytes,
        parked=state.parked,
        oldest_position=oldest[0] if oldest else -1,
        oldest=now - oldest[1] if oldest else 0.0,
        oldest_with=holder if oldest else "",
        would_be_replayed=state.would_be_replayed(keeps_acks_beyond=traits.keeps_acks_beyond),
    )

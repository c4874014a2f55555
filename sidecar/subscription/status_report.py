"""What a subscription says of itself."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sidecar.brokers.base import LaneEnd
from sidecar.core.state.lane import LaneState
from sidecar.core.tracker import RecordTracker
from sidecar.model.records import Lane
from sidecar.observability.status import LaneStatus, SessionStatus, SubscriptionState, SubscriptionStatus

if TYPE_CHECKING:
    from sidecar.subscription.subscription import Subscription


def report(subscription: "Subscription", ends: Mapping[Lane, LaneEnd]) -> SubscriptionStatus:
    settings, books = subscription.settings, subscription.books
    now = subscription.clock.now()
    states = sorted(books.lanes.values(), key=lambda state: state.lane)
    keeps = subscription.broker.traits.keeps_acks_beyond
    counts = subscription.broker.traits.positions_count_records
    lanes = _Lanes(_holders(books), now, keeps_acks_beyond=keeps, positions_count_records=counts)
    reported = tuple(lanes.report(state, ends.get(state.lane)) for state in states)
    return SubscriptionStatus(
        name=settings.name,
        broker=settings.broker,
        group=settings.group_name,
        topics=settings.topics,
        order=settings.order.value,
        mode=settings.mode.value,
        state=_state(subscription),
        trouble=tuple(books.troubles.values()),
        lanes=reported,
        sessions=tuple(
            SessionStatus(
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
            )
            for session in subscription.sessions
        ),
        counters=books.counters.snapshot(),
        leases=len(books.leases),
        in_flight_records=sum(state.in_flight for state in states),
        waiting_records=sum(state.waiting for state in states),
        buffered_bytes=books.bytes,
        buffered_bytes_limit=int(settings.memory.bytes),
        buffered_records=books.records,
        concurrency_limit=subscription.budget.limit,
        oldest_unsettled=max((lane.oldest for lane in reported), default=0.0),
        would_be_replayed=sum(lane.would_be_replayed for lane in reported),
    )


def _state(subscription: "Subscription") -> SubscriptionState:
    if subscription.draining:
        return SubscriptionState.DRAINING
    if subscription.fetching.refused or subscription.broken:
        return SubscriptionState.FAILED
    if not subscription.fetching.opened:
        return SubscriptionState.STARTING
    if subscription.paused_because:
        return SubscriptionState.PAUSED
    return SubscriptionState.PROBING if subscription.guard.down else SubscriptionState.RUNNING


def _holders(books: RecordTracker) -> dict[LaneState, str]:
    """Who has the oldest unsettled record of a lane in hand, for the lanes of which somebody has."""
    return {
        span.lane: lease.holder.name
        for lease in books.leases.held()
        for span in lease.spans
        if span.low <= span.lane.ledger.floor <= span.chunk.positions[span.stop - 1]
    }


class _Lanes:
    """What lanes say of themselves now."""

    def __init__(
        self, holders: Mapping[LaneState, str], now: float, *, keeps_acks_beyond: bool, positions_count_records: bool
    ) -> None:
        self._holders = holders
        self._now = now
        self._keeps = keeps_acks_beyond
        self._counts = positions_count_records

    def report(self, state: LaneState, end: LaneEnd | None) -> LaneStatus:
        ledger = state.ledger
        lag = -1 if end is None else end.backlog
        if end is not None and self._counts:
            # Behind the end, less what is settled beyond the floor: what somebody still has to work on.
            lag = max(0, end.end - ledger.floor - ledger.settled_beyond)
        oldest = state.window.first_from(ledger.floor) if state.unsettled_records else None
        return LaneStatus(
            topic=state.lane.topic,
            lane=state.lane.number,
            committed=ledger.committed,
            fetched=ledger.tracked,
            end=end.end if end else -1,
            lag=lag,
            settled_beyond=ledger.settled_beyond if self._counts else state.window.records - state.unsettled_records,
            ready_records=state.ordering.fresh_records,
            in_flight_records=state.in_flight,
            waiting_records=state.waiting,
            paused=bool(state.paused),
            held_by=state.held_by,
            buffered_bytes=state.unsettled_bytes,
            parked=state.parked,
            oldest_position=oldest[0] if oldest else -1,
            oldest=self._now - oldest[1] if oldest else 0.0,
            oldest_with=self._holders.get(state, "") if oldest else "",
            would_be_replayed=state.would_be_replayed(keeps_acks_beyond=self._keeps),
        )

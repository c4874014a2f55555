"""What a subscription says of itself."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sidecar.brokers.base import LaneEnd
from sidecar.lanes import LaneState
from sidecar.model import Lane
from sidecar.status import LaneStatus, SessionStatus, SubscriptionState, SubscriptionStatus

if TYPE_CHECKING:
    from sidecar.subscription import Subscription


def report(subscription: "Subscription", ends: Mapping[Lane, LaneEnd]) -> SubscriptionStatus:
    settings, books = subscription.settings, subscription.books
    now = subscription.clock.now()
    states = sorted(books.lanes.values(), key=lambda state: state.lane)
    keeps = subscription.broker.traits.keeps_acks_beyond
    counts = subscription.broker.traits.positions_count_records
    arrivals = [arrived for state in states if (arrived := _oldest(state)) is not None]
    return SubscriptionStatus(
        name=settings.name,
        broker=settings.broker,
        group=settings.group_name,
        topics=settings.topics,
        order=settings.order.value,
        state=_state(subscription),
        trouble=tuple(books.troubles.values()),
        lanes=tuple(_lane(state, ends.get(state.lane), counts=counts) for state in states),
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
        oldest_unsettled=now - min(arrivals) if arrivals else 0.0,
        would_be_replayed=sum(state.would_be_replayed(keeps_acks_beyond=keeps) for state in states),
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


def _oldest(state: LaneState) -> float | None:
    return state.window.arrival(state.ledger.floor) if state.unsettled_records else None


def _lane(state: LaneState, end: LaneEnd | None, *, counts: bool) -> LaneStatus:
    ledger = state.ledger
    lag = -1 if end is None else end.backlog
    if end is not None and counts:
        # Behind the end, less what is settled beyond the floor: what somebody still has to work on.
        lag = max(0, end.end - ledger.floor - ledger.settled_beyond)
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
    )

"""What a subscription that is read by ranges says of itself."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sidecar.brokers.base import LaneEnd
from sidecar.brokers.cursor import GroupState
from sidecar.brokers.fencing import Attached
from sidecar.model.records import Lane
from sidecar.observability.status import LaneStatus, ReaderStatus, SubscriptionStatus

if TYPE_CHECKING:
    from sidecar.ranges.subscription import RangeSubscription


def report_ranged(
    subscription: "RangeSubscription", lanes: Mapping[Lane, LaneEnd], standing: GroupState
) -> SubscriptionStatus:
    """Of a subscription that is read by ranges, by what was last seen of its lanes and its group."""
    settings = subscription.settings
    counts = subscription.broker.traits.positions_count_records
    attached = standing.attached
    return SubscriptionStatus(
        name=settings.name,
        broker=settings.broker,
        group=settings.group_name,
        topics=settings.topics,
        order=settings.order.value,
        mode=settings.mode.value,
        state=subscription.state,
        trouble=tuple(subscription.troubles),
        lanes=tuple(
            _ranged_lane(lane, end, standing.positions.get(lane, -1), counts=counts)
            for lane, end in sorted(lanes.items())
        ),
        counters=subscription.counters.snapshot(),
        reader=_reader(attached, subscription.clock.wall_ms()) if attached else None,
    )


def _reader(attached: Attached, wall_ms: int) -> ReaderStatus:
    # A broker may have kept the token alone.
    age = max(0.0, (wall_ms - attached.since_ms) / 1000) if attached.since_ms else 0.0
    return ReaderStatus(name=attached.reader, token=attached.token, age=age)


def _ranged_lane(lane: Lane, end: LaneEnd, committed: int, *, counts: bool) -> LaneStatus:
    # A group without a position has all of it before it.
    lag = max(0, end.end - max(committed, end.start)) if counts else end.backlog
    return LaneStatus(
        topic=lane.topic, lane=lane.number, committed=committed, fetched=max(0, committed), end=end.end, lag=lag
    )

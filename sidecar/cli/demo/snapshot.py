"""The state of the demo at a moment, by the status of the running sidecar. For display; the audit does not use it."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import grpc

from offramp.v1 import admin_pb2 as pb
from offramp.v1 import admin_pb2_grpc
from sidecar.cli.demo.plan import SUBSCRIPTION

_SNAPSHOT_INTERVAL_MS = 200
#: seconds over which rates are measured
_RATE_SECONDS = 1.2


@dataclass(frozen=True, slots=True)
class LaneSnapshot:
    number: int
    published: int
    #: acked, dead-lettered or parked
    done: int
    in_flight: int

    @property
    def behind(self) -> int:
        return self.published - self.done


@dataclass(frozen=True, slots=True)
class Snapshot:
    lanes: tuple[LaneSnapshot, ...] = ()
    workers: tuple[pb.SessionStatus, ...] = ()
    #: names of killed workers that are not replaced yet
    killed: tuple[str, ...] = ()
    #: records a second
    rate_in: float = 0.0
    rate_out: float = 0.0
    in_flight: int = 0
    #: for a retry
    waiting: int = 0
    redelivered: int = 0
    #: records that are parked now, and records parked since the start
    parked_now: int = 0
    parked: int = 0
    dead_lettered: int = 0
    #: how often a failing batch was split
    splits: int = 0
    #: one sentence each
    trouble: tuple[str, ...] = ()

    @property
    def published(self) -> int:
        return sum(lane.published for lane in self.lanes)

    @property
    def done(self) -> int:
        return sum(lane.done for lane in self.lanes)

    @property
    def at_rest(self) -> bool:
        """Everything published is settled, and nothing is in flight, waiting or parked."""
        return self.done == self.published and not (self.in_flight or self.waiting or self.parked_now)


class _Rate:
    """How fast a number grows, over the last second or so."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def of(self, now: float, number: int) -> float:
        self._seen.append((now, number))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _RATE_SECONDS:
            self._seen.popleft()
        then, before = self._seen[0]
        return (number - before) / (now - then) if now > then else 0.0


def snapshots(channel: grpc.Channel) -> Iterator[Snapshot]:
    """One after the other, while the sidecar runs."""
    stub = admin_pb2_grpc.AdminServiceStub(channel)  # type: ignore[no-untyped-call]
    request = pb.WatchStatusRequest(subscription=SUBSCRIPTION, interval_ms=_SNAPSHOT_INTERVAL_MS)
    rate_in, rate_out = _Rate(), _Rate()
    for response in stub.WatchStatus(request):
        status = response.status
        now = status.uptime_ms / 1000
        subscription = status.subscriptions[0]
        published = sum(max(0, lane.end) for lane in subscription.lanes if not lane.parked)
        yield _snapshot(subscription, rate_in.of(now, published), rate_out.of(now, subscription.counters.acked))


def _snapshot(status: pb.SubscriptionStatus, rate_in: float, rate_out: float) -> Snapshot:
    return Snapshot(
        lanes=tuple(_lane(lane) for lane in status.lanes if not lane.parked),
        workers=tuple(status.sessions),
        rate_in=rate_in,
        rate_out=rate_out,
        in_flight=status.in_flight_records,
        waiting=status.waiting_records,
        redelivered=status.counters.redelivered,
        parked_now=sum(max(0, lane.lag) for lane in status.lanes if lane.parked),
        parked=status.counters.parked,
        dead_lettered=status.counters.dead_lettered,
        splits=status.counters.splits,
        trouble=tuple(status.trouble),
    )


def _lane(lane: pb.LaneStatus) -> LaneSnapshot:
    end, lag = max(0, lane.end), max(0, lane.lag)
    return LaneSnapshot(lane.lane, end, end - lag, lane.in_flight_records)

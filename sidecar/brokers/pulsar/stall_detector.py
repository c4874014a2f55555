"""Lanes of which the broker, or the library, has stopped delivering something. Pure.

Both classes compare two consecutive checks of a lane before they report anything: figures of the broker and of the
sidecar are never of the same moment.
"""

from collections.abc import Collection
from typing import Protocol

from sidecar.brokers.pulsar.admin import SubscriptionStats
from sidecar.brokers.pulsar.positions import unpack
from sidecar.brokers.pulsar.unacked import UnackedMessages
from sidecar.model.records import Lane


class CheckedLane(Protocol):
    """What a check needs to know of a lane."""

    @property
    def lane(self) -> Lane: ...
    @property
    def name(self) -> str: ...
    @property
    def unacked(self) -> UnackedMessages: ...
    @property
    def exclusive(self) -> bool: ...


class StallDetector:
    """Finds lanes that a mistake of the broker has stopped, and that a new consumer starts again."""

    def __init__(self, consumer_name: str) -> None:
        self._consumer_name = consumer_name
        #: what the last check of each lane found: keys, by hash, for whose acks the broker waits although it has them
        self._deadlocked: dict[Lane, frozenset[int]] = {}
        #: lanes with a backlog although every message was acked, and the position after the last one
        self._silent: dict[Lane, int] = {}
        #: how much of the backlog, as far as is known, a new consumer did not bring: the library withholds it
        self._undelivered: dict[Lane, int] = {}

    def check(self, lane: CheckedLane, found: SubscriptionStats, end: int) -> str:
        """Why the lane needs a new consumer; empty if it does not. `end` is the end of the lane, asked before `found`;
        -1 if it is not known."""
        if self._is_deadlocked(lane, found.deadlocks):
            return f"{lane.name} waits for acks that it has"
        if self._has_lost_acks(lane, end, found.backlog):
            return f"{lane.name} counts {found.backlog} as backlog, all of which was acked"
        return ""

    def _is_deadlocked(self, lane: CheckedLane, deadlocks: Collection[tuple[str, int]]) -> bool:
        """When keys move to another consumer, Pulsar holds them back until the previous one has acked all it had of
        them. Version 4.2.4 has been seen to miscount, and then waits until that consumer is gone."""
        before = self._deadlocked.pop(lane.lane, frozenset())
        mine = frozenset(key for name, key in deadlocks if name == self._consumer_name)
        if mine & before:
            return True
        self._deadlocked[lane.lane] = mine
        return False

    def _has_lost_acks(self, lane: CheckedLane, end: int, backlog: int) -> bool:
        """The library drops what arrives again after a cumulative ack covered it. So when a broker has lost such an
        ack, it delivers all of it again, unseen, and counts it as backlog though nothing is unacked here. It looks the
        same when a reconnect has interrupted a message in chunks: only a new consumer gets it whole."""
        before = self._silent.pop(lane.lane, -1)
        undelivered = self._undelivered[lane.lane] = min(backlog, self._undelivered.get(lane.lane, 0))
        if not (lane.exclusive and backlog > undelivered and not len(lane.unacked) and lane.unacked.next >= end >= 0):
            return False
        if before == lane.unacked.next:
            self._undelivered[lane.lane] = backlog
            return True
        # The library gathers acks before it sends them: those of messages since the last check may be under way.
        self._silent[lane.lane] = lane.unacked.next
        return False


class UndeliveredMessages:
    """Finds lanes with a message that the library withholds, which nobody can mend, but an operator should know.

    Nothing tells of such a message but a gap that stays: the broker has no ack for it, and it is not here.
    """

    def __init__(self) -> None:
        #: where gaps began at the last check
        self._gaps: dict[Lane, int] = {}
        #: gaps that were found by two checks
        self._stayed: dict[Lane, int] = {}

    def check(self, lane: CheckedLane, acked_before: int) -> None:
        """`acked_before`: the broker has acks for all before this position; 0 if that is not known."""
        before = self._gaps.pop(lane.lane, -1)
        self._stayed.pop(lane.lane, None)
        if acked_before and lane.unacked.is_past_a_gap:
            self._gaps[lane.lane] = acked_before
            if acked_before == before:
                self._stayed[lane.lane] = acked_before

    def trouble(self, lanes: Collection[Lane]) -> str:
        """The first such message in these lanes, as a sentence; empty if there is none."""
        for lane, position in self._stayed.items():
            if lane in lanes:
                ledger, entry, _ = unpack(position)
                return (
                    f"Pulsar: {lane} has a message at {ledger}:{entry} that does not come and is not acked: it is "
                    "encrypted, or its chunks are incomplete"
                )
        return ""

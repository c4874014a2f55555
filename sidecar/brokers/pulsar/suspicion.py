"""Lanes that stand still by a mistake of the broker, as its own figures tell. Pure.

A lane is suspected at one look and found guilty at the next: the figures are not of one moment.
"""

from collections.abc import Collection
from typing import Protocol

from sidecar.brokers.pulsar.admin import Subscribed
from sidecar.brokers.pulsar.held import Held
from sidecar.model.records import Lane


class Suspect(Protocol):
    """A lane, as far as it is looked at."""

    @property
    def lane(self) -> Lane: ...
    @property
    def name(self) -> str: ...
    @property
    def held(self) -> Held: ...
    @property
    def exclusive(self) -> bool: ...


class Suspicion:
    """What was seen at the last look at each lane of one sidecar."""

    def __init__(self, who: str) -> None:
        #: the name of its consumers
        self._who = who
        #: hashes of keys that waited for this sidecar for nothing
        self._deadlocked: dict[Lane, frozenset[int]] = {}
        #: lanes in which nothing was left to ack, but for the broker, and how far they had come
        self._silent: dict[Lane, int] = {}
        #: messages that joining anew did not bring, as far as is known: the library keeps them to itself
        self._in_vain: dict[Lane, int] = {}

    def look(self, lane: Suspect, found: Subscribed, end: int) -> str:
        """Why it must be joined anew; empty if it need not be. `end` is where the lane ended before this was found,
        -1 if that is not known."""
        if self._waits_for_nothing(lane, found.deadlocks):
            return f"{lane.name} waits for acks that it has"
        if self._is_silent(lane, end, found.backlog):
            return f"{lane.name} counts {found.backlog} as backlog, all of which was acked"
        return ""

    def _waits_for_nothing(self, lane: Suspect, deadlocks: Collection[tuple[str, int]]) -> bool:
        """When keys move to another consumer, Pulsar holds them back until the one before has acked all it had of them.
        It has been seen to miscount (4.2.4), and then waits for acks that it has until that consumer is gone."""
        before = self._deadlocked.pop(lane.lane, frozenset())
        mine = frozenset(key for who, key in deadlocks if who == self._who)
        if mine & before:
            return True
        self._deadlocked[lane.lane] = mine
        return False

    def _is_silent(self, lane: Suspect, end: int, backlog: int) -> bool:
        """What comes again though an ack spoke for it and all before it, the library keeps to itself. So a broker that
        has lost that ack sends all of it again unseen, and counts it as backlog though nothing is left to ack. So it
        does with a message in chunks that a new connection has interrupted: that is whole only to a new consumer."""
        before = self._silent.pop(lane.lane, -1)
        in_vain = self._in_vain[lane.lane] = min(backlog, self._in_vain.get(lane.lane, 0))
        if not (lane.exclusive and backlog > in_vain and not len(lane.held) and lane.held.next >= end >= 0):
            return False
        if before == lane.held.next:
            self._in_vain[lane.lane] = backlog
            return True
        # Acks are gathered before they are sent: of what has come since the last look, some may be on their way.
        self._silent[lane.lane] = lane.held.next
        return False

"""Where a member of a group is in its lanes. Touched on the poll thread only."""

from dataclasses import dataclass, field
from enum import Enum

from confluent_kafka import TopicPartition

from sidecar.brokers.base import LaneEnd
from sidecar.model.records import Lane


class Phase(Enum):
    """ARRIVING -> ACTIVE -> LEAVING; ACTIVE <-> STUCK. A lane that is gone is in no dictionary any more."""

    #: ours, but where to start is not known yet
    ARRIVING = 1
    ACTIVE = 2
    #: its position is not there any more; where to go on is being found out
    STUCK = 3
    #: revoked: nothing more is delivered, but commits are taken
    LEAVING = 4


@dataclass(slots=True, eq=False)
class Reading:
    """One lane in one assignment."""

    lane: Lane
    phase: Phase = Phase.ARRIVING
    #: the next position to deliver
    next: int = 0
    #: by the core
    paused: bool = False
    #: for want of room for anything
    held: bool = False
    #: the library must be put to `next` before anything that it gives counts
    astray: bool = False
    #: as last known
    end: LaneEnd | None = None
    #: records that were removed before they could be read
    lost: int = 0
    #: something came that follows `next`, so the library is where it was put
    proven: bool = False
    #: what came first after it was put there, if that lay beyond
    suspect: int | None = None
    partition: TopicPartition = field(init=False)

    def __post_init__(self) -> None:
        self.partition = self.at()

    @property
    def flows(self) -> bool:
        """Something may be fetched."""
        return self.phase is Phase.ACTIVE and not self.paused and not self.held

    @property
    def delivers(self) -> bool:
        """What the library gives counts. Also while paused: what is on its way is where it should be."""
        return self.phase is Phase.ACTIVE and not self.astray

    def put_to(self, position: int) -> None:
        """The library is to be put to a position."""
        self.next, self.astray = position, True
        self.proven, self.suspect = False, None

    def believes(self, position: int) -> bool:
        """Whether there is nothing between `next` and what came now.

        A gap is no news in Kafka. But a library that is not where it was put would look the same, and what it left
        out would be taken for settled. So the first gap after each placing is believed when it was seen twice.
        """
        if self.proven or position <= self.next or (self.suspect is not None and position <= self.suspect):
            self.proven = True
            return True
        self.suspect = position
        self.astray = True
        return False

    def at(self, position: int | None = None) -> TopicPartition:
        if position is None:
            return TopicPartition(self.lane.topic, self.lane.number)
        return TopicPartition(self.lane.topic, self.lane.number, position)

"""Where a member of a group is in its lanes. Touched on the poll thread only."""

from dataclasses import dataclass, field
from enum import Enum

from confluent_kafka import TopicPartition

from sidecar.brokers.base import LaneEnd
from sidecar.model import Lane


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
    #: its records were dropped on their way here: it must be moved back to `next`
    astray: bool = False
    #: as last known
    end: LaneEnd | None = None
    #: records that were removed before they could be read
    lost: int = 0
    partition: TopicPartition = field(init=False)

    def __post_init__(self) -> None:
        self.partition = self.at()

    def at(self, position: int | None = None) -> TopicPartition:
        if position is None:
            return TopicPartition(self.lane.topic, self.lane.number)
        return TopicPartition(self.lane.topic, self.lane.number, position)

"""Lanes and groups as the event loop knows them."""

from collections.abc import Mapping
from dataclasses import dataclass

from sidecar.model.records import Lane


@dataclass(slots=True)
class LaneView:
    """A lane as the event loop knows it: never ahead of the disk."""

    id: int
    lane: Lane
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group that has a place in some topics."""

    name: str
    #: a source of it is open now
    is_open: bool
    #: the next position in each lane
    positions: Mapping[Lane, int]
    #: records that retention keeps for it: from its positions to the ends of the lanes
    behind: int

"""What the parts of a subscription report to it.

Each part does its own work and reports facts. `Subscription` implements this protocol, and decides what the other parts
do then; so whoever wants to know what follows from a fact reads one method there.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from sidecar.brokers.base import Polled
from sidecar.core.state.lane import LaneState
from sidecar.core.state.record_slices import RedeliveryGroup
from sidecar.model.records import SessionEnd

if TYPE_CHECKING:
    from sidecar.subscription.session import Session
    from sidecar.subscription.side_topic_writer import PendingWrite


class SideTopic(StrEnum):
    """The topics of the group to which records are written aside. The value is the kind of trouble with it."""

    RETRY = "parking"
    DEAD_LETTERS = "dead_letters"


class SubscriptionEvents(Protocol):
    """Called on the subscription's event loop, per batch or less often. No method blocks or raises."""

    # Session

    def session_changed(self, session: "Session") -> None:
        """Its credit or its backpressure changed, so it may have capacity now, or none any more."""

    def session_ended(self, session: "Session", how: SessionEnd) -> None:
        """The session is over."""

    # Fetcher

    def polled(self, polled: Polled) -> None:
        """The broker returned records or events of lanes."""

    def window_full(self) -> None:
        """A lane has to wait for its slowest records."""

    # AssignmentHandler

    def records_arrived(self) -> None:
        """There may be new records to deliver."""

    def lanes_changed(self) -> None:
        """Lanes were assigned or are gone."""

    # Committer

    def lane_committed(self, lane: LaneState) -> None:
        """The broker has stored a commit of the lane, so its window has moved."""

    def lanes_lost(self, lanes: Iterable[LaneState]) -> None:
        """A commit or a seek found that these epochs of lanes are over."""

    # Deliverer

    def timer_fired(self) -> None:
        """The time has come at which something expires or becomes due."""

    def records_too_large(self, groups: Sequence[RedeliveryGroup]) -> None:
        """A worker with capacity cannot take these records, each in a group of its own."""

    # SettlementHandler

    def records_settled(self) -> None:
        """Records were settled or came back. Also reported by AssignmentHandler, for a gap."""

    def outage_changed(self) -> None:
        """Whether the handler is down may have changed."""

    def too_many_rejected(self) -> None:
        """Nearly all records are rejected: the handler is probably at fault."""

    # SideTopicWriter

    def written_aside(self, topic: SideTopic, writes: Sequence["PendingWrite"]) -> None:
        """These records are durable in the topic."""

    def too_large_to_park(self, write: "PendingWrite") -> None:
        """The retry topic will never take this record."""

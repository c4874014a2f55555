"""The part of the adapter contract that ranges need: a group's positions, without membership in the group."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sidecar.brokers.fencing import Attached
from sidecar.model.records import Lane, Run

if TYPE_CHECKING:
    from sidecar.brokers.base import LaneEnd


@dataclass(frozen=True, slots=True)
class GroupState:
    """What the broker stores for a group."""

    #: the next position in each lane that has one
    positions: Mapping[Lane, int]
    #: None: no reader has attached yet
    attached: Attached | None


class Cursor(ABC):
    """A group's positions, and who may move them. Made by `Broker.cursor`.

    A sidecar has one for each group that is read by ranges, and other sidecars may have one for the same group: only
    what the broker stores counts, and nothing is cached here. Every call but `close` may take as long as the broker
    does, and raises `Unavailable`, `Refused` (also if the group has members: workers that consume it by leases) or
    `NotFound`.
    """

    @abstractmethod
    async def open(self) -> None:
        """Make it usable. Creates the topics where the broker creates them on the fly."""

    @abstractmethod
    async def lanes(self) -> Mapping[Lane, "LaneEnd"]:
        """All lanes of the topics, with their current ends."""

    @abstractmethod
    async def fetch_state(self) -> GroupState:
        """What the broker stores now."""

    @abstractmethod
    async def attach(self, reader: str, now_ms: int) -> Attached:
        """Give out a token newer than all before. Durable when this returns; positions stay."""

    @abstractmethod
    async def pin(self, token: int, positions: Mapping[Lane, int]) -> None:
        """Store positions in lanes that have none; a lane that has one keeps it. Durable when this returns.

        Raises `Fenced` for a token that is not the newest, and `Refused` for one that was never issued.
        """

    @abstractmethod
    async def commit(self, token: int, positions: Mapping[Lane, int]) -> None:
        """Move positions forward; one that is behind the stored position changes nothing. Durable when this returns.

        Raises `Fenced` for a token that is not the newest, and `Refused` for one that was never issued. Where the
        broker cannot compare and store in one step, a commit that is under way while another reader attaches may
        still be stored; none that begins after that is.
        """

    @abstractmethod
    async def move(self, positions: Mapping[Lane, int]) -> None:
        """Store positions, forward or back, for an operator. Who may commit stays. Durable when this returns."""

    async def skip_gap(self, lane: Lane, position: int) -> int:
        """Where a reader at `position` may continue without missing a record. Greater than `position` if the broker
        restarted the lane behind it while the lane was empty; `position` itself otherwise, or if that is not known."""
        return position

    @abstractmethod
    async def close(self) -> None:
        """Never raises."""


class RangeEstimate(Protocol):
    """How many records wait in a run of a lane, as far as a broker can tell without reading them."""

    @property
    def records(self) -> int:
        """The number of records; an estimate where positions do not count records."""

    def position_after(self, records: int) -> int:
        """The position after this many records, at least one beyond the start unless there are none."""


@dataclass(frozen=True, slots=True)
class PositionEstimate:
    """For brokers whose positions count records; gaps only make the number smaller."""

    run: Run

    @property
    def records(self) -> int:
        return max(0, self.run.stop - self.run.start)

    def position_after(self, records: int) -> int:
        return min(self.run.start + records, self.run.stop)

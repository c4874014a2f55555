"""The part of the adapter contract that ranges need: a group's positions without being a member of it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from sidecar.brokers.fencing_tokens import is_token
from sidecar.model.errors import Fenced, Refused
from sidecar.model.records import Lane, Run

if TYPE_CHECKING:
    from sidecar.brokers.base import LaneEnd


class Attached(NamedTuple):
    """Who may commit."""

    token: int
    #: for people
    reader: str
    #: milliseconds since 1970
    since_ms: int


@dataclass(frozen=True, slots=True)
class Standing:
    """What the broker has for a group."""

    #: the next position in each lane that has one
    positions: Mapping[Lane, int]
    #: None: nobody has attached yet
    attached: Attached | None


class Cursor(ABC):
    """A group's positions, and who may move them. Made by `Broker.cursor`.

    A sidecar has one for each group that is read by ranges, and other sidecars have theirs for the same group: what the
    broker has counts, and nothing is remembered here. Every call but `close` may take as long as the broker does, and
    raises `Unavailable`, `Refused` (also if the group has members: workers that consume it by leases) or `NotFound`.
    """

    @abstractmethod
    async def open(self) -> None:
        """Make it usable. Topics are made where the broker makes them on the fly."""

    @abstractmethod
    async def lanes(self) -> Mapping[Lane, "LaneEnd"]:
        """All lanes of the topics as they are now."""

    @abstractmethod
    async def look(self) -> Standing:
        """What the broker has now."""

    @abstractmethod
    async def attach(self, reader: str, now_ms: int) -> Attached:
        """Give out a token that is newer than all before. Durable when this returns; positions stay."""

    @abstractmethod
    async def pin(self, token: int, positions: Mapping[Lane, int]) -> None:
        """Store positions in lanes that have none; a lane that has one keeps it. Durable when this returns.

        Raises `Fenced` for a token that is not the newest, and `Refused` for one that was never given out.
        """

    @abstractmethod
    async def commit(self, token: int, positions: Mapping[Lane, int]) -> None:
        """Move positions forward; one that is behind what is stored changes nothing. Durable when this returns.

        Raises `Fenced` for a token that is not the newest, and `Refused` for one that was never given out. Where the
        broker cannot compare and store in one step, a commit that is under way while another reader attaches may
        still be stored; none that begins after that is.
        """

    @abstractmethod
    async def move(self, positions: Mapping[Lane, int]) -> None:
        """Store positions, forward or back: an operator's wish. Who may commit stays. Durable when this returns."""

    async def passed(self, lane: Lane, position: int) -> int:
        """Where a reader that is at `position` may go on without missing anything, if the broker has begun the lane
        anew behind it while the lane was empty; `position` itself if it has not, or if that is not known."""
        return position

    @abstractmethod
    async def close(self) -> None:
        """Never raises."""


class Stretch(Protocol):
    """Records that wait in a lane, as far as a broker can tell without reading them."""

    @property
    def records(self) -> int:
        """How many; an estimate where positions do not count records."""

    def ahead(self, records: int) -> int:
        """The position after so many of them, at least one further on than the start unless there are none."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Positions count records; gaps only make them fewer."""

    run: Run

    @property
    def records(self) -> int:
        return max(0, self.run.stop - self.run.start)

    def ahead(self, records: int) -> int:
        return min(self.run.start + records, self.run.stop)


def check_token(token: int, attached: Attached | None, *, exact: bool) -> None:
    """Raises `Fenced` or `Refused` unless this is the newest token.

    `exact`: the broker never forgets one that it has stored, so that a greater one was not given out by this group.
    """
    if not is_token(token):
        raise Refused(f"token {token} was never given out: call Attach")
    if attached is not None and token < attached.token:
        raise Fenced(
            f"another reader has attached since this token was given out: {attached.reader or 'one without a name'}, "
            f"token {attached.token}"
        )
    if exact and (attached is None or token > attached.token):
        raise Refused(f"token {token} was not given out for this group, or the group was deleted since: call Attach")

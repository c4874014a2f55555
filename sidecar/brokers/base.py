"""The adapter contract: all that the core knows of a broker.

One `Broker` is one configured connection; `publish`, `read` and `ends` work without a group. `subscribe` gives a
`Source`: one group consuming topics. A new broker is one file with these two classes and one harness for the
shared conformance suite. Differences are declared as traits, never asked by name.

The core calls from one event loop. Blocking client libraries hide in a thread inside their adapter.
The core retries and backs off; adapters classify errors (`sidecar.model.errors`) and never retry by themselves what
the caller would notice.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sidecar.brokers.cursor import Counted, Cursor, Stretch
from sidecar.model.errors import NotFound, Refused
from sidecar.model.records import Assigned, Chunk, Commit, Lane, Message, Place, Run, Start


@dataclass(frozen=True, slots=True)
class Traits:
    """What a broker can promise. The conformance suite tests each claim."""

    #: a commit carries acks beyond the position, so that a restart does not repeat them (promise 9)
    keeps_acks_beyond: bool
    #: lanes can move between sidecars of one group (promise 8)
    rebalances: bool
    #: one sidecar alone has a lane, so that order `key` and `lane` can be promised across sidecars
    lanes_are_exclusive: bool
    #: `Source.seek` works
    seeks: bool
    #: `Broker.read`, `locate`, `survey` and `cursor` work
    reads_ranges: bool
    #: topics are made by `ensure_topic`
    creates_topics: bool
    #: what was acked once cannot be taken back, so that a commit never goes back
    acks_are_final: bool = False
    #: a distance of positions is a number of records, give or take gaps; otherwise it says nothing
    positions_count_records: bool = True
    #: which records no sidecar has had before is known; otherwise chunks are `doubtful`, all of them (promise 2)
    tells_first_deliveries: bool = True


class SeekTo(StrEnum):
    START = "start"
    END = "end"


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record with this timestamp or a later one; the end of the lane if there is none."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtPosition:
    position: int


SeekTarget = SeekTo | AtTime | AtPosition


@dataclass(frozen=True, slots=True)
class Revoked:
    """The lanes are about to move. No further record of theirs arrives. The broker waits `grace` seconds at the
    most for `Source.release`; commits for these lanes are still taken until then."""

    lanes: frozenset[Lane]
    grace: float


@dataclass(frozen=True, slots=True)
class Lost:
    """The lanes are gone already: nothing may be committed for them."""

    lanes: frozenset[Lane]


@dataclass(frozen=True, slots=True)
class Advanced:
    """There is no record in the lane before `position` that was not delivered: what lies between is a gap
    (markers, compaction, retention). `lost` counts records that were removed before they could be read."""

    lane: Lane
    position: int
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that an operator should know, or that is over when `text` is empty. `topic` names what kind of
    trouble it is: a later one of the same topic replaces it."""

    topic: str
    text: str


LaneEvent = Assigned | Revoked | Lost | Advanced | Trouble


@dataclass(frozen=True, slots=True)
class Polled:
    """Events first, in order; then chunks. A lane's chunks follow its `Assigned`."""

    chunks: Sequence[Chunk] = ()
    events: Sequence[LaneEvent] = ()


@dataclass(frozen=True, slots=True)
class LaneEnd:
    """The positions of a lane: the first that can still be read, and the next that will be written."""

    start: int
    end: int
    #: records that the group has not settled, where the broker counts them; -1: not known
    backlog: int = field(default=-1, compare=False)


class Source(ABC):
    """One group's consumption of its topics. Made by `Broker.subscribe`."""

    #: bytes that were fetched and thrown away since the source was opened, and so are fetched again
    refetched_bytes: int = 0
    #: seconds in which nothing was fetched because revoked lanes were waited for: the others lived from what was there
    revoke_seconds: float = 0.0

    @abstractmethod
    async def open(self) -> None:
        """Connect and join the group. Lanes come as `Assigned` events from `poll`.

        May take seconds. Raises `Unavailable` (the core tries again), `Refused` or `NotFound`.
        """

    @abstractmethod
    async def poll(self, max_records: int, max_bytes: int, timeout: float) -> Polled:
        """The next records of the lanes that are not paused, and what happened to lanes.

        Returns as soon as there is anything, after `timeout` seconds at the latest, with at most `max_records`
        records and `max_bytes` bytes of frames; one record alone may exceed `max_bytes`. Takes from every lane
        that has something in turn, so that no lane starves. Called all the time, also when every lane is
        paused: this keeps the group membership. Never called twice at once. Raises `Unavailable`, `Refused`,
        `Corrupt`; records delivered before are not affected. Cancelling it loses no record.
        """

    @abstractmethod
    async def commit(self, commits: Mapping[Lane, Commit]) -> None:
        """Tell the broker how far lanes have come. Returns once the broker has it durably.

        At most one is in flight. May take as long as the broker does; the caller bounds it. Raises `LaneGone` for
        lanes that moved away (the others are committed) and `Unavailable` when a retry may help.
        """

    @abstractmethod
    async def release(self, lanes: Collection[Lane]) -> None:
        """Let go of revoked lanes: the core has committed what it could. Returns at once; unknown lanes are fine."""

    @abstractmethod
    async def pause(self, lanes: Collection[Lane]) -> None:
        """Stop delivering these lanes. Chunks that are on their way may still arrive from the next `poll`.

        Like `resume` it may be called while a `poll` waits, and takes effect in it.
        """

    @abstractmethod
    async def resume(self, lanes: Collection[Lane]) -> None:
        """Go on with these lanes exactly where they stopped."""

    @abstractmethod
    async def seek(self, lanes: Mapping[Lane, SeekTarget]) -> Mapping[Lane, int]:
        """Move lanes; answers the positions they moved to, once the broker has them durably as committed.

        No commit and no other seek is in flight meanwhile; only if `close` comes next is it cancelled. The next `poll`
        that has anything of these lanes starts with their `Assigned`; nothing fetched before the seek arrives after
        it. Raises `LaneGone` for lanes that moved away (the others are moved), `NotFound` and `Unavailable`: then no
        lane is moved, though the broker may have it committed.
        """

    @abstractmethod
    async def ends(self) -> Mapping[Lane, LaneEnd]:
        """The ends of the assigned lanes as last known. Cheap, never blocks; unknown lanes are left out."""

    @abstractmethod
    async def close(self) -> None:
        """Leave the group and free everything. Called once, after the last commit. Never raises."""


class Broker(ABC):
    """One configured broker. Several sources may be open on it."""

    traits: Traits
    #: facts for the status: versions, protocols, folders. No secrets.
    facts: dict[str, str]
    #: what an operator should know now, for the status; empty when all is well
    trouble: str = ""

    @abstractmethod
    async def open(self) -> None:
        """Make it usable for `publish` and `subscribe`. Raises `StartError`, `Unavailable`, `Refused`, `Corrupt`."""

    @abstractmethod
    def subscribe(self, spec: "SourceSpec") -> Source:
        """A source that is not open yet. Cheap."""

    @abstractmethod
    async def publish(self, topic: str, messages: Sequence[Message]) -> Sequence[Place]:
        """Returns once the broker has all messages durably, with their places in order.

        Raises `NotFound` (no such topic, and topics are not made on the fly), `TooLarge`, `Refused`, `OutOfRoom`,
        `Unavailable`. After an error some may have been written.
        """

    @abstractmethod
    async def ensure_topic(self, topic: str, lanes: int) -> None:
        """Make the topic if it is missing, and see to it that what is written to it stays. An existing one is
        otherwise left as it is.

        Called in each life before the first write to a topic of the group's own, also where `publish` makes topics on
        the fly, and again after its `NotFound`. Raises `Unavailable`, and `Refused` if somebody else must make it.
        """

    @abstractmethod
    async def lane_ends(self, topic: str) -> Mapping[Lane, LaneEnd]:
        """Asks the broker. Raises `NotFound`, `Unavailable`."""

    async def written(self, lane: Lane) -> int:
        """The next position that will be written, asked of the broker. It lies beyond the end of the lane where what is
        written cannot be read yet, as in a transaction that is open. Raises `NotFound`, `Unavailable`."""
        ends = await self.lane_ends(lane.topic)
        if lane not in ends:
            raise NotFound(f"There is no lane {lane}.")
        return ends[lane].end

    @abstractmethod
    def read(self, lane: Lane, run: Run, max_bytes: int) -> AsyncIterator[Chunk]:
        """The records of a run, in order, in chunks of about `max_bytes`, without a group. Ends with the run or
        with the lane. Raises `NotFound`, `Unavailable`."""

    async def topics(self, wanted: Collection[str]) -> Collection[str]:
        """The topics that a subscription means: those named, and those that fit a pattern, where there are patterns."""
        return wanted

    async def locate(self, topic: str, target: SeekTarget) -> Mapping[Lane, int]:
        """Where the target is in each lane of a topic. Raises `NotFound`, `Unavailable`."""
        raise Refused("This broker reads no ranges.")

    async def survey(self, runs: Mapping[Lane, Run]) -> Mapping[Lane, Stretch]:
        """What waits in runs that lie within their lanes. Raises `NotFound`, `Unavailable`."""
        return {lane: Counted(run) for lane, run in runs.items()}

    def cursor(self, spec: "SourceSpec") -> Cursor:
        """The positions of a group that is read by ranges. Not open yet. Cheap."""
        raise Refused("This broker reads no ranges.")

    @abstractmethod
    async def close(self) -> None:
        """Close sources and cursors first. Waits for publishes that are under way. Never raises."""


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """What a subscription wants of a broker."""

    group: str
    topics: tuple[str, ...]
    start: Start = Start.EARLIEST
    #: topics that belong to the group itself (its retry topic): made with this many lanes if missing
    own_topics: Mapping[str, int] = field(default_factory=dict)


def no_patterns(kind: str, topics: Collection[str]) -> Iterator[tuple[str, str]]:
    """What a broker that takes names of topics literally has against a subscription: the key, and why."""
    for topic in topics:
        if topic.startswith("^"):
            yield "topics", f'"{topic}" is a pattern, and a broker of type {kind} takes names only'

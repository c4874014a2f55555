"""The adapter contract: everything the rest of the sidecar knows about a broker.

A `Broker` is one configured connection; `publish`, `read` and `lane_ends` work without a group. `subscribe` gives a
`Source`: one group that consumes topics. `BrokerOptions` is the configuration of both. What brokers can do differs:
`Traits` declare it, and no code asks for the type of a broker.

All calls come from one event loop. An adapter runs a blocking client library in a thread of its own. Adapters classify
errors (`sidecar.model.errors`); the core retries and backs off, so an adapter never retries by itself what its caller
would notice.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from sidecar.brokers.range_cursor import Cursor, PositionEstimate, RangeEstimate
from sidecar.model.errors import BrokerError, NotFound, Refused
from sidecar.model.records import Assigned, Chunk, Commit, Lane, Message, Place, Run, Start

if TYPE_CHECKING:
    from sidecar.settings import SubscriptionSettings

#: a topic of the configuration that begins with this is a pattern of names
PATTERN_PREFIX = "^"


@dataclass(frozen=True, slots=True)
class Traits:
    """What a broker can do. The conformance suite tests each claim."""

    #: a commit carries acks beyond the position, so that a restart does not repeat them (promise 9)
    keeps_acks_beyond: bool
    #: a commit carries a reach, so that the next owner of a lane knows what may have been delivered (promise 2)
    keeps_reach: bool
    #: lanes can move between sidecars of one group (promise 8)
    rebalances: bool
    #: only one sidecar has a lane at a time, so that order `key` and `lane` hold across sidecars
    lanes_are_exclusive: bool
    #: `Source.seek` works
    seeks: bool
    #: `Broker.read`, `locate`, `estimate` and `cursor` work
    reads_ranges: bool
    #: `ensure_topic` creates topics
    creates_topics: bool
    #: topics of a subscription may be patterns of names (see `is_pattern`)
    matches_patterns: bool = False
    #: groups stay until they are deleted, and `Broker.delete_group` works
    deletes_groups: bool = False
    #: an ack cannot be taken back, so a commit never goes back
    acks_are_final: bool = False
    #: the difference of two positions is the number of records between them, apart from gaps
    positions_count_records: bool = True
    #: `Message.deliver_after` works
    delays: bool = False
    #: `Message.deduplication_id` works
    deduplicates: bool = False
    #: `Source.left_behind` finds topics that the group does not consume any more
    finds_left_topics: bool = False
    #: the broker tells which records no sidecar has had before; otherwise all are `possibly_processed` (promise 2)
    tells_first_deliveries: bool = True
    #: positions mean the same to every sidecar and after every restart; otherwise a source makes them up as records
    #: arrive, beyond those of any earlier life, and `publish` may not tell them
    positions_are_stable: bool = True
    #: every group of a topic gets all of its records, and a new one may start at either end; otherwise all who consume
    #: a topic share its records
    groups_are_independent: bool = True
    #: records of one key go to one sidecar at a time, so that order `key` holds across sidecars that share a lane
    keeps_keys_together: bool = False
    #: what was committed is committed, however the broker ends; otherwise a broker that is killed may deliver it again
    acks_survive_broker_kill: bool = True
    #: `Broker.read` shows what is in a lane, all of it whatever the run
    browses: bool = False

    @property
    def lists_records(self) -> bool:
        """Whether `Broker.read` shows what is in a lane: for dead letters."""
        return self.reads_ranges or self.browses


class BrokerOptions(ABC):
    """The settings of one type of broker; each adapter has a frozen dataclass of its own."""

    __slots__ = ()

    @property
    @abstractmethod
    def traits(self) -> Traits:
        """What a broker with these options can do."""

    def problems_with(self, subscription: "SubscriptionSettings") -> Iterable[tuple[str, str]]:
        """Why this broker cannot serve a subscription: a key of the subscription, and the reason."""
        return ()

    def problems_here(self, environ: Mapping[str, str]) -> Iterable[tuple[str, str]]:
        """Why these options do not fit this machine: a key of the options, and the reason."""
        return ()


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
    """The lanes are about to move. No more of their records arrive. The broker waits at most `grace` seconds for
    `Source.release`, and accepts commits for these lanes until then."""

    lanes: frozenset[Lane]
    grace: float


@dataclass(frozen=True, slots=True)
class Lost:
    """The lanes are gone already: nothing may be committed for them."""

    lanes: frozenset[Lane]


@dataclass(frozen=True, slots=True)
class Advanced:
    """Every record of the lane before `position` was delivered: the rest up to there is a gap (markers, compaction,
    retention). `lost` counts records that were removed before they could be read."""

    lane: Lane
    position: int
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem that an operator should know about. A later one of the same `kind` replaces it; an empty `text` says
    that it is over."""

    kind: str
    text: str


LaneEvent = Assigned | Revoked | Lost | Advanced | Trouble


@dataclass(frozen=True, slots=True)
class Polled:
    """Events first, in order; then chunks. A lane's chunks follow its `Assigned`."""

    chunks: Sequence[Chunk] = ()
    events: Sequence[LaneEvent] = ()


@dataclass(frozen=True, slots=True)
class LaneEnd:
    """The ends of a lane: the first position that can still be read, and the next that will be written."""

    start: int
    end: int
    #: records that the group has not settled, if the broker counts them; -1: not known
    backlog: int = field(default=-1, compare=False)


class Source(ABC):
    """One group that consumes its topics. Made by `Broker.subscribe`."""

    #: bytes fetched and discarded since the source was opened, which must be fetched again
    refetched_bytes: int = 0
    #: seconds for which the source waited for revoked lanes
    revoke_seconds: float = 0.0

    @abstractmethod
    async def open(self) -> None:
        """Connect and join the group. Lanes arrive as `Assigned` events from `poll`.

        May take seconds. Raises `Unavailable` (the core tries again), `Refused` or `NotFound`.
        """

    @abstractmethod
    async def poll(self, max_records: int, max_bytes: int, timeout: float) -> Polled:
        """The next records of lanes that are not paused, and events of lanes.

        Returns as soon as there is anything, at the latest after `timeout` seconds, with at most `max_records`
        records and `max_bytes` bytes of frames; one record alone may exceed `max_bytes`. Takes from all lanes that
        have records in turn, so that no lane starves. Called continuously, also while every lane is paused: this
        keeps the group membership. Never called concurrently. Raises `Unavailable`, `Refused`, `Corrupt`; records
        delivered before are not affected. Cancelling it loses no record.
        """

    @abstractmethod
    async def commit(self, commits: Mapping[Lane, Commit]) -> None:
        """Store what is settled in each lane. Returns once the broker has it durably.

        At most one is in flight. May take as long as the broker does; the caller sets a timeout. Raises `LaneGone` for
        lanes that moved away (the others are committed) and `Unavailable` when a retry may help.
        """

    @abstractmethod
    async def release(self, lanes: Collection[Lane]) -> None:
        """Give up revoked lanes, after the core committed what it could. Returns at once; ignores unknown lanes."""

    @abstractmethod
    async def pause(self, lanes: Collection[Lane]) -> None:
        """Stop delivering these lanes. The next `poll` may still return chunks of theirs that were already read.

        May be called while a `poll` waits, like `resume`, and takes effect in it.
        """

    @abstractmethod
    async def resume(self, lanes: Collection[Lane]) -> None:
        """Continue these lanes exactly where they stopped."""

    @abstractmethod
    async def seek(self, lanes: Mapping[Lane, SeekTarget]) -> Mapping[Lane, int]:
        """Move lanes. Returns their new positions once the broker has them durably as committed.

        No commit and no other seek is in flight meanwhile; it is cancelled only if `close` comes next. The next `poll`
        that has anything of these lanes starts with their `Assigned`; nothing fetched before the seek arrives after
        it. Raises `LaneGone` for lanes that moved away (the others are moved), `NotFound` and `Unavailable`: then no
        lane is moved, though the broker may have committed the new positions.
        """

    @abstractmethod
    async def ends(self) -> Mapping[Lane, LaneEnd]:
        """The last known ends of the assigned lanes. Cheap, never blocks; leaves out lanes whose ends are not known."""

    async def left_behind(self) -> Mapping[Lane, Run]:
        """Of topics that the group has consumed and does not consume now: what it has not settled. Of topics that were
        its own, all that it still has; of others, perhaps. Raises `Unavailable`, also while the source is not open, and
        `Refused`."""
        return {}

    @abstractmethod
    async def close(self) -> None:
        """Leave the group and free everything. Called once, after the last commit. Never raises."""


class Broker(ABC):
    """One configured broker. Several sources may be open on it."""

    traits: Traits
    #: facts for the status: versions, protocols, folders. No secrets.
    facts: dict[str, str]
    #: the current problem, for the status; empty when there is none
    trouble: str = ""

    @abstractmethod
    async def open(self) -> None:
        """Make it usable for `publish` and `subscribe`. Raises `StartError`, `Unavailable`, `Refused`, `Corrupt`."""

    @abstractmethod
    def subscribe(self, spec: "SourceSpec") -> Source:
        """A source that is not open yet. Cheap."""

    @abstractmethod
    async def publish(self, topic: str, messages: Sequence[Message]) -> Sequence[Place]:
        """Returns the places of the messages, in order, once the broker has all of them durably.

        Raises `NotFound` (no such topic, and topics are not created on the fly), `TooLarge`, `Refused`, `OutOfRoom`,
        `Unavailable`. After an error, some messages may have been written.
        """

    async def publish_each(self, topic: str, messages: Sequence[Message]) -> Sequence[Place | BrokerError]:
        """Returns what became of each message, in order. Raises what `publish` raises for all of them alike.

        For brokers that may write some of them and not others; where a publish is one transaction, this is enough.
        """
        return await self.publish(topic, messages)

    @abstractmethod
    async def ensure_topic(self, topic: str, lanes: int) -> None:
        """Create the topic if it is missing, and make sure that the broker keeps what is written to it. An existing
        topic is otherwise unchanged.

        The core calls it once per run of the sidecar before the first write to a topic of the group's own, even where
        `publish` creates topics on the fly, and again after a `NotFound` of `publish`. Raises `Unavailable`, and
        `Refused` if somebody else must create the topic.
        """

    @abstractmethod
    async def lane_ends(self, topic: str) -> Mapping[Lane, LaneEnd]:
        """The ends of a topic's lanes, asked of the broker. Raises `NotFound`, `Unavailable`."""

    async def log_end(self, lane: Lane) -> int:
        """The next position that will be written, asked of the broker. Beyond the end of the lane if the last records
        cannot be read yet, as in an open transaction. Raises `NotFound`, `Unavailable`."""
        ends = await self.lane_ends(lane.topic)
        if lane not in ends:
            raise NotFound(f"There is no lane {lane}.")
        return ends[lane].end

    @abstractmethod
    def read(self, lane: Lane, run: Run, max_bytes: int) -> AsyncIterator[Chunk]:
        """The records of a run, in order, in chunks of about `max_bytes`, without a group. Ends at the end of the run
        or of the lane. Raises `NotFound`, `Unavailable`."""

    async def topics(self, wanted: Collection[str]) -> Collection[str]:
        """The topics of a subscription: those it names, and those that match its patterns."""
        return wanted

    async def locate(self, topic: str, target: SeekTarget) -> Mapping[Lane, int]:
        """The position of the target in each lane of a topic. Raises `NotFound`, `Unavailable`."""
        raise Refused("This broker reads no ranges.")

    async def estimate(self, runs: Mapping[Lane, Run]) -> Mapping[Lane, RangeEstimate]:
        """How many records wait in runs that lie within their lanes. Raises `NotFound`, `Unavailable`."""
        return {lane: PositionEstimate(run) for lane, run in runs.items()}

    def cursor(self, spec: "SourceSpec") -> Cursor:
        """The positions of a group that is read by ranges. Not open yet. Cheap."""
        raise Refused("This broker reads no ranges.")

    async def delete_group(self, group: str) -> None:
        """Delete a group that no source consumes, so that retention no longer waits for it. Raises `NotFound`."""
        raise Refused("This broker deletes no groups.")

    @abstractmethod
    async def close(self) -> None:
        """Waits for publishes that are under way. Sources and cursors must be closed before. Never raises."""


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """What a subscription asks of a broker."""

    group: str
    topics: tuple[str, ...]
    start: Start = Start.EARLIEST
    #: topics that belong to the group itself (its retry topic): created with this many lanes if missing
    own_topics: Mapping[str, int] = field(default_factory=dict)


def all_placed(outcomes: Sequence[Place | BrokerError]) -> Sequence[Place]:
    """The places of messages. Raises the first error."""
    places = [outcome for outcome in outcomes if isinstance(outcome, Place)]
    if len(places) < len(outcomes):
        raise next(outcome for outcome in outcomes if isinstance(outcome, BrokerError))
    return places


def is_pattern(topic: str) -> bool:
    """Whether a topic of the configuration is a pattern, for brokers that match patterns."""
    return topic.startswith(PATTERN_PREFIX)

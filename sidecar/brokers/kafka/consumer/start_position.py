"""Where lanes start or resume, by what Kafka stores for the group."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from sidecar.brokers.base import LaneEnd, SourceSpec
from sidecar.brokers.kafka.admin import NO_ID, Admin
from sidecar.brokers.kafka.commit_metadata import Stamp, decode, encode, topic_of
from sidecar.brokers.kafka.offset_client import OffsetClient, StoredPosition
from sidecar.brokers.kafka.options import OutOfRange
from sidecar.model.errors import NotFound
from sidecar.model.records import Commit, Lane, Run
from sidecar.model.run_set import RunSet
from sidecar.observability.logs import Log

log = Log("kafka")

#: stores positions of assigned lanes, with their metadata
Pin = Callable[[Mapping[Lane, tuple[int, str]]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class StartPosition:
    """How a lane starts or resumes."""

    #: the position that the group has
    committed: int
    settled: tuple[Run, ...]
    first: bool
    end: LaneEnd
    #: where to read: beyond `committed` if records were removed since
    position: int
    #: records between the two that were removed unread
    lost: int = 0
    topic_id: str = field(default="", compare=False)
    #: of what was committed, if that is known
    reach: int | None = None


def start_position(
    stored: StoredPosition, stamp: Stamp, end: LaneEnd, out_of_range: OutOfRange, *, first: bool
) -> StartPosition:
    """Where an assigned lane starts."""
    committed = stored.position
    position = _reachable(committed, end, out_of_range)
    if committed > end.end:
        # The log was truncated, or is another one: its records are new, wherever the group was in the old one.
        return StartPosition(position, (), first, end, position)
    commit = decode(stored.metadata, stamp, committed, end.end)
    missing = RunSet(commit.beyond).missing(Run(committed, position))
    lost = sum(run.stop - run.start for run in missing)
    return StartPosition(committed, commit.beyond, first, end, position, lost, reach=commit.reach)


def recovery_position(lost: int, end: LaneEnd, out_of_range: OutOfRange) -> StartPosition:
    """Where a lane resumes whose position was lost while it was read."""
    position = _reachable(lost, end, out_of_range)
    return StartPosition(lost, (), False, end, position, max(0, position - lost))


def _reachable(position: int, end: LaneEnd, out_of_range: OutOfRange) -> int:
    if end.start <= position <= end.end:
        return position
    return end.start if out_of_range is OutOfRange.EARLIEST else end.end


class OffsetLookup:
    """Asks Kafka where lanes start. Every call raises `Unavailable`, `Refused` or `NotFound` if Kafka cannot tell."""

    def __init__(
        self, spec: SourceSpec, admin: Admin, offset_client: OffsetClient, out_of_range: OutOfRange, pin: Pin
    ) -> None:
        self._spec = spec
        self._admin = admin
        self._offset_client = offset_client
        self._out_of_range = out_of_range
        self._pin = pin
        #: the id of the topic that each lane started in; by now the topic of that name may be another one
        self._topic_ids: dict[Lane, str] = {}
        #: lanes that start at their end, with the id of their topic; None until `pin_ends`
        self._starts_at_end: dict[Lane, str] | None = None

    async def pin_ends(self) -> None:
        """For a group that starts at the end: its first members must agree on where that is.

        They do if it is stored before the first of them joins; later members find it, or are refused. A lane that has
        no position after that, and did not exist by then, is newer than the group and is read from its start.
        """
        if self._starts_at_end is not None:
            # Lanes that were added since the first call are newer.
            return
        consumed = {topic for topic in self._spec.topics if topic not in self._spec.own_topics}
        found = await self._admin.topics(await self._admin.matching(consumed))
        lanes = [lane for topic in found.values() for lane in topic.lanes]
        known = {lane.topic for lane in await self._offset_client.stored(lanes)}
        new = found.keys() - known - self._spec.own_topics.keys()
        if known - consumed:
            # The group has consumed topics of its pattern before: a topic without a position was created since.
            new &= consumed
        ends = await self._admin.ends(lane for lane in lanes if lane.topic in new)
        await self._offset_client.pin({lane: end.end for lane, end in ends.items()})
        self._starts_at_end = {lane: found[lane.topic].id for lane in ends}

    async def start_positions(self, lanes: Iterable[Lane]) -> dict[Lane, StartPosition]:
        """Where assigned lanes start. A lane without a position gets one stored before any of its records is delivered,
        so that it never starts anywhere else."""
        lanes = list(lanes)
        # In this order: if a topic is recreated meanwhile, the position belongs to the old one, and the ends do not.
        stored = await self._offset_client.stored(lanes)
        ids = await self._current_ids(lanes)
        ends = await self._admin.ends(lanes)
        recreated = [lane for lane in stored if self._was_recreated(lane, stored[lane], ids.get(lane))]
        new = {lane: self._first_start(lane, ids.get(lane, NO_ID), ends[lane]) for lane in lanes if lane not in stored}
        new |= {lane: ends[lane].start for lane in recreated}
        if new:
            await self._pin({lane: (at, self._encode(ids.get(lane), Commit(at))) for lane, at in new.items()})
        ends |= await self._ends_in_transactions(
            {lane: stored[lane].position for lane in stored if lane not in new}, ends
        )
        found: dict[Lane, StartPosition] = {}
        for lane in lanes:
            position = StoredPosition(new[lane], "") if lane in new else stored[lane]
            stamp = Stamp(self._admin.cluster, ids.get(lane, ""))
            first = lane not in stored
            start = start_position(position, stamp, ends[lane], self._out_of_range, first=first)
            found[lane] = replace(start, topic_id=ids.get(lane, ""))
        for lane in recreated:
            log.warning("its topic was deleted and recreated: reading it from its start", lane=lane)
        self._topic_ids.update(ids)
        return found

    async def recovery_position(self, lane: Lane, position: int) -> StartPosition:
        """Where a lane resumes whose position no longer exists."""
        ids = await self._current_ids([lane])
        ends = await self._admin.ends([lane])
        if self._is_another(lane, ids.get(lane)):
            self._topic_ids.update(ids)
            return StartPosition(ends[lane].start, (), False, ends[lane], ends[lane].start, topic_id=ids[lane])
        ends |= await self._ends_in_transactions({lane: position}, ends)
        return replace(recovery_position(position, ends[lane], self._out_of_range), topic_id=ids.get(lane, ""))

    async def recreated(self, lanes: Collection[Lane]) -> list[Lane]:
        """Lanes whose topic was deleted and recreated since they started: they now read another log, as if it
        followed."""
        ids = await self._admin.ids({lane.topic for lane in lanes})
        return [lane for lane in lanes if self._is_another(lane, ids.get(lane.topic))]

    def metadata(self, lane: Lane, commit: Commit) -> str:
        """What is stored beside a position."""
        return self._encode(self._topic_ids.get(lane), commit)

    async def _ends_in_transactions(
        self, positions: Mapping[Lane, int], ends: Mapping[Lane, LaneEnd]
    ) -> dict[Lane, LaneEnd]:
        """The ends of lanes that end before their position because a transaction is open. The position is valid: a tool
        that does not wait for transactions has stored it."""
        beyond = [lane for lane, position in positions.items() if position > ends[lane].end]
        written = await self._admin.written_ends(beyond)
        return {lane: LaneEnd(ends[lane].start, positions[lane]) for lane in beyond if positions[lane] <= written[lane]}

    def _encode(self, topic_id: str | None, commit: Commit) -> str:
        return encode(Stamp(self._admin.cluster, topic_id), commit) if topic_id else ""

    async def _current_ids(self, lanes: Collection[Lane]) -> dict[Lane, str]:
        """The ids of topics that have one, by lane. Raises `NotFound` for a missing topic: it may be about to be
        recreated."""
        topics = await self._admin.topics({lane.topic for lane in lanes})
        for lane in lanes:
            if lane.topic not in topics:
                raise NotFound(f"There is no topic {lane.topic!r}.")
        return {lane: topics[lane.topic].id for lane in lanes if topics[lane.topic].id != NO_ID}

    def _was_recreated(self, lane: Lane, stored: StoredPosition, topic_id: str | None) -> bool:
        """The position belongs to a deleted topic, whose name another topic has now."""
        if topic_id is None:
            return False
        committed_for = topic_of(stored.metadata, self._admin.cluster, stored.position)
        if committed_for is None:
            # Without metadata, a tool has set the position for the topic that exists. Unless we have seen another one:
            # then the position may be our own, where Kafka had no room for metadata.
            return self._is_another(lane, topic_id)
        return committed_for != topic_id

    def _is_another(self, lane: Lane, topic_id: str | None) -> bool:
        """The topic of the lane is not the one that the lane started in."""
        return topic_id is not None and self._topic_ids.get(lane, topic_id) != topic_id

    def _first_start(self, lane: Lane, topic_id: str, end: LaneEnd) -> int:
        """Where the group starts in a lane without a position: the group never consumed it, or Kafka dropped the
        position with a deleted topic."""
        starts_at_end = (self._starts_at_end or {}).get(lane) == topic_id and lane not in self._topic_ids
        return end.end if starts_at_end else end.start

"""Finding out where lanes start, go on, and are moved to. Asks Kafka, on the event loop."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

from sidecar.brokers.base import AtPosition, AtTime, LaneEnd, SeekTarget, SeekTo, SourceSpec
from sidecar.brokers.kafka.admin import NO_ID, Admin, at_time
from sidecar.brokers.kafka.metadata import Stamp, encode, topic_of
from sidecar.brokers.kafka.offset_client import Clerk, Stored
from sidecar.brokers.kafka.options import OutOfRange
from sidecar.brokers.kafka.starting import Beginning, beginning, going_on
from sidecar.model.errors import NotFound
from sidecar.model.records import Commit, Lane
from sidecar.observability.logs import Log

log = Log("kafka")

#: stores positions of lanes that are ours, with their metadata
Pin = Callable[[Mapping[Lane, tuple[int, str]]], Awaitable[None]]


async def resolve(admin: Admin, targets: Mapping[Lane, SeekTarget]) -> dict[Lane, int]:
    """Where targets are in their lanes. Raises `Unavailable`, `Refused` or `NotFound`."""
    ends = await admin.ends(targets)
    times = {lane: target.timestamp_ms for lane, target in targets.items() if isinstance(target, AtTime)}
    found = await admin.offsets({lane: at_time(ms) for lane, ms in times.items()})
    positions: dict[Lane, int] = {}
    for lane, target in targets.items():
        end = ends[lane]
        match target:
            case SeekTo.START:
                positions[lane] = end.start
            case SeekTo.END:
                positions[lane] = end.end
            case AtPosition(position):
                positions[lane] = max(end.start, min(position, end.end))
            case AtTime():
                positions[lane] = found[lane] if found[lane] >= 0 else end.end
    return positions


class Locating:
    """Everything raises `Unavailable`, `Refused` or `NotFound` if Kafka cannot be asked."""

    def __init__(self, spec: SourceSpec, admin: Admin, clerk: Clerk, out_of_range: OutOfRange, pin: Pin) -> None:
        self._spec = spec
        self._admin = admin
        self._clerk = clerk
        self._out_of_range = out_of_range
        self._pin = pin
        #: of the topic that a lane was in when it began: other lanes of its name may have begun in another one
        self._ids: dict[Lane, str] = {}
        #: lanes that start at their end, with the id of their topic; None until they were looked for
        self._at_end: dict[Lane, str] | None = None

    async def pin_ends(self) -> None:
        """For a group that is to start at the end: its first members must agree on where that is.

        They do if it is stored before the first of them joins; later ones find it, or are refused. A lane that has no
        position after that, and was not there by then, is newer than the group and is read from its start.
        """
        if self._at_end is not None:
            # What came since the first time is newer.
            return
        consumed = {topic for topic in self._spec.topics if topic not in self._spec.own_topics}
        found = await self._admin.topics(await self._admin.fitting(consumed))
        lanes = [Lane(topic.name, number) for topic in found.values() for number in range(topic.lanes)]
        known = {lane.topic for lane in await self._clerk.stored(lanes)}
        new = found.keys() - known - self._spec.own_topics.keys()
        if known - consumed:
            # The group was in topics of its pattern before: one that it was not in has been made since.
            new &= consumed
        ends = await self._admin.ends(lane for lane in lanes if lane.topic in new)
        await self._clerk.pin({lane: end.end for lane, end in ends.items()})
        self._at_end = {lane: found[lane.topic].id for lane in ends}

    async def beginnings(self, lanes: Iterable[Lane]) -> dict[Lane, Beginning]:
        """Where assigned lanes start. One without a position is given it before anything of it is delivered, so that
        no later life starts anywhere else."""
        lanes = list(lanes)
        # In this order: if the topic is made again meanwhile, the position is of the older one, and the ends are not.
        stored = await self._clerk.stored(lanes)
        ids = await self._topic_ids(lanes)
        ends = await self._admin.ends(lanes)
        remade = [lane for lane in stored if self._is_remade(lane, stored[lane], ids.get(lane))]
        new = {lane: self._first(lane, ids.get(lane, NO_ID), ends[lane]) for lane in lanes if lane not in stored}
        new |= {lane: ends[lane].start for lane in remade}
        if new:
            await self._pin({lane: (at, self._text(ids.get(lane), Commit(at))) for lane, at in new.items()})
        ends |= await self._ends_behind({lane: stored[lane].position for lane in stored if lane not in new}, ends)
        found: dict[Lane, Beginning] = {}
        for lane in lanes:
            position, metadata = Stored(new[lane], "") if lane in new else stored[lane]
            stamp = Stamp(self._admin.cluster, ids.get(lane, ""))
            first = lane not in stored
            found[lane] = beginning(position, metadata, stamp, ends[lane], self._out_of_range, first=first)
        for lane in remade:
            log.warning("its topic was deleted and made again: it is read from its start", lane=lane)
        self._ids.update(ids)
        return found

    async def goes_on(self, lane: Lane, position: int) -> Beginning:
        """Where a lane goes on whose position is not there any more."""
        ids = await self._topic_ids([lane])
        ends = await self._admin.ends([lane])
        if self._is_another(lane, ids.get(lane)):
            self._ids.update(ids)
            return Beginning(ends[lane].start, (), False, ends[lane], ends[lane].start)
        ends |= await self._ends_behind({lane: position}, ends)
        return going_on(position, ends[lane], self._out_of_range)

    async def remade(self, lanes: Collection[Lane]) -> list[Lane]:
        """Those that began in a topic that was deleted and made again since: what is read of them now is of another
        log, as if it followed."""
        ids = await self._admin.ids({lane.topic for lane in lanes})
        return [lane for lane in lanes if self._is_another(lane, ids.get(lane.topic))]

    async def _ends_behind(self, positions: Mapping[Lane, int], ends: Mapping[Lane, LaneEnd]) -> dict[Lane, LaneEnd]:
        """Of lanes that end before their position for now, since a transaction is open: it is no position of another
        log. Somebody who does not wait for transactions has put the group there."""
        beyond = [lane for lane, position in positions.items() if position > ends[lane].end]
        written = await self._admin.written(beyond)
        return {lane: LaneEnd(ends[lane].start, positions[lane]) for lane in beyond if positions[lane] <= written[lane]}

    def metadata(self, lane: Lane, commit: Commit) -> str:
        """What is stored beside a position."""
        return self._text(self._ids.get(lane), commit)

    def _text(self, topic_id: str | None, commit: Commit) -> str:
        return encode(Stamp(self._admin.cluster, topic_id), commit) if topic_id else ""

    async def _topic_ids(self, lanes: Collection[Lane]) -> dict[Lane, str]:
        """Of lanes whose topic has one. Raises `NotFound` if one is not there: by the next question it may be, anew."""
        topics = await self._admin.topics({lane.topic for lane in lanes})
        for lane in lanes:
            if lane.topic not in topics:
                raise NotFound(f"There is no topic {lane.topic!r}.")
        return {lane: topics[lane.topic].id for lane in lanes if topics[lane.topic].id != NO_ID}

    def _is_remade(self, lane: Lane, stored: Stored, topic_id: str | None) -> bool:
        """The position is of a topic that was deleted; the one that has its name now has other records there."""
        if topic_id is None:
            return False
        committed_for = topic_of(stored.metadata, self._admin.cluster, stored.position)
        if committed_for is None:
            # Where nothing is said, a tool has set the position: it is meant for the topic that is there. Unless we
            # have seen another one: then it may be our own, to which Kafka had no room for a text.
            return self._is_another(lane, topic_id)
        return committed_for != topic_id

    def _is_another(self, lane: Lane, topic_id: str | None) -> bool:
        """The topic of a lane is not the one in which it began here."""
        return topic_id is not None and self._ids.get(lane, topic_id) != topic_id

    def _first(self, lane: Lane, topic_id: str, end: LaneEnd) -> int:
        """Where the group starts in a lane that it was never in, or whose topic was made again, so that Kafka has
        forgotten the position."""
        at_end = self._at_end or {}
        return end.end if at_end.get(lane) == topic_id and lane not in self._ids else end.start

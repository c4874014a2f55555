"""Finding out where lanes start, go on, and are moved to. Asks Kafka, on the event loop."""

from collections.abc import Awaitable, Callable, Iterable, Mapping

from sidecar.brokers.base import AtPosition, AtTime, LaneEnd, SeekTarget, SeekTo, SourceSpec, Start
from sidecar.brokers.kafka.admin import NO_ID, Admin, at_time
from sidecar.brokers.kafka.clerk import Clerk, Stored
from sidecar.brokers.kafka.metadata import Stamp, encode
from sidecar.brokers.kafka.options import OutOfRange
from sidecar.brokers.kafka.starting import Beginning, beginning, going_on
from sidecar.model import Commit, Lane

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
        #: of topics that lanes were assigned of
        self._ids: dict[str, str] = {}

    async def pin_ends(self) -> None:
        """For a group that is to start at the end: its first members must agree on where that is.

        They do if it is stored before the first of them joins; later ones find it, or are refused. A lane that has no
        position after that is newer than the group, and is read from its start.
        """
        consumed = [topic for topic in self._spec.topics if topic not in self._spec.own_topics]
        found = await self._admin.topics(await self._admin.fitting(consumed))
        lanes = [Lane(topic.name, number) for topic in found.values() for number in range(topic.lanes)]
        known = {lane.topic for lane in await self._clerk.stored(lanes)}
        ends = await self._admin.ends(lane for lane in lanes if lane.topic not in known)
        await self._clerk.pin({lane: end.end for lane, end in ends.items()})

    async def beginnings(self, lanes: Iterable[Lane]) -> dict[Lane, Beginning]:
        """Where assigned lanes start. One without a position is given it before anything of it is delivered, so that
        no later life starts anywhere else."""
        lanes = list(lanes)
        for topic in (await self._admin.topics({lane.topic for lane in lanes})).values():
            if topic.id != NO_ID:
                self._ids[topic.name] = topic.id
        ends = await self._admin.ends(lanes)
        stored = await self._clerk.stored(lanes)
        new = {lane: await self._first(lane, ends[lane]) for lane in lanes if lane not in stored}
        if new:
            await self._pin({lane: (position, "") for lane, position in new.items()})
        ends |= await self._ends_behind({lane: stored[lane].position for lane in lanes if lane in stored}, ends)
        found: dict[Lane, Beginning] = {}
        for lane in lanes:
            position, metadata = Stored(new[lane], "") if lane in new else stored[lane]
            found[lane] = beginning(
                position, metadata, self._stamp(lane), ends[lane], self._out_of_range, first=lane in new
            )
        return found

    async def goes_on(self, lane: Lane, position: int) -> Beginning:
        """Where a lane goes on whose position is not there any more."""
        ends = await self._admin.ends([lane])
        ends |= await self._ends_behind({lane: position}, ends)
        return going_on(position, ends[lane], self._out_of_range)

    async def _ends_behind(self, positions: Mapping[Lane, int], ends: Mapping[Lane, LaneEnd]) -> dict[Lane, LaneEnd]:
        """Of lanes that end before their position for now, since a transaction is open: it is no position of another
        log. Somebody who does not wait for transactions has put the group there."""
        beyond = [lane for lane, position in positions.items() if position > ends[lane].end]
        written = await self._admin.written(beyond)
        return {lane: LaneEnd(ends[lane].start, positions[lane]) for lane in beyond if positions[lane] <= written[lane]}

    def metadata(self, lane: Lane, commit: Commit) -> str:
        """What is stored beside a position."""
        return encode(self._stamp(lane), commit) if commit.beyond and lane.topic in self._ids else ""

    def _stamp(self, lane: Lane) -> Stamp:
        return Stamp(self._admin.cluster, self._ids.get(lane.topic, ""))

    async def _first(self, lane: Lane, end: LaneEnd) -> int:
        """Where the group starts in a lane that it was never in."""
        if self._spec.start is Start.EARLIEST or lane.topic in self._spec.own_topics:
            return end.start
        # A lane that was added to a topic that is consumed already: all of it is new.
        topic = await self._admin.topic(lane.topic)
        known = await self._clerk.stored([Lane(lane.topic, number) for number in range(topic.lanes)])
        return end.start if known else end.end

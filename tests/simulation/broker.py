"""A simulated broker: it keeps what the contract says, and uses every freedom that the contract gives it."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from sidecar.brokers.base import Broker, LaneEnd, SourceSpec, Traits
from sidecar.core.failures.dead_letter_topic import HEADERS as DEAD_LETTER_HEADERS
from sidecar.model.errors import NotFound, OutOfRoom, Refused, Unavailable
from sidecar.model.records import Chunk, Lane, Message, Place, Run, Start
from tests.simulation.faults import Faults
from tests.simulation.source import SimSource
from tests.simulation.storage import Copy, LaneLog, Storage, is_parked
from tests.simulation.truth import Truth
from tests.simulation.world import World


class SimBroker(Broker):
    """Its disk outlives every life of the sidecar. One group consumes; another sidecar of it may have lanes too."""

    def __init__(self, world: World, truth: Truth, faults: Faults, *, keeps_acks_beyond: bool, gaps: float) -> None:
        self.world = world
        self.truth = truth
        self.faults = faults
        self.storage = Storage()
        self.traits = Traits(
            keeps_acks_beyond=keeps_acks_beyond,
            rebalances=True,
            lanes_are_exclusive=True,
            seeks=True,
            reads_ranges=True,
            creates_topics=True,
        )
        self.facts = {}
        self.source: SimSource | None = None
        self._gaps = gaps
        #: leave out what a commit said to be settled beyond its position
        self.skips_settled = world.rng.random() < 0.5
        #: the group's own topics: what is published there is told to the checker
        self.retry_topic = ""
        self.dead_letter_topic = ""

    def gap(self) -> int:
        """How many positions are left out before the next record."""
        rng = self.world.rng
        if rng.random() >= self._gaps:
            return 0
        return rng.choice((1, 1, 2, 3, 7, 40))

    async def open(self) -> None:
        pass

    def subscribe(self, spec: SourceSpec) -> SimSource:
        for topic, lanes in spec.own_topics.items():
            self.retry_topic = topic
            self.storage.make_topic(topic, lanes)
        self.source = SimSource(self, spec)
        return self.source

    def pin(self, log: LaneLog, start: Start) -> bool:
        """Give the group a place in the lane, if it has none. Answers whether it had none."""
        if log.pinned:
            return False
        log.pinned = True
        log.committed = log.end if start is Start.LATEST and log.lane.topic != self.retry_topic else log.start
        for copy in log.copies.values():
            if copy.position < log.committed:
                copy.skipped = True
        return True

    async def publish(self, topic: str, messages: Sequence[Message]) -> Sequence[Place]:
        return await self._publish(topic, messages, redriven=False)

    async def _publish(self, topic: str, messages: Sequence[Message], *, redriven: bool) -> Sequence[Place]:
        if topic not in self.storage.topics:
            raise NotFound(f"no topic {topic}")
        what = "park" if topic == self.retry_topic else "dead letter"
        rng, faults = self.world.rng, self.faults
        if not redriven:
            for message in messages:
                self.truth.writes_aside(message, self._came_from(message), parked=topic == self.retry_topic)
        if faults.counted_failures(f"{what} is slow"):
            self.truth.flow.aside_trouble = self.world.now + 3.0
            await asyncio.sleep(rng.uniform(0.2, 3.0))
        elif rng.random() < 0.5:
            await asyncio.sleep(rng.uniform(0.0, 0.02))
        if faults.counted_failures(f"{what} fails"):
            self.truth.flow.aside_trouble = self.world.now
            raise (OutOfRoom if rng.random() < 0.3 else Unavailable)(f"{what} fails")
        if what == "dead letter" and faults.counted_failures("dead letter is refused for a while"):
            self.truth.flow.aside_trouble = self.world.now
            raise Refused("not now")
        if len(messages) > 1 and faults.counted_failures(f"{what} is written in part"):
            self._append(topic, messages[: rng.randrange(1, len(messages))], redriven=redriven)
            self.truth.flow.aside_trouble = self.world.now
            raise Unavailable(f"{what} was written in part")
        places = self._append(topic, messages, redriven=redriven)
        if faults.counted_failures(f"{what} fails after it was written"):
            self.truth.flow.aside_trouble = self.world.now
            raise Unavailable(f"no answer to the write of a {what}")
        return places

    def _append(self, topic: str, messages: Sequence[Message], *, redriven: bool) -> list[Place]:
        places = []
        now = self.world.now
        for message in messages:
            logs = self.storage.topics[topic]
            lane = logs[message.lane % len(logs) if message.lane is not None else 0].lane
            origin = self._came_from(message)
            if topic == self.retry_topic:
                copy = self.storage.park(message, lane, origin, now, self.gap())
                self.truth.parked(origin, copy, message, redriven=redriven)
                self.world.happened("parked" if not redriven else "redriven", origin, copy)
            else:
                copy = self.storage.lanes[lane].append(message, now, origin, self.gap())
                self.truth.dead_lettered(origin, message)
                self.world.happened("dead-lettered", origin)
            places.append(Place(lane.number, copy.position))
        if topic == self.retry_topic and self.source is not None:
            self.source.look()
        return places

    def _came_from(self, message: Message) -> Copy:
        if is_parked(message):
            topic, lane, position = self.truth.origin_of_parked(message)
        else:
            said = {header.name: (header.value or b"").decode() for header in message.headers}
            if any(name not in said for name in DEAD_LETTER_HEADERS):
                self.world.broken("1 nothing is lost", f"a dead letter without its headers: {said}")
            topic, lane, position = (
                said["offramp-topic"],
                int(said["offramp-lane"]),
                int(said["offramp-position"]),
            )
        return self.storage.source_of(message, topic, lane, position)

    async def ensure_topic(self, topic: str, lanes: int) -> None:
        self.storage.make_topic(topic, lanes)

    async def lane_ends(self, topic: str) -> Mapping[Lane, LaneEnd]:
        if topic not in self.storage.topics:
            raise NotFound(f"no topic {topic}")
        return {log.lane: LaneEnd(log.start, log.end) for log in self.storage.topics[topic]}

    async def read(self, lane: Lane, run: Run, max_bytes: int) -> AsyncIterator[Chunk]:
        log = self.storage.lanes[lane]
        at, stop = log.from_(run.start), log.from_(run.stop)
        if stop > at:
            positions = log.positions[at:stop]
            yield Chunk(lane, positions, [log.copies[position].frame for position in positions])

    async def close(self) -> None:
        pass


class Redriver(SimBroker):
    """The same broker, for an operator who redrives: what is published is no parking of the sidecar's."""

    def __init__(self, broker: SimBroker) -> None:
        self.__dict__ = broker.__dict__

    async def publish(self, topic: str, messages: Sequence[Message]) -> Sequence[Place]:
        return await self._publish(topic, messages, redriven=True)

"""A simulated broker: keeps the contract of `brokers.base`, and uses every freedom that the contract gives."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from sidecar.brokers.base import Broker, LaneEnd, SourceSpec, Traits
from sidecar.core.failures.dead_letter_topic import HEADERS as DEAD_LETTER_HEADERS
from sidecar.model.errors import NotFound, OutOfRoom, Refused, TooLarge, Unavailable
from sidecar.model.records import Chunk, Lane, Message, Place, Run, Start
from tests.simulation.broker.faults import Faults
from tests.simulation.broker.source import SimulatedSource
from tests.simulation.broker.storage import LaneLog, Storage, StoredRecord, is_parked
from tests.simulation.checker.checker import Checker
from tests.simulation.checker.promises import Promise
from tests.simulation.world import World


class SimulatedBroker(Broker):
    """Outlives every life of the sidecar. One group consumes; another sidecar of it may have lanes too."""

    def __init__(
        self,
        world: World,
        checker: Checker,
        faults: Faults,
        *,
        keeps_acks_beyond: bool,
        keeps_reach: bool,
        gaps: float,
        largest_parked: int,
    ) -> None:
        self.world = world
        self.checker = checker
        self.faults = faults
        self.storage = Storage()
        self.traits = Traits(
            keeps_acks_beyond=keeps_acks_beyond,
            keeps_reach=keeps_reach,
            rebalances=True,
            lanes_are_exclusive=True,
            seeks=True,
            reads_ranges=True,
            creates_topics=True,
        )
        self.facts = {}
        self.source: SimulatedSource | None = None
        self._gaps = gaps
        self._largest_parked = largest_parked
        #: does not send what a commit named beyond its position
        self.skips_settled = world.rng.random() < 0.5
        #: the group's own topics: the checker is told what is published there
        self.retry_topic = ""
        self.dead_letter_topic = ""

    def gap(self) -> int:
        """How many positions are skipped before the next record."""
        rng = self.world.rng
        if rng.random() >= self._gaps:
            return 0
        return rng.choice((1, 1, 2, 3, 7, 40))

    async def open(self) -> None:
        pass

    def subscribe(self, spec: SourceSpec) -> SimulatedSource:
        for topic, lanes in spec.own_topics.items():
            self.retry_topic = topic
            self.storage.make_topic(topic, lanes)
        self.source = SimulatedSource(self, spec)
        return self.source

    def pin(self, log: LaneLog, start: Start) -> bool:
        """Give the group a position in the lane, if it has none. Returns whether it had none."""
        if log.pinned:
            return False
        log.pinned = True
        latest = start is Start.LATEST and log.lane.topic != self.retry_topic and not log.added
        log.committed = log.end if latest else log.start
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
                self.checker.writing_to_side_topic(message, self._came_from(message), parked=topic == self.retry_topic)
        if faults.occurs(f"{what} is slow"):
            self.checker.progress.side_topic_trouble = self.world.now + 3.0
            await asyncio.sleep(rng.uniform(0.2, 3.0))
        elif rng.random() < 0.5:
            await asyncio.sleep(rng.uniform(0.0, 0.02))
        if faults.occurs(f"{what} fails"):
            self.checker.progress.side_topic_trouble = self.world.now
            raise (OutOfRoom if rng.random() < 0.3 else Unavailable)(f"{what} fails")
        if what == "park" and any(len(message.value or b"") > self._largest_parked for message in messages):
            self.world.exercised("a record is too large to park")
            raise TooLarge("too large for the retry topic")
        if faults.occurs(f"{what} is refused for a while"):
            self.checker.progress.side_topic_trouble = self.world.now
            raise Refused("not now")
        if len(messages) > 1 and faults.occurs(f"{what} is written in part"):
            self._append(topic, messages[: rng.randrange(1, len(messages))], redriven=redriven)
            self.checker.progress.side_topic_trouble = self.world.now
            raise Unavailable(f"{what} was written in part")
        places = self._append(topic, messages, redriven=redriven)
        if faults.occurs(f"{what} fails after it was written"):
            self.checker.progress.side_topic_trouble = self.world.now
            raise Unavailable(f"no answer to the write of a {what}")
        return places

    def _append(self, topic: str, messages: Sequence[Message], *, redriven: bool) -> list[Place]:
        places = []
        for message in messages:
            logs = self.storage.topics[topic]
            lane = logs[message.lane % len(logs) if message.lane is not None else 0].lane
            origin = self._came_from(message)
            if topic == self.retry_topic:
                copy = self.storage.park(message, lane, origin, self.gap())
                self.checker.parked(origin, copy, message, redriven=redriven)
                self.world.happened("parked" if not redriven else "redriven", origin, copy)
            else:
                copy = self.storage.lanes[lane].append(message, origin, self.gap())
                self.checker.dead_lettered(origin, message)
                self.world.happened("dead-lettered", origin)
            places.append(Place(lane.number, copy.position))
        if topic == self.retry_topic and self.source is not None:
            self.source.look()
        return places

    def _came_from(self, message: Message) -> StoredRecord:
        if is_parked(message):
            topic, lane, position = self.checker.origin_of_parked(message)
        else:
            said = {header.name: (header.value or b"").decode() for header in message.headers}
            if any(name not in said for name in DEAD_LETTER_HEADERS):
                self.world.broken(Promise.NOTHING_IS_LOST, f"a dead letter without its headers: {said}")
            topic, lane, position = (said["offramp-topic"], int(said["offramp-lane"]), int(said["offramp-position"]))
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


class Redriver(SimulatedBroker):
    """The same broker for a redrive by an operator: the checker does not take it for parking."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self.__dict__ = broker.__dict__

    async def publish(self, topic: str, messages: Sequence[Message]) -> Sequence[Place]:
        if topic == self.retry_topic:
            return await self._publish(topic, messages, redriven=True)
        return [self._note(topic, message) for message in messages]

    def _note(self, topic: str, message: Message) -> Place:
        """What was redriven is noted in the dead-letter topic."""
        if self.faults.occurs("dead letter fails"):
            raise Unavailable("the note fails")
        lane = self.storage.topics[topic][message.lane or 0].lane
        return Place(lane.number, self.storage.lanes[lane].append(message, None, self.gap()).position)

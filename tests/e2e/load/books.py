"""What the broker and the workers' journals say, and whether it fits together. The sidecar is not asked.

Read the broker only while no sidecar runs.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from sidecar import dead_letters, parking
from sidecar.brokers.base import Assigned, Broker, SourceSpec
from sidecar.brokers.local import LocalBroker, LocalOptions
from sidecar.dead_letters import DeadLetter
from sidecar.errors import NotFound
from sidecar.model import Chunk, Lane, Run
from sidecar.settings import Bytes, ParkingSettings, SubscriptionSettings
from sidecar.wire import decode_frame
from tests.e2e.load.crew import LANES, TOPIC
from tests.e2e.load.journal import Entry, Reader, Spot, Word
from tests.e2e.load.kinds import DEADLY, kind_of

_SETTINGS = SubscriptionSettings(name=TOPIC, topics=(TOPIC,))


@dataclass
class Stock:
    """What the broker has on disk."""

    values: dict[Spot, bytes] = field(default_factory=dict)
    #: what the group would not get again if a sidecar started now
    committed: set[Spot] = field(default_factory=set)
    dead: dict[Spot, DeadLetter] = field(default_factory=dict)
    #: by origin, oldest first: whether that stay in the retry topic is over, as far as the group is concerned
    parked: dict[Spot, list[bool]] = field(default_factory=lambda: defaultdict(list))


class Books:
    """Compares. Each check says what is wrong as sentences."""

    def __init__(self, data: Path) -> None:
        self.stock = Stock()
        self.acked: set[Spot] = set()
        self.settled: set[Spot] = set()
        #: deliveries of a record after a worker had acked it
        self.repeats = 0
        #: those among them that were not flagged
        self.surprises: list[Entry] = []
        self._data = data
        self._readers: dict[Path, Reader] = {}

    def read(self, journals: list[Path]) -> None:
        """Take in what is new."""
        for path in journals:
            self._readers.setdefault(path, Reader(path))
        # By time, so that a delivery after an ack is known as one.
        for entry in sorted(entry for reader in self._readers.values() for entry in reader.news()):
            if entry.word is Word.ACKED:
                self.acked.add(entry.spot)
            elif entry.word is Word.SETTLED:
                self.settled.add(entry.spot)
            elif entry.spot in self.acked:
                self.repeats += 1
                if not entry.possibly_processed:
                    self.surprises.append(entry)
        self.stock = asyncio.run(_take_stock(self._data))

    def committed_too_early(self) -> list[str]:
        """What the group would never get again, though nobody acked it and it is not durably aside."""
        stock = self.stock
        early = [
            f"{spot} {stock.values[spot]!r} is committed"
            for spot in stock.committed
            if spot not in self.acked and spot not in stock.dead and spot not in stock.parked
        ]
        for spot, stays in stock.parked.items():
            if stays[-1] and spot not in self.acked and spot not in stock.dead:
                early.append(f"{spot} {stock.values[spot]!r} was parked and is committed in the retry topic")
        return early

    def settled_and_not_committed(self) -> list[str]:
        """What would be replayed though the sidecar said that it counts: nothing after an orderly stop."""
        stock = self.stock
        return [
            f"{spot} {stock.values[spot]!r} is not committed"
            for spot in self.settled
            if not (stock.parked[spot][-1] if spot in stock.parked else spot in stock.committed)
        ]

    def unaccounted(self) -> list[str]:
        """What is neither acked nor a dead letter, or is what it should not be."""
        problems = []
        for spot, value in self.stock.values.items():
            reason = DEADLY.get(kind_of(value))
            letter = self.stock.dead.get(spot)
            if letter is None and spot not in self.acked:
                problems.append(f"{spot} {value!r} is lost")
            elif letter is not None and (reason is None or reason not in letter.reason):
                problems.append(f"{spot} {value!r} is a dead letter: {letter.reason}")
            elif reason is not None and spot in self.acked:
                problems.append(f"{spot} {value!r} was acked")
        return problems

    def missing(self, confirmed: set[bytes]) -> set[bytes]:
        """What was published and is not there."""
        return confirmed - set(self.stock.values.values())


async def _take_stock(data: Path) -> Stock:
    options = LocalOptions(directory=str(data), lanes=LANES, reserve_bytes=Bytes(1 << 20))
    broker = LocalBroker(options)
    await broker.open()
    try:
        stock = Stock()
        async for chunk in _all(broker, TOPIC):
            for frame in chunk.frames:
                record = decode_frame(frame)
                stock.values[Spot(record.lane, record.position)] = record.value or b""
        over = await _cursors(broker, stock)
        async for chunk in _all(broker, _SETTINGS.retry_topic):
            for index, position in enumerate(chunk.positions):
                frame = parking.unpark(chunk, index, now=0.0, wall_ms=0, doubtful=False).chunk.frames[0]
                origin = decode_frame(frame)
                stock.parked[Spot(origin.lane, origin.position)].append((chunk.lane.number, position) in over)
        for letter in await dead_letters.list_dead_letters(broker, _SETTINGS):
            stock.dead[Spot(letter.record.lane, letter.record.position)] = letter
        return stock
    finally:
        await broker.close()


async def _cursors(broker: Broker, stock: Stock) -> set[tuple[int, int]]:
    """Joins the group as the next sidecar would. Answers which places of the retry topic are committed."""
    own_topics = {_SETTINGS.retry_topic: ParkingSettings().lanes}
    source = broker.subscribe(SourceSpec(_SETTINGS.group_name, _SETTINGS.topics, own_topics=own_topics))
    await source.open()
    over: set[tuple[int, int]] = set()
    for event in (await source.poll(1, 1, 0.0)).events:
        if isinstance(event, Assigned):
            done = [Run(0, event.start), *event.settled]
            positions = [position for run in done for position in range(run.start, run.stop)]
            if event.lane.topic == TOPIC:
                stock.committed.update(Spot(event.lane.number, position) for position in positions)
            else:
                over.update((event.lane.number, position) for position in positions)
    await source.close()
    return over


async def _all(broker: Broker, topic: str) -> AsyncIterator[Chunk]:
    try:
        ends = await broker.lane_ends(topic)
    except NotFound:
        return
    for lane, end in sorted(ends.items()):
        async for chunk in broker.read(Lane(*lane), Run(end.start, end.end), 1 << 20):
            yield chunk

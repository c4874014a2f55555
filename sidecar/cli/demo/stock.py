"""What the broker has on disk after the demo: read through the broker itself, with no sidecar running."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from sidecar import config
from sidecar.brokers.base import Broker, SourceSpec
from sidecar.brokers.local import LocalBroker, LocalOptions
from sidecar.cli.demo import orders
from sidecar.cli.demo.books import Spot
from sidecar.cli.demo.orders import Kind
from sidecar.cli.demo.plan import SUBSCRIPTION, TOPIC, Folder
from sidecar.core.failures import retry_topic
from sidecar.core.failures.dead_letter_topic import DeadLetterEntry
from sidecar.model.errors import NotFound
from sidecar.model.records import Assigned, Chunk, Lane, Run
from sidecar.model.run_set import RunSet
from sidecar.model.wire import decode_frame
from sidecar.settings import SubscriptionSettings
from sidecar.subscription import dead_letters

_READ_BYTES = 4 << 20


@dataclass
class Stock:
    #: what the topic holds
    published: dict[Lane, RunSet] = field(default_factory=dict)
    #: how many different orders that is
    orders: int = 0
    #: those that are not plain
    kinds: dict[Spot, Kind] = field(default_factory=dict)
    #: what the group would not get again if a sidecar started now
    committed: dict[Lane, RunSet] = field(default_factory=dict)
    dead: dict[Spot, DeadLetterEntry] = field(default_factory=dict)
    #: what was ever parked, and what of it still is
    parked: set[Spot] = field(default_factory=set)
    still_parked: set[Spot] = field(default_factory=set)


async def take_stock(folder: Folder) -> Stock:
    """Raises `OfframpError` if the broker cannot be read."""
    settings = config.load(str(folder.config), environ={}).subscriptions[SUBSCRIPTION]
    broker = LocalBroker(LocalOptions(directory=str(folder.data)))
    await broker.open()
    try:
        stock = Stock()
        await _read_orders(stock, broker)
        await _read_cursors(stock, broker, settings)
        await _read_parked(stock, broker, settings.retry_topic)
        for letter in await dead_letters.list_dead_letters(broker, settings):
            stock.dead[Lane(letter.topic, letter.record.lane), letter.record.position] = letter
        return stock
    finally:
        await broker.close()


async def _read_orders(stock: Stock, broker: Broker) -> None:
    numbers = set()
    async for chunk in _all(broker, TOPIC):
        published = stock.published.setdefault(chunk.lane, RunSet())
        for position, frame in zip(chunk.positions, chunk.frames, strict=True):
            published.add(Run(position, position + 1))
            # A frame has the text of the order as it was published, so that there is no need to take it apart.
            numbers.add(orders.number_of(frame))
            kind = orders.kind_of(frame)
            if kind is not Kind.PLAIN:
                stock.kinds[chunk.lane, position] = kind
    stock.orders = len(numbers - {None})


async def _read_cursors(stock: Stock, broker: Broker, settings: SubscriptionSettings) -> None:
    """Joins the group as the next sidecar would, and sees where it would go on."""
    own_topics = {settings.retry_topic: settings.parking.lanes}
    source = broker.subscribe(SourceSpec(settings.group_name, settings.topics, own_topics=own_topics))
    await source.open()
    try:
        for event in (await source.poll(1, 1, 0.0)).events:
            if isinstance(event, Assigned):
                stock.committed[event.lane] = RunSet([Run(0, event.start), *event.settled])
    finally:
        await source.close()


async def _read_parked(stock: Stock, broker: Broker, topic: str) -> None:
    async for chunk in _all(broker, topic):
        for index, position in enumerate(chunk.positions):
            record = retry_topic.unpark(chunk, index, now=0.0, wall_ms=0, possibly_processed=False).chunk
            spot = record.shown, decode_frame(record.frames[0]).position
            stock.parked.add(spot)
            if position not in stock.committed[chunk.lane]:
                stock.still_parked.add(spot)


async def _all(broker: Broker, topic: str) -> AsyncIterator[Chunk]:
    try:
        ends = await broker.lane_ends(topic)
    except NotFound:
        return
    for lane, end in ends.items():
        async for chunk in broker.read(lane, Run(end.start, end.end), _READ_BYTES):
            yield chunk

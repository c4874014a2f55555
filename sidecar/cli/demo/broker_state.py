"""What the broker has stored after the demo, read through the broker itself while no sidecar runs."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from sidecar import config
from sidecar.brokers.base import Broker, SourceSpec
from sidecar.brokers.local import LocalBroker, LocalOptions
from sidecar.cli.demo import orders
from sidecar.cli.demo.journal import RecordId
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
class BrokerState:
    #: the records of the topic
    published: dict[Lane, RunSet] = field(default_factory=dict)
    #: how many different orders these are
    orders: int = 0
    #: the kinds of those that are not plain
    kinds: dict[RecordId, Kind] = field(default_factory=dict)
    #: what the group would not receive again if a sidecar started now
    committed: dict[Lane, RunSet] = field(default_factory=dict)
    dead: dict[RecordId, DeadLetterEntry] = field(default_factory=dict)
    #: records that were ever parked, and those that still are
    parked: set[RecordId] = field(default_factory=set)
    still_parked: set[RecordId] = field(default_factory=set)


async def read_broker_state(folder: Folder) -> BrokerState:
    """Raises `OfframpError` if the broker cannot be read."""
    settings = config.load(str(folder.config), environ={}).subscriptions[SUBSCRIPTION]
    broker = LocalBroker(LocalOptions(directory=str(folder.data)))
    await broker.open()
    try:
        state = BrokerState()
        await _read_orders(state, broker)
        await _read_cursors(state, broker, settings)
        await _read_parked(state, broker, settings.retry_topic)
        for entry in (await dead_letters.list_dead_letters(broker, settings)).letters:
            state.dead[Lane(entry.topic, entry.record.lane), entry.record.position] = entry
        return state
    finally:
        await broker.close()


async def _read_orders(state: BrokerState, broker: Broker) -> None:
    numbers = set()
    async for chunk in _all(broker, TOPIC):
        published = state.published.setdefault(chunk.lane, RunSet())
        for position, frame in zip(chunk.positions, chunk.frames, strict=True):
            published.add(Run(position, position + 1))
            # The frame contains the text of the order as published, so it needs no decoding.
            numbers.add(orders.number_of(frame))
            kind = orders.kind_of(frame)
            if kind is not Kind.PLAIN:
                state.kinds[chunk.lane, position] = kind
    state.orders = len(numbers - {None})


async def _read_cursors(state: BrokerState, broker: Broker, settings: SubscriptionSettings) -> None:
    """Joins the group as the next sidecar would, and reads where it would continue."""
    own_topics = {settings.retry_topic: settings.parking.lanes}
    source = broker.subscribe(SourceSpec(settings.group_name, settings.topics, own_topics=own_topics))
    await source.open()
    try:
        for event in (await source.poll(1, 1, 0.0)).events:
            if isinstance(event, Assigned):
                state.committed[event.lane] = RunSet([Run(0, event.start), *event.settled])
    finally:
        await source.close()


async def _read_parked(state: BrokerState, broker: Broker, topic: str) -> None:
    async for chunk in _all(broker, topic):
        for index, position in enumerate(chunk.positions):
            record = retry_topic.unpark(chunk, index, now=0.0, wall_ms=0, possibly_processed=False).chunk
            origin = record.shown, decode_frame(record.frames[0]).position
            state.parked.add(origin)
            if position not in state.committed[chunk.lane]:
                state.still_parked.add(origin)


async def _all(broker: Broker, topic: str) -> AsyncIterator[Chunk]:
    try:
        ends = await broker.lane_ends(topic)
    except NotFound:
        return
    for lane, end in ends.items():
        async for chunk in broker.read(lane, Run(end.start, end.end), _READ_BYTES):
            yield chunk

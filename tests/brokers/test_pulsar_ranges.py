"""Ranges on Pulsar, where positions do not count records and one entry may hold many."""

import asyncio
from collections.abc import Awaitable, Callable
from math import ceil

import pytest

from sidecar.brokers.base import SourceSpec
from sidecar.brokers.cursor import Cursor
from sidecar.brokers.pulsar import PulsarBroker
from sidecar.brokers.pulsar.ledgers import Ledgers
from sidecar.brokers.pulsar.positions import pack
from sidecar.model import Lane, Run
from sidecar.wire import decode_frame
from tests.brokers.pulsar import name, running
from tests.e2e.pulsar.stock import client_of
from tests.servers.pulsar import PulsarServer

Body = Callable[[PulsarBroker, str, Cursor], Awaitable[None]]


def play(server: PulsarServer, body: Body) -> None:
    """On a topic of one lane with 100 messages in batches of ten, and a cursor of a group whose reader is attached."""

    async def played() -> None:
        async with running(server) as broker:
            topic = name("topic")
            await broker.ensure_topic(topic, 1)
            await asyncio.to_thread(publish, server, topic)
            cursor = broker.cursor(SourceSpec(topic, (topic,)))
            await cursor.open()
            await body(broker, topic, cursor)

    asyncio.run(played())


def publish(server: PulsarServer, topic: str) -> None:
    batches = {"batching_enabled": True, "batching_max_messages": 10, "batching_max_publish_delay_ms": 60_000}
    with client_of(server) as client:
        producer = client.create_producer(f"{topic}-partition-0", **batches)
        for number in range(100):
            producer.send_async(b"%d" % number, None)
        producer.flush()


async def read(broker: PulsarBroker, lane: Lane, run: Run) -> list[bytes | None]:
    return [decode_frame(frame).value async for chunk in broker.read(lane, run, 1 << 20) for frame in chunk.frames]


def test_a_stretch_counts_the_messages_of_batches(pulsar: PulsarServer) -> None:
    async def body(broker: PulsarBroker, topic: str, _: Cursor) -> None:
        lane = Lane(topic, 0)
        end = (await broker.lane_ends(topic))[lane]
        run = Run(end.start, end.end)
        stretch = (await broker.survey({lane: run}))[lane]
        assert stretch.records == 100
        third = stretch.ahead(30)
        assert len(await read(broker, lane, Run(run.start, third))) == 30
        # Less than a batch is a batch: an entry is not taken apart.
        assert len(await read(broker, lane, Run(run.start, stretch.ahead(3)))) == 10
        rest = (await broker.survey({lane: Run(third, run.stop)}))[lane]
        assert rest.records == 70
        assert rest.ahead(70) == run.stop

    play(pulsar, body)


def test_a_position_within_a_batch_is_kept_exactly(pulsar: PulsarServer) -> None:
    async def body(broker: PulsarBroker, topic: str, cursor: Cursor) -> None:
        lane = Lane(topic, 0)
        end = (await broker.lane_ends(topic))[lane]
        token = (await cursor.attach("reader", 1)).token
        for position, backlog in ((end.start + 3, 10), (end.start, 10), (end.end, 0)):
            await cursor.commit(token, {lane: position})
            expected = max(position, end.start + 3)
            assert (await cursor.look()).positions == {lane: expected}
            # Pulsar counts a batch as one.
            assert await broker.admin.backlog(f"persistent://public/default/{topic}-partition-0", topic) == backlog

    play(pulsar, body)


def test_a_cursor_that_somebody_has_moved_counts(pulsar: PulsarServer) -> None:
    async def body(broker: PulsarBroker, topic: str, cursor: Cursor) -> None:
        lane = Lane(topic, 0)
        end = (await broker.lane_ends(topic))[lane]
        token = (await cursor.attach("reader", 1)).token
        await cursor.commit(token, {lane: end.end})
        # As `pulsar-admin topics reset-cursor` does.
        path = f"persistent/public/default/{topic}-partition-0/subscription/{topic}/resetcursor/0"
        await asyncio.to_thread(pulsar.admin, "POST", path)
        standing = await cursor.look()
        assert standing.positions == {lane: end.start}
        assert standing.attached is not None
        assert standing.attached.token == token

    play(pulsar, body)


def test_first_positions_that_were_not_all_stored_do_not_count(pulsar: PulsarServer) -> None:
    async def body(broker: PulsarBroker, topic: str, _: Cursor) -> None:
        wide = name("topic")
        await broker.ensure_topic(wide, 3)
        cursor = broker.cursor(SourceSpec(wide, (wide,)))
        token = (await cursor.attach("reader", 1)).token
        # As if the sidecar was killed after the first of three lanes.
        lane = Lane(wide, 2)
        await broker.admin.subscribe(f"persistent://public/default/{wide}-partition-2", wide)
        assert dict((await cursor.look()).positions) == {}
        ends = await cursor.lanes()
        await cursor.pin(token, {lane: end.end for lane, end in ends.items()})
        assert dict((await cursor.look()).positions) == {lane: end.end for lane, end in ends.items()}
        assert lane in ends

    play(pulsar, body)


@pytest.mark.parametrize("per_entry", [1.0, 2.5, 100.0])
def test_counting_goes_from_ledger_to_ledger(per_entry: float) -> None:
    ledgers = ((3, 4), (7, 0), (9, 5))
    whole = Ledgers(Run(pack(3, 0), pack(9, 4, 1)), ledgers, per_entry)
    assert whole.records == round(9 * per_entry)
    ends = [whole.ahead(ceil(entries * per_entry)) for entries in range(1, 10)]
    assert ends[3] == pack(3, 4)
    assert ends[4] == pack(9, 1)
    assert ends[-1] == pack(9, 4, 1)
    assert ends == sorted(set(ends))


def test_what_is_left_of_one_entry_is_counted_exactly() -> None:
    rest = Ledgers(Run(pack(3, 2, 4), pack(3, 2, 9)), ((3, 3),), 50.0)
    assert rest.records == 5
    assert [rest.ahead(records) for records in (1, 5, 9)] == [pack(3, 2, 5), pack(3, 2, 9), pack(3, 2, 9)]


def test_the_end_of_a_lane_never_moves_back_when_the_topic_is_loaded_anew(pulsar: PulsarServer) -> None:
    async def body(broker: PulsarBroker, topic: str, _: Cursor) -> None:
        lane = Lane(topic, 0)
        seen = (await broker.lane_ends(topic))[lane].end
        for _round in range(2):
            # Loaded again, it begins with a ledger that is empty.
            path = f"persistent/public/default/{topic}-partition-0/unload"
            await broker.admin._ask("PUT", path)
            end = (await broker.lane_ends(topic))[lane].end
            assert end >= seen, "a range that was planned before would seem to be cut"
            seen = end

    play(pulsar, body)

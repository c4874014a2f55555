"""A plain member of the same group beside Offramp: who has lost its lanes commits nothing, and nobody gets them early.

What the library does with the assignment between two polls says something to Kafka. So here the poll thread moves lanes
again and again instead of polling, while Kafka takes lanes away from it.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from sidecar.brokers.base import Lost, Revoked, SourceSpec
from sidecar.brokers.kafka.consumer.source import KafkaSource
from sidecar.brokers.kafka.options import GroupProtocol
from sidecar.model.errors import LaneGone
from sidecar.model.records import Commit, Lane
from tests.brokers.harness import WAIT_TIMEOUT, Consumer, name, numbered
from tests.brokers.kafka.harness import BOTH, KnownBroker, options
from tests.event_loop import on_event_loop
from tests.servers.kafka import QUIET, KafkaServer
from tests.servers.kafka_groups import give_to_others, targets
from tests.servers.process import await_

LANES = 4
#: moves after Kafka has taken lanes away, and seconds between two: Offramp's member hears of it long before the last
MOVES, INTERVAL = 120, 0.01


class Plain:
    """A member of the group without Offramp. Has lanes from when its callback was called."""

    def __init__(self, kafka: KafkaServer, group: str, topic: str, protocol: GroupProtocol) -> None:
        classic = {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 200}
        self._consumer = confluent_kafka.Consumer(
            {
                **kafka.settings(),
                "group.id": group,
                "group.protocol": protocol.value,
                "client.id": name("plain"),
                "enable.auto.commit": False,
                **(classic if protocol is GroupProtocol.CLASSIC else {}),
            },
            logger=QUIET,
        )
        self._topic = topic
        self.lanes: set[Lane] = set()
        self._stopping = threading.Event()
        self._commands: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def commit(self, lanes: Collection[Lane], position: int) -> None:
        """Kafka accepts any lane of a member of the current epoch. Returns once it has the positions."""
        done = threading.Event()

        def send() -> None:
            # The epoch may be about to change.
            offsets = [TopicPartition(*lane, position) for lane in lanes]
            self._consumer.commit(offsets=offsets, asynchronous=False)
            done.set()

        self._commands.append(send)
        assert done.wait(WAIT_TIMEOUT)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._gone, on_lost=self._gone)
        while not self._stopping.is_set():
            self._consumer.poll(0.02)
            while self._commands:
                try:
                    self._commands[0]()
                except confluent_kafka.KafkaException as error:
                    if error.args[0].code() not in _EPOCH_CHANGES:
                        raise
                    break
                del self._commands[0]

    def _assigned(self, _: Any, partitions: list[TopicPartition]) -> None:
        self._consumer.incremental_assign(partitions)
        self.lanes |= {Lane(each.topic, each.partition) for each in partitions}

    def _gone(self, _: Any, partitions: list[TopicPartition]) -> None:
        self._consumer.incremental_unassign(partitions)
        self.lanes -= {Lane(each.topic, each.partition) for each in partitions}


_EPOCH_CHANGES = (
    confluent_kafka.KafkaError.STALE_MEMBER_EPOCH,
    confluent_kafka.KafkaError.ILLEGAL_GENERATION,
    confluent_kafka.KafkaError.REBALANCE_IN_PROGRESS,
    confluent_kafka.KafkaError.UNKNOWN_MEMBER_ID,
)


class Group:
    """Offramp has all lanes, of which nothing is committed but the start."""

    def __init__(self, kafka: KafkaServer, consumer: Consumer, client_id: str, protocol: GroupProtocol) -> None:
        self._kafka = kafka
        self._protocol = protocol
        self.client_id = client_id
        self.offramp = consumer
        source = cast(KafkaSource, consumer.source)
        self.name, (self.topic,) = source.spec.group, source.spec.topics
        self.lanes = {Lane(self.topic, number) for number in range(LANES)}
        thread = source._main._poll_thread
        assert thread is not None
        self._thread = thread

    @contextmanager
    def plain_member(self) -> Iterator[Plain]:
        plain = Plain(self._kafka, self.name, self.topic, self._protocol)
        try:
            yield plain
        finally:
            plain.close()

    @contextmanager
    def moving_lanes_instead_of_polling(self) -> Iterator[None]:
        """Ends after some more moves than were made within."""
        ends, moved = threading.Event(), threading.Event()

        def move() -> None:
            left = MOVES
            while left:
                self._thread._positions.move(dict.fromkeys(self.lanes, 0), lambda: None)
                time.sleep(INTERVAL)
                left -= ends.is_set()
            moved.set()

        self._thread._queue.put(move)
        try:
            yield
        finally:
            ends.set()
            assert moved.wait(WAIT_TIMEOUT)

    def told_to_share(self) -> bool:
        """Kafka answers the next heartbeat of Offramp with half of the lanes, or has done so."""
        return len(targets(self._kafka, self.name).get(self.client_id, ())) == LANES // 2

    def give_to_others(self) -> None:
        give_to_others(self._kafka, self.name, self.client_id)

    def stored(self) -> dict[Lane, int]:
        found = self._kafka.committed(self.name, self.topic, range(LANES))
        return {Lane(self.topic, number): position for number, (position, _) in found.items()}


@asynccontextmanager
async def group(kafka: KafkaServer, protocol: GroupProtocol) -> AsyncIterator[Group]:
    topic = name("topic")
    kafka.make_topic(topic, LANES)
    for lane in range(LANES):
        kafka.publish(topic, *numbered(10), lane=lane)
    # The assignor decides by the names of members, unless it is the one that gives each an equal number.
    uniform = {"group.remote.assignor": "uniform"} if protocol is GroupProtocol.CONSUMER else {}
    broker = KnownBroker(options(kafka, group_protocol=protocol, properties=uniform))
    await broker.open()
    consumer = Consumer(broker.subscribe(SourceSpec(name("group"), (topic,))))
    await consumer.source.open()
    try:
        await consumer.until(lambda: len(consumer.assigned()) == LANES)
        yield Group(kafka, consumer, broker.client_id, protocol)
    finally:
        await consumer.close()
        await broker.close()


async def until(done: Callable[[], object], what: str) -> None:
    """Without polling Offramp."""
    await asyncio.to_thread(await_, done, what)


def leaving(consumer: Consumer) -> set[Lane]:
    return {lane for event in consumer.events if isinstance(event, Revoked) for lane in event.lanes}


@BOTH
@on_event_loop
async def test_no_lane_is_at_another_member_before_offramp_has_released_it(
    kafka: KafkaServer, protocol: GroupProtocol
) -> None:
    async with group(kafka, protocol) as mine:
        with mine.plain_member() as plain:
            with mine.moving_lanes_instead_of_polling():
                await until(mine.told_to_share, "Offramp is told to share")
            await mine.offramp.until(lambda: leaving(mine.offramp))
            lanes = leaving(mine.offramp)
            assert plain.lanes == set(), "Kafka was told that they are free"
            await mine.offramp.source.commit({lane: Commit(5) for lane in lanes})
            assert plain.lanes == set()
            await mine.offramp.source.release(lanes)
            await until(lambda: plain.lanes == lanes, "the other member has what was released")
            await asyncio.to_thread(plain.commit, lanes, 7)
        assert mine.stored() == dict.fromkeys(mine.lanes, 0) | dict.fromkeys(lanes, 7)


@BOTH
@on_event_loop
async def test_a_member_that_kafka_has_put_out_loses_its_lanes_and_commits_nothing(
    kafka: KafkaServer, protocol: GroupProtocol
) -> None:
    async with group(kafka, protocol) as mine:
        with mine.plain_member() as plain:
            with mine.moving_lanes_instead_of_polling():
                await asyncio.to_thread(mine.give_to_others)
                await until(lambda: plain.lanes == mine.lanes, "the other member has all lanes")
                await asyncio.to_thread(plain.commit, mine.lanes, 9)
            late = asyncio.create_task(mine.offramp.source.commit({lane: Commit(3) for lane in mine.lanes}))
            await mine.offramp.until(lambda: [e for e in mine.offramp.events if isinstance(e, Lost | Revoked)])
            events = [event for event in mine.offramp.events if isinstance(event, Lost | Revoked)]
            assert events[:1] == [Lost(frozenset(mine.lanes))]
            with pytest.raises(LaneGone):
                await late
            assert mine.stored() == dict.fromkeys(mine.lanes, 9)


@BOTH
@on_event_loop
async def test_a_leaving_lane_that_another_member_has_committed_further_was_lost(
    kafka: KafkaServer, protocol: GroupProtocol
) -> None:
    """Whatever the reason: ours would undo that commit."""
    async with group(kafka, protocol) as mine:
        with mine.plain_member() as plain:
            await mine.offramp.until(lambda: leaving(mine.offramp))
            lanes = leaving(mine.offramp)
            other, *ours = sorted(lanes)
            await asyncio.to_thread(plain.commit, [other], 7)
            with pytest.raises(LaneGone) as gone:
                await mine.offramp.source.commit({lane: Commit(5) for lane in lanes})
            assert gone.value.lanes == {other}
            stored = mine.stored()
            await mine.offramp.source.release(lanes)
        assert {lane: stored[lane] for lane in lanes} == {other: 7, **dict.fromkeys(ours, 5)}

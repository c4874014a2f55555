"""A Kafka that keeps its connections but does not answer."""

import asyncio

from sidecar.brokers.base import Revoked
from sidecar.brokers.kafka import KafkaBroker
from sidecar.model.errors import BrokerError
from sidecar.model.records import Commit, Lane
from tests.brokers.harness import WAIT_TIMEOUT, Consumer, consuming, name, numbered
from tests.brokers.kafka.harness import running
from tests.event_loop import on_event_loop
from tests.servers.fixtures import NewKafka

#: seconds: much longer than the grace
SOON = 25.0


@on_event_loop
async def test_a_broker_that_freezes_while_a_lane_is_revoked_blocks_neither_polls_nor_closing(
    new_kafka: NewKafka,
) -> None:
    kafka, topic, group = new_kafka(), name("topic"), name("group")
    kafka.make_topic(topic, 4)
    for lane in range(4):
        kafka.publish(topic, *numbered(50, f"{lane}-"), lane=lane)
    async with running(kafka) as one, running(kafka) as other:
        first = await Consumer.open(one, topic, group=group)
        await first.take(200)
        second = await Consumer.open(other, topic, group=group)
        joining = asyncio.create_task(_poll(second))
        await first.until(lambda: any(isinstance(event, Revoked) for event in first.events))
        (moving,) = (event.lanes for event in first.events if isinstance(event, Revoked))
        kafka.freeze()
        try:
            async with asyncio.timeout(SOON):
                await _commit(first, moving)
                await first.source.release(moving)
            # The poll thread has returned from the revoke and runs commands.
            async with asyncio.timeout(SOON):
                for _ in range(3):
                    await _poll_once(first)
            async with asyncio.timeout(SOON):
                joining.cancel()
                await asyncio.wait([joining])
                await asyncio.gather(first.close(), second.close())
        finally:
            kafka.thaw()
    # Whether the commit arrived or not, nothing is skipped that was not committed.
    stored = kafka.committed(group, topic, range(4))
    assert {offset for offset, _ in stored.values()} <= {0, 20, -1001}
    async with running(kafka) as broker, consuming(broker, topic, group=group) as consumer:
        wanted = [value for lane in range(4) for value in numbered(50, f"{lane}-")[max(0, stored[lane][0]) :]]
        await consumer.take_values(wanted)


@on_event_loop
async def test_a_broker_that_knows_of_no_brokers_is_waited_for(new_kafka: NewKafka) -> None:
    """Another request made the library end the process."""
    # Its controller considers it dead half of the time: after two seconds without a heartbeat, which it sends every
    # four.
    kafka = new_kafka(properties={"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "4000"})
    async with running(kafka) as broker, asyncio.timeout(WAIT_TIMEOUT):
        text = ""
        while "knows of no brokers" not in text:
            text = await _trouble(broker)
        while text:
            text = await _trouble(broker)


async def _trouble(broker: KafkaBroker) -> str:
    """What is wrong with the broker; empty if nothing is."""
    try:
        await broker.ping()
    except BrokerError as error:
        return str(error)
    return ""


async def _commit(consumer: Consumer, lanes: frozenset[Lane]) -> None:
    """As the core does: with a timeout."""
    try:
        async with asyncio.timeout(5.0):
            await consumer.source.commit({lane: Commit(20) for lane in lanes})
    except (BrokerError, TimeoutError):
        pass


async def _poll_once(consumer: Consumer) -> None:
    try:
        await consumer.poll(timeout=0.5)
    except BrokerError:
        await asyncio.sleep(0.1)


async def _poll(consumer: Consumer) -> None:
    while True:
        await _poll_once(consumer)

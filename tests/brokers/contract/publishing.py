"""Publishing: where messages go."""

import asyncio

import pytest

from sidecar.model.errors import NotFound, Refused
from sidecar.model.records import Message, Place
from tests.brokers.harness import Sandbox, numbered, scenario, scenario_with


class Publishing:
    @scenario
    async def test_places_have_the_order_of_the_messages(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=3)
        messages = [Message(None, value, lane=number % 3) for number, value in enumerate(numbered(30))]
        places = await sandbox.broker.publish(topic, messages)
        assert [place.lane for place in places] == [message.lane for message in messages]
        consumer = await sandbox.consume(topic)
        await consumer.take(30)
        found = {(record.lane, record.position): record.value for record in consumer.records}
        if all(place.position >= 0 for place in places):
            assert [found[place.lane, place.position] for place in places] == numbered(30)

    @scenario
    async def test_a_key_always_goes_to_the_same_lane(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=4)
        keys = [f"key-{number}".encode() for number in range(40)]
        first = await sandbox.broker.publish(topic, [Message(key, b"1") for key in keys])
        await sandbox.restart()
        second = await sandbox.broker.publish(topic, [Message(key, b"2") for key in keys])
        assert [place.lane for place in first] == [place.lane for place in second]
        assert len({place.lane for place in first}) == 4

    @scenario
    async def test_messages_without_a_key_are_spread_over_the_lanes(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=4)
        places: list[Place] = []
        for _ in range(20):
            places += await sandbox.broker.publish(topic, [Message(None, b"value")] * 5)
        assert {place.lane for place in places} == {0, 1, 2, 3}

    @scenario
    async def test_a_lane_that_does_not_exist_is_refused(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=2)
        with pytest.raises((Refused, NotFound)):
            await sandbox.broker.publish(topic, [Message(None, b"value", lane=2)])

    @scenario
    async def test_each_message_has_an_outcome_of_its_own(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=2)
        messages = [Message(None, value, lane=number % 2) for number, value in enumerate(numbered(10))]
        outcomes = await sandbox.broker.publish_each(topic, messages)
        assert [outcome.lane for outcome in outcomes if isinstance(outcome, Place)] == [0, 1] * 5

    @scenario_with("deduplicates")
    async def test_of_several_messages_with_one_id_the_topic_gets_the_first(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=1)
        once = [Message(None, value, deduplication_id="once") for value in numbered(3)]
        places = await sandbox.broker.publish(topic, once)
        assert len(set(places)) == 1
        await sandbox.restart()
        assert await sandbox.broker.publish(topic, once) == places
        await sandbox.broker.publish(topic, [Message(None, b"last")])
        consumer = await sandbox.consume(topic)
        assert await consumer.take(2) == [numbered(3)[0], b"last"]

    @scenario_with("delays")
    async def test_a_message_is_delivered_no_earlier_than_it_says(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=1)
        consumer = await sandbox.consume(topic)
        await consumer.stays_silent()
        await sandbox.broker.publish(topic, [Message(None, b"later", deliver_after=10.0), Message(None, b"now")])
        assert await consumer.take(2) == [b"now", b"later"]

    @scenario
    async def test_publishing_nothing_returns_no_places(self, sandbox: Sandbox) -> None:
        assert list(await sandbox.broker.publish(await sandbox.topic(), [])) == []

    @scenario
    async def test_records_of_concurrent_publishers_all_arrive_each_in_order(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=2)
        told: dict[tuple[int, int], bytes] = {}

        async def publish(who: int) -> None:
            for value in numbered(20, f"{who}:"):
                (position,) = await sandbox.publish(topic, value, lane=who % 2)
                told[who % 2, position] = value

        await asyncio.gather(*(publish(who) for who in range(20)))
        await sandbox.restart()
        consumer = await sandbox.consume(topic)
        values = [value or b"" for value in await consumer.take(400)]
        assert len(values) == 400
        for who in range(20):
            assert [v for v in values if v.startswith(b"%d:" % who)] == numbered(20, f"{who}:")
        found = {(record.lane, record.position): record.value for record in consumer.records}
        assert all(found[place] == value for place, value in told.items() if place[1] >= 0)
        positions = [(chunk.lane.number, position) for chunk in consumer.chunks for position in chunk.positions]
        assert positions == list(found), "the positions of a chunk are not those of its records"

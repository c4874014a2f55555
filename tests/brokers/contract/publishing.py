"""Publishing: where messages go."""

import asyncio

import pytest

from sidecar.model.errors import NotFound, Refused
from sidecar.model.records import Message, Place
from tests.brokers.harness import Stage, numbered, scenario


class Publishing:
    @scenario
    async def test_places_stand_in_the_order_of_the_messages(self, stage: Stage) -> None:
        topic = await stage.topic(lanes=3)
        messages = [Message(None, value, lane=number % 3) for number, value in enumerate(numbered(30))]
        places = await stage.broker.publish(topic, messages)
        assert [place.lane for place in places] == [message.lane for message in messages]
        consumer = await stage.consume(topic)
        await consumer.take(30)
        found = {(record.lane, record.position): record.value for record in consumer.records}
        if all(place.position >= 0 for place in places):
            assert [found[place.lane, place.position] for place in places] == numbered(30)

    @scenario
    async def test_a_key_always_goes_to_the_same_lane(self, stage: Stage) -> None:
        topic = await stage.topic(lanes=4)
        keys = [f"key-{number}".encode() for number in range(40)]
        first = await stage.broker.publish(topic, [Message(key, b"1") for key in keys])
        await stage.restart()
        second = await stage.broker.publish(topic, [Message(key, b"2") for key in keys])
        assert [place.lane for place in first] == [place.lane for place in second]
        assert len({place.lane for place in first}) == 4

    @scenario
    async def test_messages_without_a_key_are_spread_over_the_lanes(self, stage: Stage) -> None:
        topic = await stage.topic(lanes=4)
        places: list[Place] = []
        for _ in range(20):
            places += await stage.broker.publish(topic, [Message(None, b"value")] * 5)
        assert {place.lane for place in places} == {0, 1, 2, 3}

    @scenario
    async def test_a_lane_that_does_not_exist_is_refused(self, stage: Stage) -> None:
        topic = await stage.topic(lanes=2)
        with pytest.raises((Refused, NotFound)):
            await stage.broker.publish(topic, [Message(None, b"value", lane=2)])

    @scenario
    async def test_publishing_nothing_is_fine(self, stage: Stage) -> None:
        assert list(await stage.broker.publish(await stage.topic(), [])) == []

    @scenario
    async def test_what_many_publish_at_once_is_all_there_and_each_in_order(self, stage: Stage) -> None:
        topic = await stage.topic(lanes=2)
        told: dict[tuple[int, int], bytes] = {}

        async def publish(who: int) -> None:
            for value in numbered(20, f"{who}:"):
                (position,) = await stage.publish(topic, value, lane=who % 2)
                told[who % 2, position] = value

        await asyncio.gather(*(publish(who) for who in range(20)))
        await stage.restart()
        consumer = await stage.consume(topic)
        values = [value or b"" for value in await consumer.take(400)]
        assert len(values) == 400
        for who in range(20):
            assert [v for v in values if v.startswith(b"%d:" % who)] == numbered(20, f"{who}:")
        found = {(record.lane, record.position): record.value for record in consumer.records}
        assert all(found[place] == value for place, value in told.items() if place[1] >= 0)
        positions = [(chunk.lane.number, position) for chunk in consumer.chunks for position in chunk.positions]
        assert positions == list(found), "a record is not where its chunk says"

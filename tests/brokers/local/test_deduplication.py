"""Of several messages with one deduplication id, a topic of the embedded broker gets the first."""

from pathlib import Path

import pytest

from sidecar.brokers.local.publish_ids import REMEMBERED_MS
from sidecar.model.errors import Refused
from sidecar.model.records import Message
from tests.brokers.local.harness import SetClock, running, stored
from tests.event_loop import on_event_loop


def message(value: bytes, id_: str, lane: int = 0) -> Message:
    return Message(None, value, lane=lane, deduplication_id=id_)


@on_event_loop
async def test_a_message_with_a_known_id_gets_the_place_of_the_first_also_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        first = await broker.publish("topic", [message(b"1", "a"), message(b"2", "b"), message(b"3", "a")])
        assert first[2] == first[0]
    async with running(tmp_path) as broker:
        again = await broker.publish("topic", [message(b"4", "b", lane=1), message(b"5", "c"), message(b"6", "")])
        assert again[0] == first[1]
        assert await stored(broker, "topic") == [b"1", b"2", b"5", b"6"]
        await broker.publish("other", [message(b"7", "a")])
        assert await stored(broker, "other") == [b"7"], "each topic has ids of its own"


@on_event_loop
async def test_the_id_of_a_message_that_was_refused_is_not_known(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        with pytest.raises(Refused):
            await broker.publish("topic", [message(b"1", "a"), message(b"2", "b", lane=99)])
        await broker.publish("topic", [message(b"3", "a")])
        assert await stored(broker, "topic") == [b"3"]


@on_event_loop
async def test_ids_are_forgotten_after_an_hour(tmp_path: Path) -> None:
    clock = SetClock()
    async with running(tmp_path, clock) as broker:
        await broker.publish("topic", [message(b"%d" % number, f"id-{number}") for number in range(1_500)])
        clock.ms += REMEMBERED_MS - 1
        await broker.run_retention()
        await broker.publish("topic", [message(b"again", "id-0")])
        clock.ms += 2
        await broker.run_retention()
        await broker.publish("topic", [message(b"again", "id-0"), message(b"again", "id-1499")])
        assert (await stored(broker, "topic"))[1_500:] == [b"again", b"again"]

"""Dead letters: their format, listing them, sending them back, and deleting them."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from sidecar.core.failures import dead_letter_notes, dead_letter_topic, retry_topic
from sidecar.core.failures.dead_letter_notes import Done, Note
from sidecar.core.state.record_slices import DeliveryHistory, RecordSlice
from sidecar.model.errors import InvalidRequest
from sidecar.model.records import Chunk, Header, Lane, Message, Place, Record, Run
from sidecar.model.wire import decode_frame, encode_frame
from sidecar.settings import DeadLetterSettings
from sidecar.subscription import dead_letter_reader, dead_letters
from sidecar.subscription.dead_letters import Filter, list_dead_letters
from tests.kit import lane_state, slice_of, subscription_settings
from tests.memory_broker import MemoryBroker

SETTINGS = subscription_settings()
WALL = 1_700_000_000_000


async def bury(
    broker: MemoryBroker,
    *positions: int,
    group: str = "orders",
    wall_ms: int = WALL,
    reason: str = "no",
    size: int | None = None,
) -> None:
    """Dead-letter records of lane 2 at these positions."""
    for position in positions:
        sizes = None if size is None else [size]
        slice_ = slice_of([position], state=lane_state(2), sizes=sizes, history=DeliveryHistory(failures=5))
        message = dead_letter_topic.write(slice_, group=group, reason=reason, worker="php-7", wall_ms=wall_ms)
        await broker.publish(SETTINGS.dead_letter_topic, [message])


async def listed(broker: MemoryBroker, *, limit: int = 0, ids: tuple[str, ...] = ()) -> list[str]:
    which = Filter(frozenset(ids))
    return [letter.id for letter in (await list_dead_letters(broker, SETTINGS, limit=limit, which=which)).letters]


async def redriven(broker: MemoryBroker, *ids: str, again: bool = True) -> list[str]:
    """The ids of those that are sent back."""
    steps = dead_letters.redrive(broker, SETTINGS, which=Filter(frozenset(ids)), again=again, wall_ms=WALL)
    return [one async for step in steps for one in step.ids]


async def deleted(broker: MemoryBroker, which: Filter) -> list[str]:
    return [one async for step in dead_letters.delete(broker, SETTINGS, which=which, wall_ms=WALL) for one in step.ids]


def test_a_dead_letter_says_from_where_why_how_often_by_whom_and_when() -> None:
    slice_ = slice_of([9], state=lane_state(2), keys=[b"key"], history=DeliveryHistory(failures=5))
    message = dead_letter_topic.write(slice_, group="orders", reason="no such customer", worker="php-7", wall_ms=WALL)
    assert message.key == b"key"
    assert {header.name: header.value for header in message.headers if header.name.startswith("offramp-")} == {
        "offramp-id": b"orders/2/9",
        "offramp-topic": b"orders",
        "offramp-lane": b"2",
        "offramp-position": b"9",
        "offramp-ref": b"",
        "offramp-timestamp-ms": b"0",
        "offramp-group": b"orders",
        "offramp-reason": b"no such customer",
        "offramp-attempts": b"5",
        "offramp-worker": b"php-7",
        "offramp-dead-lettered-ms": b"1700000000000",
        "offramp-dead-lettered-at": b"2023-11-14T22:13:20.000+00:00",
    }


def test_a_record_rejected_at_its_first_delivery_had_one_attempt() -> None:
    message = dead_letter_topic.write(slice_of(1), group="orders", reason="", worker="", wall_ms=WALL)
    assert Header("offramp-attempts", b"1") in message.headers


def test_a_record_that_offramp_did_not_write_is_no_dead_letter() -> None:
    assert dead_letter_topic.read(Record(b"key", b"value", (Header("offramp-id", b"orders/0/0"),), 0, 0)) is None


def test_dead_letters_are_listed_oldest_first() -> None:
    async def story() -> None:
        broker = MemoryBroker()
        await bury(broker, 3, wall_ms=WALL + 2)
        await bury(broker, 7, wall_ms=WALL + 1)
        assert await listed(broker) == ["orders/2/7", "orders/2/3"]
        assert await listed(broker, limit=1) == ["orders/2/7"]
        assert await listed(broker, ids=("orders/2/3", "orders/9/9")) == ["orders/2/3"]

    asyncio.run(story())


def test_one_that_was_written_twice_is_listed_once_as_it_was_written_last() -> None:
    """It was redriven and died again; or there was a crash between the write and the commit."""

    async def story() -> None:
        broker = MemoryBroker()
        await bury(broker, 3, reason="first")
        await bury(broker, 4, wall_ms=WALL + 1)
        await bury(broker, 3, reason="second", wall_ms=WALL + 5)
        first, _ = (await list_dead_letters(broker, SETTINGS)).letters
        assert (first.id, first.reason, first.dead_lettered_ms) == ("orders/2/3", "second", WALL + 5)
        assert await listed(broker, limit=1) == ["orders/2/3"], "its place is that of its first death"

    asyncio.run(story())


def test_records_at_the_same_place_of_a_topic_that_was_recreated_are_two() -> None:
    async def story() -> None:
        broker = MemoryBroker()
        for timestamp_ms in (1, 2, 2):
            frame = encode_frame(None, b"", (), 2, 3, timestamp_ms)
            slice_ = RecordSlice(lane_state(2), Chunk(Lane("orders", 2), [3], [frame]), 0, 1, 3)
            message = dead_letter_topic.write(slice_, group="orders", reason="", worker="", wall_ms=WALL)
            await broker.publish(SETTINGS.dead_letter_topic, [message])
        assert await listed(broker) == ["orders/2/3"] * 2
        assert (await latest(broker, 9))[0] == ["orders/2/3"] * 2
        assert await redriven(broker, "orders/2/3") == ["orders/2/3"] * 2

    asyncio.run(story())


def test_dead_letters_of_another_group_are_not_listed() -> None:
    async def story() -> None:
        broker = MemoryBroker()
        await bury(broker, 3, group="billing")
        assert await listed(broker) == []

    asyncio.run(story())


def test_without_a_dead_letter_topic_there_are_none() -> None:
    assert asyncio.run(listed(MemoryBroker())) == []


def test_redrive_sends_dead_letters_to_the_groups_own_retry_topic() -> None:
    """In the original topic they would reach every other group."""

    async def story() -> None:
        broker = MemoryBroker()
        await bury(broker, 3, 7)
        assert await redriven(broker, "orders/2/7") == ["orders/2/7"]
        (chunk,) = [chunk async for chunk in broker.read(Lane(SETTINGS.retry_topic, 0), Run(0, 10), 1 << 20)]
        back = retry_topic.unpark(chunk, 0, now=0.0, wall_ms=WALL, possibly_processed=False)
        record = decode_frame(back.chunk.frames[0])
        assert (back.chunk.shown, record.position) == (Lane("orders", 2), 7)
        assert [header.name for header in record.headers] == ["h"], "headers of Offramp are removed"

    asyncio.run(story())


def test_redrive_of_everything_brings_everything_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "_BATCH", 2)

    async def story() -> None:
        broker = MemoryBroker()
        await broker.ensure_topic(SETTINGS.dead_letter_topic, 1)
        await bury(broker, *range(5), 3)
        assert await redriven(broker) == [f"orders/2/{position}" for position in range(5)]
        (end,) = [end for lane, end in (await broker.lane_ends(SETTINGS.retry_topic)).items() if lane.number == 0]
        assert end.end == 5

    asyncio.run(story())


def test_what_was_redriven_is_left_out_until_it_dies_again() -> None:
    async def story() -> None:
        broker = MemoryBroker()
        await bury(broker, 3, 7)
        assert await redriven(broker, "orders/2/3") == ["orders/2/3"]
        first, second = (await list_dead_letters(broker, SETTINGS)).letters
        assert (first.redriven, second.redriven) == (True, False)
        (step,) = [step async for step in dead_letters.redrive(broker, SETTINGS, wall_ms=WALL)]
        assert step == (["orders/2/7"], 1)
        assert await redriven(broker, again=False) == []
        await bury(broker, 3, wall_ms=WALL + 1)
        assert await redriven(broker, again=False) == ["orders/2/3"]
        assert await redriven(broker) == ["orders/2/3", "orders/2/7"], "unless they are asked for again"

    asyncio.run(story())


def test_a_redrive_that_was_interrupted_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "_BATCH", 2)

    async def story() -> None:
        broker = MemoryBroker()
        await broker.ensure_topic(SETTINGS.dead_letter_topic, 1)
        await bury(broker, *range(5))
        steps = dead_letters.redrive(broker, SETTINGS, wall_ms=WALL)
        assert (await anext(steps)).ids == ["orders/2/0", "orders/2/1"]
        await steps.aclose()  # type: ignore[attr-defined]
        assert await redriven(broker, again=False) == ["orders/2/2", "orders/2/3", "orders/2/4"]

    asyncio.run(story())


def test_what_is_deleted_is_neither_listed_nor_redriven_until_it_dies_again() -> None:
    async def story() -> None:
        broker = MemoryBroker()
        await broker.ensure_topic(SETTINGS.dead_letter_topic, 1)
        await bury(broker, 3, 5, 7)
        await bury(broker, 3, group="billing")
        await bury(broker, 3, wall_ms=WALL + 1)
        assert await deleted(broker, Filter(frozenset({"orders/2/3"}))) == ["orders/2/3"]
        assert await listed(broker) == ["orders/2/5", "orders/2/7"]
        assert (await latest(broker, 9))[0] == ["orders/2/7", "orders/2/5"]
        assert await redriven(broker) == ["orders/2/5", "orders/2/7"]
        assert await deleted(broker, Filter()) == ["orders/2/5", "orders/2/7"]
        assert (await listed(broker), (await latest(broker, 9))[0]) == ([], [])
        other = replace(SETTINGS, group="billing", dead_letter=DeadLetterSettings(topic=SETTINGS.dead_letter_topic))
        assert len((await list_dead_letters(broker, other)).letters) == 1, "another group has its own"
        await bury(broker, 5, wall_ms=WALL + 2)
        assert await listed(broker) == ["orders/2/5"]

    asyncio.run(story())


def test_dead_letters_are_chosen_by_reason_and_time() -> None:
    async def story() -> None:
        broker = MemoryBroker()
        await bury(broker, 1, reason="REJECTED: no such customer")
        await bury(broker, 2, reason="timeout", wall_ms=WALL + 10)
        await bury(broker, 3, reason="a timeout", wall_ms=WALL + 20)

        async def chosen(which: Filter) -> list[int]:
            return [each.record.position for each in (await list_dead_letters(broker, SETTINGS, which=which)).letters]

        assert await chosen(Filter(reason="timeout")) == [2, 3]
        assert await chosen(Filter(since_ms=WALL + 10, until_ms=WALL + 20)) == [2]
        assert await deleted(broker, Filter(reason="timeout", since_ms=WALL + 11)) == ["orders/2/3"]
        assert await chosen(Filter()) == [1, 2]

    asyncio.run(story())


def test_pages_hold_every_dead_letter_once_also_those_that_died_at_the_same_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dead_letters, "_READ_AHEAD", 0)

    async def story() -> None:
        broker = MemoryBroker()
        await broker.ensure_topic(SETTINGS.dead_letter_topic, 1)
        await bury(broker, *range(7), wall_ms=WALL + 1)
        await bury(broker, 9)
        pages, page = [], ""
        while True:
            letters, page = await list_dead_letters(broker, SETTINGS, limit=3, page=page)
            pages.append([letter.record.position for letter in letters])
            if not page:
                break
            await bury(broker, 0, wall_ms=WALL + 50)
        assert pages == [[9, 0, 1], [2, 3, 4], [5, 6]]
        with pytest.raises(InvalidRequest, match="not one that a listing has returned"):
            await list_dead_letters(broker, SETTINGS, page="x")

    asyncio.run(story())


def test_a_note_tells_only_of_what_is_before_it_and_what_is_damaged_tells_nothing() -> None:
    """Anyone with the right to publish to the topic can write one."""
    note = Note("orders", Done.DELETED, (Run(0, 3), Run(5, 900)), WALL)
    message = dead_letter_notes.write(note, 0)

    def as_read(value: bytes | None, *headers: Header) -> Note | None:
        return dead_letter_notes.read(Record(None, value, headers or message.headers, 0, 9))

    assert as_read(message.value) == replace(note, runs=(Run(0, 3), Run(5, 9)))
    assert as_read(message.value, Header("h", b"1")) is None
    assert as_read(message.value, Header(dead_letter_notes.HEADER, b"burnt")) is None
    for value in (
        None,
        b"{}",
        b"[]",
        b'{"group": 1, "at_ms": 1, "runs": []}',
        b'{"group": "g", "at_ms": 1, "runs": 1}',
    ):
        assert as_read(value) is None
    assert as_read(b'{"group": "g", "at_ms": 1, "runs": [["a", 2]]}') is None
    assert dead_letter_topic.read(Record(None, message.value, message.headers, 0, 9)) is None


@pytest.mark.parametrize("wanted", [{"limit": 2}, {"limit": 100, "payloads": False}])
def test_large_dead_letters_are_listed_without_having_all_of_them_in_memory(wanted: dict[str, Any]) -> None:
    async def story() -> None:
        broker = MemoryBroker()
        await broker.ensure_topic(SETTINGS.dead_letter_topic, 1)
        await bury(broker, *range(40), size=1 << 20)
        with measured() as peak:
            letters = (await list_dead_letters(broker, SETTINGS, **wanted)).letters
        assert [letter.record.position for letter in letters] == sorted(range(40), key=str)[: wanted["limit"]]
        assert all(bool(letter.record.value) is wanted.get("payloads", True) for letter in letters)
        assert peak() < 16 << 20

    asyncio.run(story())


def test_large_dead_letters_are_redriven_a_few_megabytes_at_a_time() -> None:
    async def story() -> None:
        broker = MemoryBroker()
        await broker.ensure_topic(SETTINGS.dead_letter_topic, 1)
        await bury(broker, *range(40), size=1 << 20)
        publish, together = broker.publish, []

        async def watched(topic: str, messages: Sequence[Message]) -> Sequence[Place]:
            together.append(sum(len(message.value or b"") for message in messages))
            return await publish(topic, messages)

        broker.publish = watched  # type: ignore[method-assign]
        assert len(await redriven(broker)) == 40
        assert max(together) < 3 << 20

    asyncio.run(story())


@contextmanager
def measured() -> Iterator[Callable[[], int]]:
    """Knows afterwards how many bytes were in use at once."""
    tracemalloc.start()
    try:
        yield lambda: peak
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def latest(broker: MemoryBroker, limit: int) -> tuple[list[str], int]:
    letters, total = await dead_letters.newest(broker, SETTINGS, limit=limit)
    return [letter.id for letter in letters], total


def test_a_look_at_the_newest_reads_the_end_of_the_topic_only() -> None:
    async def body() -> None:
        broker = Counting()
        assert await latest(broker, 3) == ([], 0)
        await broker.ensure_topic(SETTINGS.dead_letter_topic, 1)
        for position in range(200):
            await bury(broker, position, wall_ms=WALL + position)
        assert await latest(broker, 3) == (["orders/2/199", "orders/2/198", "orders/2/197"], 200)
        assert broker.records_read == 3

    asyncio.run(body())


def test_a_look_goes_further_back_where_other_groups_write_to_the_topic_too() -> None:
    async def body() -> None:
        broker = Counting()
        await bury(broker, *range(5))
        await bury(broker, *range(100), group="others")
        ids, total = await latest(broker, 3)
        assert ids == ["orders/2/4", "orders/2/3", "orders/2/2"]
        assert total == 105

    asyncio.run(body())


def test_a_look_into_a_topic_full_of_others_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_reader, "_TAIL_RECORDS", 50)
    monkeypatch.setattr(dead_letter_reader, "_READ_BYTES", 1)

    async def body() -> None:
        broker = Counting()
        await broker.ensure_topic(SETTINGS.dead_letter_topic, 1)
        await bury(broker, *range(500), group="others")
        await bury(broker, *range(5))
        await bury(broker, *range(500), group="others")
        # There are some, but finding them would take long: `offramp dead-letters` finds them.
        assert (await latest(broker, 3))[0] == []
        assert broker.records_read < 200

    asyncio.run(body())


class Counting(MemoryBroker):
    """Knows how much was read."""

    records_read = 0

    async def read(self, lane: Lane, run: Run, max_bytes: int) -> AsyncIterator[Chunk]:
        async for chunk in super().read(lane, run, max_bytes):
            self.records_read += len(chunk.frames)
            yield chunk


def test_the_newest_are_those_that_are_shown_also_if_they_are_large() -> None:
    async def body() -> None:
        broker = MemoryBroker()
        await broker.ensure_topic(SETTINGS.dead_letter_topic, 1)
        for position in range(40):
            await bury(broker, position, wall_ms=WALL + position, size=600_000)
        ids, _ = await latest(broker, 10)
        assert ids == [f"orders/2/{39 - number}" for number in range(len(ids))]
        assert len(ids) >= 5

    asyncio.run(body())


@pytest.mark.parametrize(("header", "value"), [("attempts", 1 << 32), ("dead-lettered-ms", 253_402_300_800_000)])
def test_a_letter_with_a_number_that_cannot_be_is_none(header: str, value: int) -> None:
    """Anyone with the right to publish can write it."""
    message = dead_letter_topic.write(slice_of(1), group="orders", reason="", worker="", wall_ms=WALL)
    headers = [Header(one.name, b"%d" % value) if one.name.endswith(header) else one for one in message.headers]
    assert dead_letter_topic.read(Record(None, b"", tuple(message.headers), 0, 0)) is not None
    assert dead_letter_topic.read(Record(None, b"", tuple(headers), 0, 0)) is None

"""Damaged records of the embedded broker: they stop their lane, and no other."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.brokers.base import AtPosition, Trouble
from sidecar.model.errors import Corrupt
from sidecar.model.records import Lane, Run
from tests.brokers.harness import Consumer, consuming, numbered, publish
from tests.brokers.local.harness import running, stored
from tests.event_loop import on_event_loop

LANE = Lane("topic", 0)
PAGE = 4096


@on_event_loop
async def test_damaged_records_stop_their_lane_until_a_seek_and_no_other(tmp_path: Path) -> None:
    async with running(tmp_path, lanes=2) as broker:
        for lane in range(2):
            await publish(broker, "topic", *numbered(100, f"{lane}-"), lane=lane)
    file = tmp_path / "offramp.db"
    content = file.read_bytes()
    assert b"0-42" in content
    file.write_bytes(content.replace(b"0-42", b"0-XX"))
    async with running(tmp_path) as broker, consuming(broker, "topic") as consumer:
        assert await consumer.take(100) == numbered(100, "1-")
        trouble = _trouble(consumer)
        assert "topic/0 is held: the records at 0 to 99 are damaged" in trouble.text
        with pytest.raises(Corrupt, match="in topic/0, the records at 0 to 99 are damaged"):
            [chunk async for chunk in broker.read(LANE, Run(0, 10), 1 << 20)]
        await publish(broker, "topic", b"after the damage", lane=0)
        await consumer.stays_silent()
        await consumer.source.seek({LANE: AtPosition(100)})
        assert (await consumer.take(101))[-1] == b"after the damage"
        assert consumer.events[-2:] == [Trouble(trouble.kind, ""), consumer.assigned()[LANE]]


def _zeroed(page: bytes) -> bytes:
    return bytes(PAGE)


def _of_another(page: bytes) -> bytes:
    """The number of the next page is wrong."""
    return b"\xff\xff\xff\xf0" + page[4:]


@pytest.mark.parametrize("damage", [_zeroed, _of_another])
@on_event_loop
async def test_a_page_that_cannot_be_read_stops_its_lane_until_a_seek_and_no_other(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    async with running(tmp_path, lanes=2) as broker:
        for number in range(6):
            for lane in range(2):
                await publish(broker, "topic", _large(lane, number), lane=lane)
    _damage_a_page_of(tmp_path / "offramp.db", _letter(0, 3), damage)
    async with running(tmp_path) as broker, consuming(broker, "topic") as consumer:
        await consumer.take(9)
        assert (_letters(consumer, 0), _letters(consumer, 1)) == (b"ABC", b"GHIJKL")
        await consumer.until(lambda: any(isinstance(event, Trouble) for event in consumer.events))
        assert "topic/0 is held: the records at 3 to 3 are damaged" in _trouble(consumer).text
        with pytest.raises(Corrupt, match="in topic/0, the records at 3 to 3 are damaged"):
            await stored(broker, "topic")
        await consumer.source.seek({LANE: AtPosition(4)})
        await consumer.take(11)
        assert _letters(consumer, 0) == b"ABCEF"


def _letter(lane: int, number: int) -> bytes:
    return bytes([ord("A") + 6 * lane + number])


def _large(lane: int, number: int) -> bytes:
    """A value that fills pages, and a block by itself."""
    return _letter(lane, number) * 20_000


def _letters(consumer: Consumer, lane: int) -> bytes:
    return b"".join((record.value or b"")[:1] for record in consumer.records if record.lane == lane)


def _damage_a_page_of(file: Path, letter: bytes, damage: Callable[[bytes], bytes]) -> None:
    content = file.read_bytes()
    # The first four bytes of such a page are the number of the next one.
    at = next(at for at in range(0, len(content), PAGE) if content[at + 4 : at + PAGE] == letter * (PAGE - 4))
    file.write_bytes(content[:at] + damage(content[at : at + PAGE]) + content[at + PAGE :])


def _trouble(consumer: Consumer) -> Trouble:
    (trouble,) = (event for event in consumer.events if isinstance(event, Trouble))
    return trouble

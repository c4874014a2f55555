"""A seek of the embedded broker while a poll is under way, at the worst moments."""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from sidecar.brokers.base import Assigned, AtPosition, Polled
from sidecar.brokers.local import LocalBroker, LocalOptions
from sidecar.brokers.local.store import Store
from sidecar.model import Lane
from tests.brokers.harness import numbered
from tests.brokers.local import consuming, play, publish

P = ParamSpec("P")
T = TypeVar("T")

LANE = Lane("topic", 0)


class SlowBroker(LocalBroker):
    """What was read or written can be kept from those who wait for it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(LocalOptions(directory=str(directory)))
        self.reads_may_return = asyncio.Event()
        self.writes_may_return = asyncio.Event()
        self.has_read = asyncio.Event()
        self.has_written = asyncio.Event()
        self.reads_may_return.set()
        self.writes_may_return.set()

    async def read_with(
        self, read: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        result = await super().read_with(read, *args, **kwargs)
        self.has_read.set()
        await self.reads_may_return.wait()
        return result

    async def write(self, run: Callable[[Store], T], **kwargs: Any) -> T:
        result = await super().write(run, **kwargs)
        self.has_written.set()
        await self.writes_may_return.wait()
        return result


def test_what_was_read_before_a_seek_does_not_arrive_after_it(tmp_path: Path) -> None:
    async def body() -> None:
        broker = await _filled(tmp_path)
        async with consuming(broker, "topic") as consumer:
            await consumer.take(5, max_records=5)
            broker.reads_may_return.clear()
            broker.has_read.clear()
            poll = asyncio.create_task(consumer.source.poll(5, 1 << 20, 5.0))
            await broker.has_read.wait()
            await consumer.source.seek({LANE: AtPosition(50)})
            broker.reads_may_return.set()
            assert _told(await poll) == ([Assigned(LANE, 50)], [])
            assert _told(await consumer.poll(max_records=5)) == ([], list(range(50, 55)))
        await broker.close()

    play(body)


def test_what_is_read_during_a_seek_does_not_arrive_after_it(tmp_path: Path) -> None:
    async def body() -> None:
        broker = await _filled(tmp_path)
        async with consuming(broker, "topic") as consumer:
            await consumer.take(5, max_records=5)
            broker.writes_may_return.clear()
            broker.has_written.clear()
            seek = asyncio.create_task(consumer.source.seek({LANE: AtPosition(50)}))
            await broker.has_written.wait()
            poll = asyncio.create_task(consumer.source.poll(5, 1 << 20, 5.0))
            await asyncio.wait([poll], timeout=0.1)
            assert not poll.done(), "the lane is on its way to elsewhere"
            broker.writes_may_return.set()
            moved: Mapping[Lane, int] = await seek
            assert moved == {LANE: 50}
            assert _told(await poll) == ([Assigned(LANE, 50)], list(range(50, 55)))
        await broker.close()

    play(body)


def test_a_seek_that_fails_leaves_the_lane_where_it_was(tmp_path: Path) -> None:
    async def body() -> None:
        broker = await _filled(tmp_path)
        async with consuming(broker, "topic") as consumer:
            await consumer.take(5, max_records=5)
            broken = asyncio.create_task(_fail_to_seek(broker, consumer.source.seek({LANE: AtPosition(50)})))
            await asyncio.wait([broken])
            assert await consumer.take(100) == numbered(100)
            assert [event for event in consumer.events if isinstance(event, Assigned) and event.start] == []
        await broker.close()

    play(body)


async def _fail_to_seek(broker: SlowBroker, seek: Any) -> None:
    async def refuse(run: Callable[[Store], T], **kwargs: Any) -> T:
        raise OSError("the write was told to fail")

    write = broker.write
    broker.write = refuse  # type: ignore[method-assign]
    try:
        await seek
    except OSError:
        pass
    finally:
        broker.write = write  # type: ignore[method-assign]


async def _filled(directory: Path) -> SlowBroker:
    broker = SlowBroker(directory)
    await broker.open()
    await publish(broker, "topic", *numbered(100))
    return broker


def _told(polled: Polled) -> tuple[list[Any], list[int]]:
    return list(polled.events), [position for chunk in polled.chunks for position in chunk.positions]

"""Seeks of the embedded broker during a poll, and seeks whose caller is cancelled, at the worst moments."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import pytest

from sidecar.brokers.base import AtPosition, AtTime, Polled, SeekTarget
from sidecar.brokers.local import LocalBroker, LocalOptions
from sidecar.brokers.local.writer import Store
from sidecar.model.errors import Stopping
from sidecar.model.records import Assigned, Lane
from sidecar.settings import Seconds, SubscriptionSettings
from sidecar.subscription.subscription import Subscription
from tests.brokers.harness import consuming, numbered, publish
from tests.brokers.local.harness import positions
from tests.event_loop import on_event_loop
from tests.promises.adjustable_time import until
from tests.promises.audit import Audit
from tests.promises.worker import Worker

P = ParamSpec("P")
T = TypeVar("T")

LANE = Lane("topic", 0)


class SlowBroker(LocalBroker):
    """A broker whose reads and writes return only when a test allows it."""

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


@on_event_loop
async def test_records_that_were_read_before_a_seek_do_not_arrive_after_it(tmp_path: Path) -> None:
    broker = await _filled(tmp_path)
    async with consuming(broker, "topic") as consumer:
        await consumer.take(5, max_records=5)
        broker.reads_may_return.clear()
        broker.has_read.clear()
        poll = asyncio.create_task(consumer.source.poll(5, 1 << 20, 5.0))
        await broker.has_read.wait()
        await consumer.source.seek({LANE: AtPosition(50)})
        broker.reads_may_return.set()
        assert _events_and_positions(await poll) == ([Assigned(LANE, 50)], [])
        assert _events_and_positions(await consumer.poll(max_records=5)) == ([], list(range(50, 55)))
    await broker.close()


@on_event_loop
async def test_records_that_are_read_during_a_seek_do_not_arrive_after_it(tmp_path: Path) -> None:
    broker = await _filled(tmp_path)
    async with consuming(broker, "topic") as consumer:
        await consumer.take(5, max_records=5)
        broker.writes_may_return.clear()
        broker.has_written.clear()
        seek = asyncio.create_task(consumer.source.seek({LANE: AtPosition(50)}))
        await broker.has_written.wait()
        poll = asyncio.create_task(consumer.source.poll(5, 1 << 20, 5.0))
        await asyncio.wait([poll], timeout=0.1)
        assert not poll.done(), "the lane is being moved"
        broker.writes_may_return.set()
        moved: Mapping[Lane, int] = await seek
        assert moved == {LANE: 50}
        assert _events_and_positions(await poll) == ([Assigned(LANE, 50)], list(range(50, 55)))
    await broker.close()


@on_event_loop
async def test_a_seek_that_fails_leaves_the_lane_where_it_was(tmp_path: Path) -> None:
    broker = await _filled(tmp_path)
    async with consuming(broker, "topic") as consumer:
        await consumer.take(5, max_records=5)
        broken = asyncio.create_task(_fail_to_seek(broker, consumer.source.seek({LANE: AtPosition(50)})))
        await asyncio.wait([broken])
        assert await consumer.take(100) == numbered(100)
        assert [event for event in consumer.events if isinstance(event, Assigned) and event.start] == []
    await broker.close()


@on_event_loop
async def test_a_seek_whose_caller_was_cancelled_does_not_undo_a_later_one(tmp_path: Path) -> None:
    broker = await _filled(tmp_path)
    async with _subscribed(broker) as subscription:
        broker.reads_may_return.clear()
        broker.has_read.clear()
        others = asyncio.all_tasks()
        await _seek_and_cancel(subscription, AtTime(0), when=broker.has_read.wait())
        later = asyncio.create_task(subscription.seek({LANE: AtPosition(10)}))
        await asyncio.wait([later], timeout=0.1)
        broker.reads_may_return.set()
        assert await later == {LANE: 10}
        await _wait_for_new_tasks(others)
        assert await _cursor(broker) == 10
        worker = Worker(subscription, Audit())
        await until(lambda: worker.batches, "something is delivered")
        assert worker.batches[0].records[0].position == 10
    await broker.close()


@on_event_loop
async def test_nothing_is_committed_while_a_seek_whose_caller_was_cancelled_is_under_way(tmp_path: Path) -> None:
    broker = await _filled(tmp_path)
    async with _subscribed(broker) as subscription:
        worker = Worker(subscription, Audit())
        await until(lambda: worker.batches, "something is delivered")
        broker.writes_may_return.clear()
        broker.has_written.clear()
        others = asyncio.all_tasks()
        await _seek_and_cancel(subscription, AtPosition(90), when=broker.has_written.wait())
        broker.has_written.clear()
        worker.batches[0].ack()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await broker.has_written.wait()
        broker.writes_may_return.set()
        await _wait_for_new_tasks(others)
        assert await _cursor(broker) == 90
    await broker.close()


@on_event_loop
async def test_a_seek_raises_stopping_when_the_sidecar_stops(tmp_path: Path) -> None:
    broker = await _filled(tmp_path)
    async with _subscribed(broker) as subscription:
        broker.writes_may_return.clear()
        broker.has_written.clear()
        seek = asyncio.create_task(subscription.seek({LANE: AtPosition(90)}))
        await broker.has_written.wait()
    with pytest.raises(Stopping):
        await seek
    await broker.close()


async def _seek_and_cancel(subscription: Subscription, target: SeekTarget, *, when: Awaitable[object]) -> None:
    """Asks for a seek, and is cancelled before it returns."""
    seek = asyncio.create_task(subscription.seek({LANE: target}))
    await when
    seek.cancel()
    await asyncio.wait([seek])
    assert seek.cancelled()


async def _wait_for_new_tasks(others: "Collection[asyncio.Task[Any]]") -> None:
    """Waits for the end of all tasks but these."""
    if begun := asyncio.all_tasks().difference(others):
        await asyncio.wait(begun, timeout=5.0)


async def _cursor(broker: LocalBroker) -> int:
    """The stored position of the group."""
    (group,) = (await positions(broker)).values()
    return group[LANE]


@contextlib.asynccontextmanager
async def _subscribed(broker: LocalBroker) -> AsyncIterator[Subscription]:
    settings = SubscriptionSettings(name="orders", topics=("topic",), commit_every=Seconds(0.01))
    subscription = Subscription(settings, broker, prefix=bytes(10))
    await subscription.start()
    try:
        await until(subscription.lanes, "the lane is there")
        yield subscription
    finally:
        await subscription.close()


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


def _events_and_positions(polled: Polled) -> tuple[list[Any], list[int]]:
    return list(polled.events), [position for chunk in polled.chunks for position in chunk.positions]

"""Helpers for tests of the embedded broker alone."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sidecar.brokers.base import SourceSpec
from sidecar.brokers.local import LocalBroker, LocalOptions
from sidecar.model.clock import Clock
from sidecar.model.records import Lane, Message, Run
from sidecar.model.wire import decode_frame
from tests.brokers.harness import Consumer

MINUTE_MS = 60_000


class SetClock(Clock):
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def wall_ms(self) -> int:
        return self.ms


def play(body: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(_await(body))


async def _await(body: Callable[[], Awaitable[None]]) -> None:
    await body()


@asynccontextmanager
async def running(directory: Path, clock: Clock | None = None, **options: Any) -> AsyncIterator[LocalBroker]:
    """An open broker."""
    broker = LocalBroker(LocalOptions(directory=str(directory), **{"reserve_bytes": 1 << 20, **options}), clock)
    await broker.open()
    try:
        yield broker
    finally:
        await broker.close()


@asynccontextmanager
async def consuming(broker: LocalBroker, *topics: str, group: str = "group", **spec: Any) -> AsyncIterator[Consumer]:
    """A consumer of an open source."""
    consumer = Consumer(broker.subscribe(SourceSpec(group, topics, **spec)))
    await consumer.source.open()
    try:
        yield consumer
    finally:
        await consumer.close()


async def publish(broker: LocalBroker, topic: str, *values: bytes, lane: int = 0) -> None:
    await broker.publish(topic, [Message(None, value, lane=lane) for value in values])


async def positions(broker: LocalBroker) -> dict[str, dict[Lane, int]]:
    """The stored positions of each group."""
    rows = await broker.read_with(
        lambda connection: connection.execute(
            "SELECT groups.name, topics.name, lanes.number, position FROM cursors "
            'JOIN groups ON groups.id = "group" JOIN lanes ON lanes.id = lane JOIN topics ON topics.id = topic'
        ).fetchall()
    )
    found: dict[str, dict[Lane, int]] = {}
    for group, topic, number, position in rows:
        found.setdefault(group, {})[Lane(topic, number)] = position
    return found


async def stored(broker: LocalBroker, topic: str, lane: int = 0) -> list[bytes | None]:
    """The values of a lane, read without a group."""
    chunks = [chunk async for chunk in broker.read(Lane(topic, lane), Run(0, 1 << 60), 1 << 20)]
    return [decode_frame(frame).value for chunk in chunks for frame in chunk.frames]

"""What a broker provides for the shared suites, and what their tests use: a sandbox on it, and consumers."""

import asyncio
import functools
import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, Protocol, TypeVar

import pytest

from sidecar.brokers.base import Broker, LaneEvent, Polled, Source, SourceSpec
from sidecar.brokers.range_cursor import Cursor
from sidecar.model.records import Assigned, Chunk, Commit, Lane, Message, Record, Run
from sidecar.model.wire import decode_frame

EVERYTHING = Run(0, 1 << 60)

#: seconds to wait for something that must happen, before a test fails
WAIT_TIMEOUT = 60.0

_numbers = itertools.count(1)
#: part of names, because processes of tests share a server
_PROCESS = os.urandom(3).hex()


def name(kind: str) -> str:
    """A unique name for a topic or a group."""
    return f"{kind}-{_PROCESS}-{next(_numbers)}"


class Server(Protocol):
    def make_topic(self, topic: str, lanes: int) -> None: ...


def new_topic(server: Server, lanes: int = 1) -> str:
    topic = name("topic")
    server.make_topic(topic, lanes)
    return topic


class Harness(Protocol):
    """One kind of broker, for the adapter contract and for the promises."""

    async def start(self) -> Broker:
        """A broker that is open."""

    async def restart(self) -> Broker:
        """The broker after a restart of the sidecar: what is durable is there, and nothing else."""

    async def crash(self) -> Broker:
        """The broker as a sidecar finds it that starts after a kill -9: nothing was closed."""

    async def sibling(self) -> Broker:
        """The broker of another sidecar; the same broker, if only one sidecar can use it."""

    async def lose(self, source: Source) -> None:
        """Gives all lanes of a source to others as if it were dead; the source is told afterwards.

        Called only for brokers with the trait `rebalances`.
        """

    async def stop(self) -> None:
        """Closes the broker, and cleans up."""


B = TypeVar("B", bound=Broker)


class BrokerPerSidecar(ABC, Generic[B]):
    """A harness in which each sidecar has a broker object of its own."""

    def __init__(self) -> None:
        self._brokers: list[B] = []

    @abstractmethod
    def _create(self) -> B:
        """A broker that is not open yet."""

    async def start(self) -> B:
        broker = self._create()
        await broker.open()
        self._brokers.append(broker)
        return broker

    async def restart(self) -> Broker:
        await self._brokers.pop().close()
        return await self.start()

    async def crash(self) -> Broker:
        """The broker of the crashed sidecar is closed only at the end of the test."""
        return await self.start()

    async def sibling(self) -> Broker:
        return await self.start()

    async def lose(self, source: Source) -> None:
        raise NotImplementedError("lanes do not move, or move without an event")

    async def stop(self) -> None:
        for broker in self._brokers:
            await broker.close()


class Sandbox:
    """An open broker, with topics, groups and consumers that only one test uses."""

    def __init__(self, harness: Harness, broker: Broker) -> None:
        self.broker = broker
        self._harness = harness
        self._number = next(_numbers)
        self._consumers: list[Consumer] = []
        self._cursors: list[Cursor] = []

    async def topic(self, lanes: int = 1) -> str:
        """A new topic."""
        topic = name("topic")
        await self.broker.ensure_topic(topic, lanes)
        return topic

    async def consume(self, *topics: str, group: str = "group", **spec: Any) -> "Consumer":
        """A consumer of an open source. Groups of different sandboxes differ, even with the same name."""
        consumer = await Consumer.open(self.broker, *topics, group=self.group(group), **spec)
        self._consumers.append(consumer)
        return consumer

    async def consumed(self, count: int) -> "tuple[str, list[int], Consumer]":
        """A new topic of one lane with numbered records, their positions, and a consumer that has taken them all."""
        topic = await self.topic()
        at = await self.publish(topic, *numbered(count))
        consumer = await self.consume(topic)
        await consumer.take(count)
        return topic, at if self.broker.traits.positions_are_stable else consumer.positions, consumer

    async def cursor(self, *topics: str, group: str = "group", broker: Broker | None = None) -> Cursor:
        """An open cursor, at this broker or at that of another sidecar."""
        cursor = (broker or self.broker).cursor(SourceSpec(self.group(group), topics))
        await cursor.open()
        self._cursors.append(cursor)
        return cursor

    async def other_sidecar(self) -> Broker:
        return await self._harness.sibling()

    def group(self, name: str = "group") -> str:
        return f"{name}-{_PROCESS}-{self._number}"

    async def publish(self, topic: str, *values: bytes, lane: int = 0) -> list[int]:
        return await publish(self.broker, topic, *values, lane=lane)

    async def restart(self) -> None:
        """Closes consumers and cursors, as a sidecar does when it stops, and restarts the broker."""
        await self._close_consumers()
        self.broker = await self._harness.restart()

    async def close(self) -> None:
        await self._close_consumers()
        await self._harness.stop()

    async def _close_consumers(self) -> None:
        for consumer in self._consumers:
            await consumer.close()
        for cursor in self._cursors:
            await cursor.close()
        self._consumers.clear()
        self._cursors.clear()


class Consumer:
    """A source, and everything that it has returned."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.polls: list[Polled] = []
        self._open = True

    @classmethod
    async def open(cls, broker: Broker, *topics: str, group: str, **spec: Any) -> "Consumer":
        """A consumer of a source that is open. `spec` is the rest of its `SourceSpec`."""
        consumer = cls(broker.subscribe(SourceSpec(group, topics, **spec)))
        await consumer.source.open()
        return consumer

    @property
    def events(self) -> list[LaneEvent]:
        return [event for polled in self.polls for event in polled.events]

    @property
    def chunks(self) -> list[Chunk]:
        return [chunk for polled in self.polls for chunk in polled.chunks]

    @property
    def records(self) -> list[Record]:
        return [decode_frame(frame) for chunk in self.chunks for frame in chunk.frames]

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]

    @property
    def positions(self) -> list[int]:
        return [position for chunk in self.chunks for position in chunk.positions]

    def assigned(self) -> dict[Lane, Assigned]:
        """The latest assignment of each lane."""
        return {event.lane: event for event in self.events if isinstance(event, Assigned)}

    async def poll(self, max_records: int = 1000, max_bytes: int = 1 << 20, timeout: float = 0.2) -> Polled:
        polled = await self.source.poll(max_records, max_bytes, timeout)
        self.polls.append(polled)
        return polled

    async def until(self, done: Callable[[], object], **limits: Any) -> None:
        """Polls until the condition holds."""
        deadline = asyncio.get_running_loop().time() + WAIT_TIMEOUT
        while not done():
            assert asyncio.get_running_loop().time() < deadline, f"never came; polled: {self.polls}"
            await self.poll(**limits)

    async def take(self, count: int, **limits: Any) -> list[bytes | None]:
        """Polls until this many records have arrived in all. Returns their values."""
        await self.until(lambda: sum(len(chunk.frames) for chunk in self.chunks) >= count, **limits)
        return self.values

    async def take_values(self, wanted: Sequence[bytes], **limits: Any) -> None:
        """Polls until all these values have arrived, in any order."""
        await self.until(lambda: set(wanted) <= set(self.values), **limits)

    async def stays_silent(self, timeout: float = 0.3) -> None:
        """Checks that nothing arrives in one poll."""
        polled = await self.poll(timeout=timeout)
        assert not polled.chunks, f"arrived unexpectedly: {polled.chunks}"

    def forget(self) -> None:
        """Forgets everything that has arrived so far."""
        self.polls.clear()

    async def commit(self, lane: Lane, commit: Commit) -> None:
        await self.source.commit({lane: commit})

    async def close(self) -> None:
        if self._open:
            self._open = False
            await self.source.close()


Body = Callable[[Any, Sandbox], Awaitable[None]]


def scenario(body: Body) -> Callable[[Any, Harness], None]:
    """Turns an async body into a test that runs in a sandbox. The class of the test has a fixture `harness`."""

    def test(self: Any, harness: Harness) -> None:
        async def run() -> None:
            sandbox = Sandbox(harness, await harness.start())
            try:
                await body(self, sandbox)
            finally:
                await sandbox.close()

        asyncio.run(run())

    test.__name__ = body.__name__
    test.__doc__ = body.__doc__
    return test


def scenario_with(trait: str) -> Callable[[Body], Callable[[Any, Harness], None]]:
    """A `scenario` for brokers that claim a trait. Skipped for the others."""

    def decorate(body: Body) -> Callable[[Any, Harness], None]:
        @functools.wraps(body)
        async def checked(self: Any, sandbox: Sandbox) -> None:
            if not getattr(sandbox.broker.traits, trait):
                pytest.skip(f"this broker does not claim {trait}")
            await body(self, sandbox)

        return scenario(checked)

    return decorate


@asynccontextmanager
async def consuming(broker: Broker, *topics: str, group: str = "group", **spec: Any) -> AsyncIterator[Consumer]:
    """A consumer that is open for as long as the block."""
    consumer = await Consumer.open(broker, *topics, group=group, **spec)
    try:
        yield consumer
    finally:
        await consumer.close()


async def publish(broker: Broker, topic: str, *values: bytes, lane: int = 0) -> list[int]:
    """Publishes values to one lane. Returns their positions."""
    places = await broker.publish(topic, [Message(None, value, lane=lane) for value in values])
    return [place.position for place in places]


async def read(broker: Broker, lane: Lane, run: Run = EVERYTHING) -> list[bytes | None]:
    """The values of a run, read without a group."""
    return [decode_frame(frame).value async for chunk in broker.read(lane, run, 1 << 20) for frame in chunk.frames]


def numbered(count: int, prefix: str = "") -> list[bytes]:
    """Numbers as values."""
    return [f"{prefix}{number}".encode() for number in range(count)]

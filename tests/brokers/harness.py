"""What a broker brings to the shared suites, and the stage that the suites play on."""

import asyncio
import functools
import itertools
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import pytest

from sidecar.brokers.base import Broker, LaneEvent, Polled, Source, SourceSpec
from sidecar.brokers.cursor import Cursor
from sidecar.model.records import Assigned, Chunk, Commit, Lane, Message, Record, Start
from sidecar.model.wire import decode_frame

T = TypeVar("T")

#: seconds after which a thing that was waited for counts as missing
PATIENCE = 60.0

_numbers = itertools.count(1)
#: makes names that no other process has, where tests share a server
_PROCESS = os.urandom(3).hex()


class Harness(Protocol):
    """One kind of broker, ready to be tried."""

    async def start(self) -> Broker:
        """A broker that is open."""

    async def restart(self) -> Broker:
        """The broker after the sidecar was stopped and started again: what is durable is there, and nothing else."""

    async def stop(self) -> None:
        """Close the broker, and clean up."""


class Stage:
    """A running broker with topics and sources of its own."""

    def __init__(self, harness: Harness, broker: Broker) -> None:
        self.broker = broker
        self._harness = harness
        self._number = next(_numbers)
        self._consumers: list[Consumer] = []
        self._cursors: list[Cursor] = []

    async def topic(self, lanes: int = 1) -> str:
        """A new topic."""
        name = f"topic-{_PROCESS}-{next(_numbers)}"
        await self.broker.ensure_topic(name, lanes)
        return name

    async def consume(
        self,
        *topics: str,
        group: str = "group",
        start: Start = Start.EARLIEST,
        own_topics: Mapping[str, int] | None = None,
    ) -> "Consumer":
        """A source that is open. The group is this stage's own, whatever others call theirs."""
        source = self.broker.subscribe(SourceSpec(self.group(group), topics, start, own_topics or {}))
        await source.open()
        consumer = Consumer(source)
        self._consumers.append(consumer)
        return consumer

    async def cursor(self, *topics: str, group: str = "group", broker: Broker | None = None) -> Cursor:
        """A cursor that is open, here or at another sidecar's broker."""
        cursor = (broker or self.broker).cursor(SourceSpec(self.group(group), topics))
        await cursor.open()
        self._cursors.append(cursor)
        return cursor

    async def other_sidecar(self) -> Broker:
        """The broker as another sidecar has it; where one alone can use it, the same again."""
        sibling: Callable[[], Awaitable[Broker]] | None = getattr(self._harness, "sibling", None)
        return await sibling() if sibling is not None else self.broker

    def group(self, name: str = "group") -> str:
        return f"{name}-{_PROCESS}-{self._number}"

    async def publish(self, topic: str, *values: bytes, lane: int = 0) -> list[int]:
        """Values to one lane; answers their positions."""
        places = await self.broker.publish(topic, [Message(None, value, lane=lane) for value in values])
        return [place.position for place in places]

    async def restart(self) -> None:
        """Sources are closed, as a sidecar does when it stops."""
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
    """A source, and all that came from it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.polls: list[Polled] = []
        self._open = True

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

    def assigned(self) -> dict[Lane, Assigned]:
        """The last assignment of each lane."""
        return {event.lane: event for event in self.events if isinstance(event, Assigned)}

    async def poll(self, max_records: int = 1000, max_bytes: int = 1 << 20, timeout: float = 0.2) -> Polled:
        polled = await self.source.poll(max_records, max_bytes, timeout)
        self.polls.append(polled)
        return polled

    async def until(self, done: Callable[[], object], **limits: Any) -> None:
        """Poll until the condition holds."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while not done():
            assert asyncio.get_running_loop().time() < deadline, f"never came; polled: {self.polls}"
            await self.poll(**limits)

    async def take(self, count: int, **limits: Any) -> list[bytes | None]:
        """Poll until so many records came in all; answers their values."""
        await self.until(lambda: sum(len(chunk.frames) for chunk in self.chunks) >= count, **limits)
        return self.values

    async def take_values(self, wanted: Sequence[bytes], **limits: Any) -> None:
        """Poll until all these values came, in whatever order lanes have."""
        await self.until(lambda: set(wanted) <= set(self.values), **limits)

    async def stays_silent(self, timeout: float = 0.3) -> None:
        """Nothing comes in that time."""
        polled = await self.poll(timeout=timeout)
        assert not polled.chunks, f"came unexpectedly: {polled.chunks}"

    def forget(self) -> None:
        """Look only at what comes from now on."""
        self.polls.clear()

    async def commit(self, lane: Lane, commit: Commit) -> None:
        await self.source.commit({lane: commit})

    async def close(self) -> None:
        if self._open:
            self._open = False
            await self.source.close()


Body = Callable[[Any, Stage], Awaitable[None]]


def scenario(body: Body) -> Callable[[Any, Harness], None]:
    """Make a test of an async body that plays on a stage. The class of the test has a fixture `harness`."""

    def test(self: Any, harness: Harness) -> None:
        async def play() -> None:
            stage = Stage(harness, await harness.start())
            try:
                await body(self, stage)
            finally:
                await stage.close()

        asyncio.run(play())

    test.__name__ = body.__name__
    test.__doc__ = body.__doc__
    return test


def claims(trait: str) -> Callable[[Body], Body]:
    """For brokers that claim a trait; skipped for the others."""

    def decorate(body: Body) -> Body:
        @functools.wraps(body)
        async def checked(self: Any, stage: Stage) -> None:
            if not getattr(stage.broker.traits, trait):
                pytest.skip(f"this broker does not claim {trait}")
            await body(self, stage)

        return checked

    return decorate


def numbered(count: int, prefix: str = "") -> list[bytes]:
    """Values that tell their place."""
    return [f"{prefix}{number}".encode() for number in range(count)]

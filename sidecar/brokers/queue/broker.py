"""The contract's Broker on a broker with handles."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Generic
from zlib import crc32

from sidecar.brokers.base import Broker, LaneEnd, SourceSpec, Traits, all_placed
from sidecar.brokers.queue.arrivals import Arrivals
from sidecar.brokers.queue.driver import Driver, H
from sidecar.brokers.queue.source import QueueSource
from sidecar.core.failures.retry_topic import seconds_until_due
from sidecar.model.clock import Clock
from sidecar.model.errors import BrokerError, NotFound, Refused
from sidecar.model.records import Chunk, Lane, Message, Place, Run

#: seconds after which the lanes of a topic are counted again
_COUNT_MAX_AGE = 30.0
#: more records than any browsed piece has
_ALL = 1 << 62


class QueueBroker(Broker, Generic[H]):
    def __init__(self, traits: Traits, driver: Driver[H], clock: Clock | None = None) -> None:
        self.traits = traits
        self.driver = driver
        self.facts = driver.facts
        self._clock = clock or Clock()
        #: by topic: how many lanes it has, and when to count them again
        self._lanes: dict[str, tuple[int, float]] = {}
        self._round_robin: dict[str, int] = {}

    async def open(self) -> None:
        await self.driver.open()
        self.facts = self.driver.facts

    def subscribe(self, spec: SourceSpec) -> QueueSource[H]:
        return QueueSource(spec, self.driver, self.traits, self._clock)

    async def publish(self, topic: str, messages: Sequence[Message]) -> Sequence[Place]:
        return all_placed(await self.publish_each(topic, messages))

    async def publish_each(self, topic: str, messages: Sequence[Message]) -> Sequence[Place | BrokerError]:
        if not messages:
            return []
        lanes = await self._count(topic)
        #: by lane: indexes of its messages
        parts: dict[int, list[int]] = {}
        for index, message in enumerate(messages):
            parts.setdefault(self._number(topic, message, lanes), []).append(index)
        results = await asyncio.gather(
            *(self._send(Lane(topic, number), [messages[index] for index in part]) for number, part in parts.items())
        )
        outcomes: list[Place | BrokerError] = [Place(0, -1)] * len(messages)
        for (number, part), result in zip(parts.items(), results, strict=True):
            for at, index in enumerate(part):
                outcomes[index] = result if isinstance(result, BrokerError) else Place(number, result[at])
        return outcomes

    async def _send(self, lane: Lane, messages: list[Message]) -> Sequence[int] | BrokerError:
        """The numbers of the messages, or why not all of them were written."""
        try:
            return await self.driver.publish(lane, [self._delayed(message) for message in messages])
        except NotFound as error:
            # It was deleted, or has fewer lanes by now.
            self._lanes.pop(lane.topic, None)
            return error
        except BrokerError as error:
            return error

    def _delayed(self, message: Message) -> Message:
        """A parked message waits at the broker for as long as that can hold it back."""
        longest = self.driver.longest_delay
        if message.deliver_after > longest:
            raise Refused(
                f"this broker delivers a message at most {longest:g} s later, not {message.deliver_after:g} s"
            )
        if not message.aside or not longest:
            return message
        return replace(message, deliver_after=min(seconds_until_due(message.headers, self._clock.wall_ms()), longest))

    async def ensure_topic(self, topic: str, lanes: int) -> None:
        await self.driver.ensure(topic, lanes)
        self._lanes.pop(topic, None)

    async def lane_ends(self, topic: str) -> Mapping[Lane, LaneEnd]:
        ends: dict[Lane, LaneEnd] = {}
        for number in range(await self.driver.lanes(topic)):
            waiting = (await self.driver.depth(Lane(topic, number), "")).waiting
            # All but the number of records is made up: nobody can tell the positions.
            ends[Lane(topic, number)] = LaneEnd(0, max(0, waiting), waiting)
        return ends

    async def read(self, lane: Lane, run: Run, max_bytes: int) -> AsyncIterator[Chunk]:
        """Everything that is in the lane, whatever the run, at positions that mean nothing."""
        if not self.traits.browses:
            raise Refused("this broker cannot show what is in a queue")
        position = 0
        async for messages in self.driver.browse(lane, "", max_bytes):
            arrivals = Arrivals(lane, flag_all=False)
            positions = [
                message.number if message.number >= 0 else position + at for at, message in enumerate(messages)
            ]
            arrivals.add(messages, positions)
            position += len(messages)
            while arrivals.records and (chunk := arrivals.take(_ALL, max_bytes, 1)) is not None:
                yield chunk

    async def close(self) -> None:
        await self.driver.close()

    async def _count(self, topic: str) -> int:
        now = self._clock.now()
        found = self._lanes.get(topic)
        if found is None or now > found[1]:
            found = self._lanes[topic] = (await self.driver.lanes(topic), now + _COUNT_MAX_AGE)
        return found[0]

    def _number(self, topic: str, message: Message, lanes: int) -> int:
        if message.lane is not None:
            if not 0 <= message.lane < lanes:
                raise Refused(f"Topic {topic!r} has no lane {message.lane}: it has {lanes}, counted from 0.")
            return message.lane
        if message.key is not None:
            return crc32(message.key) % lanes
        self._round_robin[topic] = self._round_robin.get(topic, -1) + 1
        return self._round_robin[topic] % lanes

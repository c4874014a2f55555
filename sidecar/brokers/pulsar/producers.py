"""Publishing: a producer for each lane, made when it is first needed."""

import asyncio
from collections.abc import Sequence
from typing import Any

import _pulsar

from sidecar.brokers.pulsar.client_threads import ClientThreads, call_in_loop
from sidecar.brokers.pulsar.errors import of_result
from sidecar.brokers.pulsar.options import PulsarOptions
from sidecar.brokers.pulsar.positions import pack
from sidecar.brokers.pulsar.records import build_message, routing_key
from sidecar.brokers.pulsar.topics import full_name, lane_for_key
from sidecar.model.errors import BrokerError, Refused
from sidecar.model.records import Message, Place

#: messages of one call of `publish` that are sent before their results are awaited
_MAX_IN_FLIGHT = 5_000
#: seconds after which the partitions of a topic are looked up again
_PARTITIONS_MAX_AGE = 30.0


class Producers:
    """Never writes batches: a batch is one entry, and goes to one consumer, whatever keys are in it."""

    def __init__(self, options: PulsarOptions, client: ClientThreads) -> None:
        self._options = options
        self._client = client
        #: by the name of a partition
        self._producers: dict[str, asyncio.Task[Any]] = {}
        #: by topic: the names of its partitions, and when to look them up again
        self._lanes: dict[str, tuple[list[str], float]] = {}
        self._round_robin: dict[str, int] = {}

    async def publish(self, topic: str, messages: Sequence[Message]) -> list[Place | BrokerError]:
        """As `Broker.publish_each`."""
        lanes = await self._partitions(topic)
        numbers = [self._number(topic, message, len(lanes)) for message in messages]
        producers = {number: await self._producer(lanes[number]) for number in set(numbers)}
        outcomes: list[Place | BrokerError] = []
        for at in range(0, len(messages), _MAX_IN_FLIGHT):
            part = list(zip(numbers[at : at + _MAX_IN_FLIGHT], messages[at : at + _MAX_IN_FLIGHT], strict=True))
            outcomes += await self._send(topic, part, producers)
        return outcomes

    async def close(self) -> None:
        """Never raises. A producer that is still being created ends with the client."""
        made = [task for task in self._producers.values() if task.done() and not task.cancelled()]
        await asyncio.gather(*(self._client.close_one(task.result()) for task in made if task.exception() is None))
        self._producers.clear()

    async def _send(
        self, topic: str, part: list[tuple[int, Message]], producers: dict[int, Any]
    ) -> list[Place | BrokerError]:
        loop = asyncio.get_running_loop()
        sent: asyncio.Future[None] = loop.create_future()
        results: dict[int, tuple[_pulsar.Result, Any]] = {}

        def submit() -> None:
            # The library calls back in threads of its own, one call at a time for each producer.
            for index, (number, message) in enumerate(part):
                producers[number].send_async(
                    build_message(message), lambda result, id_, index=index: done(index, result, id_)
                )

        def done(index: int, result: _pulsar.Result, id_: Any) -> None:
            results[index] = (result, id_)
            call_in_loop(loop, check)

        def check() -> None:
            if len(results) == len(part) and not sent.done():
                sent.set_result(None)

        await self._client.run(f"publish to {topic}", submit)
        await sent
        outcomes: list[Place | BrokerError] = []
        for index, (number, _) in enumerate(part):
            result, id_ = results[index]
            if result == _pulsar.Result.Ok:
                outcomes.append(Place(number, pack(id_.ledger_id(), id_.entry_id(), id_.batch_index())))
                continue
            if result in (_pulsar.Result.AlreadyClosed, _pulsar.Result.TopicTerminated):
                self._forget(topic)
            outcomes.append(of_result(result, f"publish to {topic}"))
        return outcomes

    def _number(self, topic: str, message: Message, lanes: int) -> int:
        if message.lane is not None:
            if not 0 <= message.lane < lanes:
                raise Refused(f"Topic {topic!r} has no lane {message.lane}: it has {lanes}, counted from 0.")
            return message.lane
        if message.key is not None:
            return lane_for_key(routing_key(message.key), lanes)
        self._round_robin[topic] = self._round_robin.get(topic, -1) + 1
        return self._round_robin[topic] % lanes

    async def _partitions(self, topic: str) -> list[str]:
        now = asyncio.get_running_loop().time()
        found = self._lanes.get(topic)
        if found is None or now > found[1]:
            name = full_name(topic, self._options.namespace)
            found = self._lanes[topic] = (await self._client.partitions(name), now + _PARTITIONS_MAX_AGE)
        return found[0]

    async def _producer(self, name: str) -> Any:
        task = self._producers.get(name)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            making = self._client.producer(
                name,
                batching_enabled=False,
                max_pending_messages=1_000_000,
                send_timeout_millis=int(self._options.timeout * 1000),
            )
            task = self._producers[name] = asyncio.ensure_future(making)
        return await asyncio.shield(task)

    def _forget(self, topic: str) -> None:
        """The producers of a topic are closed: create new ones the next time."""
        for name in self._lanes.pop(topic, ([], 0.0))[0]:
            self._producers.pop(name, None)

"""Publishing while the library fails."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sidecar.brokers.base import all_placed
from sidecar.brokers.kafka import producer
from sidecar.brokers.kafka.library_logs import LibraryClients
from sidecar.brokers.kafka.options import PRODUCER_QUEUE_BYTES, KafkaOptions, producer_properties
from sidecar.brokers.kafka.producer import Publisher
from sidecar.model.errors import TooLarge, Unavailable
from sidecar.model.records import Message, Place
from tests.event_loop import on_event_loop

OPTIONS = KafkaOptions(servers=("nowhere:1",))
SMALL = [Message(b"key", b"value")]


class Delivered:
    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7


class Library:
    """Stands in for a producer: reports the outcome that the test has set, within a poll."""

    made: list["Library"]

    def __init__(self, *_: Any, **__: Any) -> None:
        self.queue: list[Callable[[KafkaError | None, Any], None]] = []
        self.outcome: list[KafkaError | None] = []
        self.fatal = self.raised = False
        self._lock = threading.Lock()
        self.made.append(self)

    def __len__(self) -> int:
        return len(self.queue)

    def produce(self, *_: Any, on_delivery: Callable[[KafkaError | None, Any], None], **__: Any) -> None:
        if self.fatal:
            raise KafkaException(
                KafkaError(KafkaError._FATAL, "Broker: Broker received an out of order sequence number")
            )
        with self._lock:
            self.queue.append(on_delivery)

    def poll(self, timeout: float) -> None:
        if self.fatal and not self.raised:
            # The library reports this to no callback.
            self.raised = True
            raise KafkaException(KafkaError(KafkaError._FATAL))
        with self._lock:
            reported, self.queue = (self.queue, []) if self.outcome else ([], self.queue)
        for report in reported:
            report(self.outcome[0], Delivered())

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        assert not blocking, "the event loop must not block"
        if not in_flight:
            self.outcome = self.outcome or [KafkaError(KafkaError._PURGE_QUEUE)]

    def flush(self, timeout: float) -> None:
        pass


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    Library.made = []
    monkeypatch.setattr(producer, "Producer", Library)


@asynccontextmanager
async def publishing() -> AsyncIterator[Publisher]:
    publisher = Publisher(LibraryClients(OPTIONS), lambda: None)
    try:
        async with asyncio.timeout(5.0):
            yield publisher
    finally:
        await publisher.close()


async def publish(publisher: Publisher, topic: str, messages: list[Message]) -> Sequence[Place]:
    return all_placed(await publisher.publish(topic, messages))


@on_event_loop
async def test_a_message_that_can_never_fit_into_the_queue_is_too_large() -> None:
    """The library would report that its queue is full, forever."""
    async with publishing() as publisher:
        large = Message(b"key", bytes(PRODUCER_QUEUE_BYTES + 1))
        with pytest.raises(TooLarge, match="67,108,865 bytes"):
            await publish(publisher, "orders", [large])
        assert not Library.made[0].queue, "nothing was written"


@on_event_loop
async def test_each_message_has_an_outcome_of_its_own() -> None:
    async with publishing() as publisher:
        large = Message(b"key", bytes(PRODUCER_QUEUE_BYTES + 1))
        Library.made[0].outcome = [None]
        first, too_large, last = await publisher.publish("orders", [*SMALL, large, *SMALL])
        assert (first, last) == (Place(0, 7), Place(0, 7))
        assert isinstance(too_large, TooLarge)


def test_the_queue_of_the_library_has_room_for_the_largest_value() -> None:
    assert producer_properties(OPTIONS)["queue.buffering.max.kbytes"] == PRODUCER_QUEUE_BYTES // 1024


@on_event_loop
async def test_a_producer_that_failed_fatally_still_reports_its_messages() -> None:
    async with publishing() as publisher:
        in_flight = asyncio.create_task(publish(publisher, "orders", SMALL))
        (old,) = Library.made
        await asyncio.sleep(0)
        assert len(old) == 1
        old.fatal = True
        with pytest.raises(Unavailable, match="out of order"):
            await publish(publisher, "orders", SMALL)
        with pytest.raises(Unavailable, match="replaced"):
            await in_flight
        new = Library.made[1]
        new.outcome = [None]
        assert await publish(publisher, "orders", SMALL) == [Place(0, 7)]


@on_event_loop
async def test_a_producer_that_failed_fatally_is_replaced_once() -> None:
    async with publishing() as publisher:
        (old,) = Library.made
        first, second = (asyncio.create_task(publish(publisher, "orders", SMALL)) for _ in range(2))
        await asyncio.sleep(0)
        assert len(old) == 2
        old.outcome = [KafkaError(KafkaError._FATAL)]
        for each in (first, second):
            with pytest.raises(Unavailable):
                await each
        assert len(Library.made) == 2


@on_event_loop
async def test_the_thread_survives_a_producer_that_failed_fatally_while_nothing_was_in_flight() -> None:
    """A producer without the right to write fails before anybody publishes."""
    async with publishing() as publisher:
        (old,) = Library.made
        old.fatal = True
        publisher._wake.set()
        while not old.raised:  # noqa: ASYNC110 - it happens on a thread
            await asyncio.sleep(0.01)
        with pytest.raises(Unavailable):
            await publish(publisher, "orders", SMALL)
        Library.made[1].outcome = [None]
        assert await publish(publisher, "orders", SMALL) == [Place(0, 7)]

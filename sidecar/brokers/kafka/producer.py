"""Publishing, idempotent: a publish returns when the broker has the messages durably."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Sequence
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as KafkaMessage

from sidecar.brokers.kafka.errors import is_fatal, kafka_error
from sidecar.brokers.kafka.forgotten_brokers import has_forgotten_brokers
from sidecar.brokers.kafka.library_logs import LibraryClients
from sidecar.brokers.kafka.options import PRODUCER_QUEUE_BYTES, producer_properties
from sidecar.model.errors import BrokerError, TooLarge
from sidecar.model.records import Message, Place

#: seconds between polls of the thread, while messages are in flight and otherwise
_POLL_INTERVAL, _IDLE_INTERVAL = 0.05, 0.5
#: seconds before the next try when the queue of the library is full
_QUEUE_FULL_INTERVAL = 0.01
#: seconds that `close` waits for messages in flight
_CLOSE_TIMEOUT = 5.0


class _Call:
    """One call of `publish`: its messages, and the outcome of each."""

    def __init__(self, producer: Producer, topic: str, count: int, done: Callable[[], None]) -> None:
        #: reports the outcome of all of them, also when it is replaced meanwhile
        self.producer = producer
        self.topic = topic
        self.outcomes: list[Place | KafkaError | TooLarge | None] = [None] * count
        self._pending = count
        self._done = done

    def delivered(self, index: int, error: KafkaError | None, message: KafkaMessage) -> None:
        """On the producer's thread."""
        lane, position = message.partition(), message.offset()
        self.resolve(index, error or Place(-1 if lane is None else lane, -1 if position is None else position))

    def resolve(self, index: int, outcome: Place | KafkaError | TooLarge | None) -> None:
        """A message is no longer pending."""
        self.outcomes[index] = outcome
        self._pending -= 1
        if self._pending == 0:
            self._done()


class Publisher:
    """A producer and the thread that polls it, and replaced producers until they have reported all outcomes."""

    def __init__(self, clients: LibraryClients, also_poll: Callable[[], None]) -> None:
        """`also_poll` is called on the thread after each poll."""
        self._clients = clients
        self._also_poll = also_poll
        self._producer = self._make_producer()
        #: has forgotten all brokers: the next publish replaces it
        self._forgetful: Producer | None = None
        #: producers that were replaced, and may have messages in flight
        self._failed: list[Producer] = []
        self._calls_in_flight = 0
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="offramp-kafka-publish", daemon=True)
        self._thread.start()

    async def publish(self, topic: str, messages: Sequence[Message]) -> Sequence[Place | BrokerError]:
        """As `Broker.publish_each`, to a topic that is known to exist."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        if self._producer is self._forgetful:
            self._replace_producer()
        call = _Call(self._producer, topic, len(messages), lambda: _resolve(loop, done))
        self._calls_in_flight += 1
        try:
            for index, message in enumerate(messages):
                size = len(message.value or b"")
                if size > PRODUCER_QUEUE_BYTES:
                    text = f"a value has {size:,} bytes, more than {PRODUCER_QUEUE_BYTES:,}"
                    call.resolve(index, TooLarge(f"Kafka: cannot publish to {topic}: {text}"))
                    continue
                try:
                    await self._produce(call, index, message)
                except KafkaException as error:
                    call.resolve(index, kafka_error(error))
                except BaseException:
                    for rest in range(index, len(messages)):
                        call.resolve(rest, None)
                    raise
            self._wake.set()
            await done
        finally:
            self._calls_in_flight -= 1
        return [
            outcome if isinstance(outcome, Place) else await self._failed_one(call, message, outcome)
            for message, outcome in zip(messages, call.outcomes, strict=True)
        ]

    async def _failed_one(
        self, call: _Call, message: Message, error: KafkaError | TooLarge | None
    ) -> Place | BrokerError:
        assert error is not None, "every message of a call that is done has an outcome"
        if isinstance(error, TooLarge):
            return error
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE and len(call.outcomes) > 1:
            # A topic's limit applies to messages that are sent together: each may fit when it is sent alone.
            (outcome,) = await self.publish(call.topic, [message])
            return outcome
        return self._translated(call, error)

    async def close(self) -> None:
        """Waits for messages in flight, at most some seconds."""
        self._stopping = True
        self._wake.set()
        await asyncio.to_thread(self._thread.join, _CLOSE_TIMEOUT + 1.0)

    async def _produce(self, call: _Call, index: int, message: Message) -> None:
        while True:
            try:
                call.producer.produce(
                    call.topic,
                    message.value,
                    message.key,
                    -1 if message.lane is None else message.lane,
                    on_delivery=partial(call.delivered, index),
                    timestamp=max(0, message.timestamp_ms),
                    headers=[(header.name, header.value) for header in message.headers] or None,
                )
                return
            except BufferError:
                self._wake.set()
                await asyncio.sleep(_QUEUE_FULL_INTERVAL)

    def _translated(self, call: _Call, error: KafkaError) -> BrokerError:
        # Several calls may report the same failure: only the first of them replaces the producer.
        if is_fatal(error) and call.producer is self._producer:
            self._replace_producer()
        return self._clients.translate(error, f"publish to {call.topic}")

    def _replace_producer(self) -> None:
        old, self._producer = self._producer, self._make_producer()
        # Messages in flight will still be reported; those that were not sent yet fail now.
        self._failed.append(old)
        old.purge(in_flight=False, blocking=False)

    def _make_producer(self) -> Producer:
        conf = {**producer_properties(self._clients.options), "stats_cb": lambda text: self._on_statistics(made, text)}
        made: Producer = self._clients.create(Producer, conf)
        return made

    def _on_statistics(self, producer: Producer, text: str) -> None:
        """On the producer's thread."""
        if has_forgotten_brokers(json.loads(text)):
            self._forgetful = producer

    def _run(self) -> None:
        while not self._stopping:
            if not self._calls_in_flight:
                self._wake.wait(_IDLE_INTERVAL)
                self._wake.clear()
            self._poll(self._producer, _POLL_INTERVAL if self._calls_in_flight else 0)
            for each in [*self._failed]:
                self._poll(each, 0)
                if not len(each):
                    self._failed.remove(each)
            self._also_poll()
        with contextlib.suppress(KafkaException):
            self._producer.flush(_CLOSE_TIMEOUT)

    def _poll(self, producer: Producer, timeout: float) -> None:
        """A producer that failed fatally raises once, from `poll`. The thread must survive that: the next publish gets
        the error, too, and replaces the producer."""
        with contextlib.suppress(KafkaException):
            producer.poll(timeout)


def _resolve(loop: asyncio.AbstractEventLoop, done: "asyncio.Future[None]") -> None:
    def resolve() -> None:
        if not done.done():
            done.set_result(None)

    # The loop may be closed already; then nobody waits.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(resolve)

"""Publishing: idempotent, and answered when the broker has it."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Delivered

from sidecar.brokers.kafka.errors import is_fatal, kafka_error, translate
from sidecar.brokers.kafka.library_logs import Chatter, Reasons
from sidecar.brokers.kafka.options import KafkaOptions
from sidecar.brokers.kafka.properties import QUEUE, producing
from sidecar.model.errors import BrokerError, TooLarge
from sidecar.model.records import Message, Place

NOWHERE = Place(-1, -1)
#: seconds between turns of the thread while nothing is under way
_IDLE = 0.5
#: seconds before the next try when the library's own queue is full
_FULL = 0.01
#: seconds that closing waits for what is under way
_LAST = 5.0


class _Call:
    """One publish: its messages, and what became of each."""

    def __init__(self, producer: Producer, topic: str, count: int, done: Callable[[], None]) -> None:
        #: the one that answers for all of them, also when it is replaced meanwhile
        self.producer = producer
        self.topic = topic
        self.places: list[Place] = [NOWHERE] * count
        self.error: KafkaError | None = None
        self._left = count
        self._done = done

    def delivered(self, index: int, error: KafkaError | None, message: Delivered) -> None:
        """On the producer's thread."""
        if error is not None:
            self.error = self.error or error
        else:
            lane, position = message.partition(), message.offset()
            self.places[index] = Place(-1 if lane is None else lane, -1 if position is None else position)
        self.drop(1)

    def drop(self, count: int) -> None:
        """So many are no longer waited for."""
        self._left -= count
        if self._left == 0:
            self._done()


class Publisher:
    """One producer, and the thread that serves it, and those that it replaced until they have answered for all."""

    def __init__(
        self, options: KafkaOptions, reasons: Reasons, chatter: Chatter, meanwhile: Callable[[], None]
    ) -> None:
        """`meanwhile` is called on the thread now and then."""
        self._options = options
        self._reasons = reasons
        self._chatter = chatter
        self._meanwhile = meanwhile
        self._producer = self._make()
        #: failed for good; each has calls open, perhaps
        self._failed: list[Producer] = []
        self._calls = 0
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="offramp-kafka-publish", daemon=True)
        self._thread.start()

    async def publish(self, topic: str, messages: Sequence[Message]) -> Sequence[Place]:
        """The topic is known to exist. Raises what `Broker.publish` raises."""
        largest = max(len(message.value or b"") for message in messages)
        if largest > QUEUE:
            raise TooLarge(f"Kafka: cannot publish to {topic}: a value has {largest:,} bytes, more than {QUEUE:,}")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        call = _Call(self._producer, topic, len(messages), lambda: _resolve(loop, done))
        self._calls += 1
        try:
            for index, message in enumerate(messages):
                try:
                    await self._produce(call, index, message)
                except KafkaException as error:
                    call.error = call.error or kafka_error(error)
                    call.drop(len(messages) - index)
                    break
                except BaseException:
                    call.drop(len(messages) - index)
                    raise
            self._wake.set()
            await done
        finally:
            self._calls -= 1
        if call.error is None:
            return call.places
        if call.error.code() == KafkaError.MSG_SIZE_TOO_LARGE and len(messages) > 1:
            return await self._publish_alone(topic, messages, call.places)
        raise self._translated(call, call.error)

    async def _publish_alone(self, topic: str, messages: Sequence[Message], places: list[Place]) -> Sequence[Place]:
        """A topic's limit counts for what is sent together. What alone is not too large goes alone."""
        for index, message in enumerate(messages):
            if places[index] == NOWHERE:
                (places[index],) = await self.publish(topic, [message])
        return places

    async def close(self) -> None:
        """Waits for what is under way, some seconds at the most."""
        self._stopping = True
        self._wake.set()
        await asyncio.to_thread(self._thread.join, _LAST + 1.0)

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
                await asyncio.sleep(_FULL)

    def _translated(self, call: _Call, error: KafkaError) -> BrokerError:
        # Several calls may meet the same failure: only the first of them ends the producer.
        if is_fatal(error) and call.producer is self._producer:
            self._producer = self._make()
            # It will never write again. What it had on its way is still answered, what it had not begun is told now.
            self._failed.append(call.producer)
            call.producer.purge(in_flight=False, blocking=False)
        return translate(self._reasons.behind(error), f"publish to {call.topic}")

    def _make(self) -> Producer:
        conf: dict[str, Any] = {**producing(self._options), "error_cb": self._reasons.heard}
        try:
            return Producer(conf, logger=self._chatter.logger)
        except KafkaException as error:
            raise translate(error, "use the settings") from error

    def _run(self) -> None:
        while not self._stopping:
            if not self._calls:
                self._wake.wait(_IDLE)
                self._wake.clear()
            self._serve(self._producer, 0.05 if self._calls else 0)
            for each in [*self._failed]:
                self._serve(each, 0)
                if not len(each):
                    self._failed.remove(each)
            self._meanwhile()
        with contextlib.suppress(KafkaException):
            self._producer.flush(_LAST)

    def _serve(self, producer: Producer, timeout: float) -> None:
        """One that failed for good says so once, to whoever serves it. The next publish hears it, too, and replaces it:
        without the thread, that would never be answered."""
        with contextlib.suppress(KafkaException):
            producer.poll(timeout)


def _resolve(loop: asyncio.AbstractEventLoop, done: "asyncio.Future[None]") -> None:
    def resolve() -> None:
        if not done.done():
            done.set_result(None)

    # The loop may be closed already: then nobody waits.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(resolve)

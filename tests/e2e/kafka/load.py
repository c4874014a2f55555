"""A plain producer of Kafka under load."""

import random
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError, Message, Producer

from tests.e2e.load.journal import Spot
from tests.e2e.load.kinds import Kind
from tests.e2e.load.steady import SteadyLoad
from tests.servers.kafka import QUIET, KafkaServer

_FLUSH_TIMEOUT = 60.0


class Producing:
    """Reports where each value is, once it is confirmed. Retries what is not confirmed, for minutes."""

    def __init__(self, bootstrap: str, topic: str, confirmed: Callable[[Spot, bytes], None]) -> None:
        self._topic = topic
        self._confirmed = confirmed
        settings = {"enable.idempotence": True, "linger.ms": 5, "partitioner": "murmur2_random"}
        self._producer = Producer({"bootstrap.servers": bootstrap, **settings}, logger=QUIET)

    def produce(self, key: bytes | None, value: bytes, lane: int | None = None) -> None:
        self._producer.produce(self._topic, value, key, -1 if lane is None else lane, on_delivery=self._delivered)
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait for what was produced until now."""
        assert self._producer.flush(_FLUSH_TIMEOUT) == 0, "the producer could not get rid of its records"

    def close(self) -> None:
        """There is nothing to close."""

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._confirmed(Spot(message.partition() or 0, message.offset() or 0), message.value() or b"")


class Load(SteadyLoad):
    def __init__(self, kafka: KafkaServer, topic: str, chance: random.Random, shares: Mapping[Kind, float]) -> None:
        super().__init__(chance, shares)
        self._producing: Producing = Producing(kafka.bootstrap, topic, self.confirmed.__setitem__)

    def produce_at(self, lane: int, *kinds: Kind) -> None:
        for kind in kinds:
            self._producing.produce(None, self._value(kind), lane)

    def place(self, kind: Kind) -> Spot:
        """Produces one record. Returns its place once Kafka has confirmed it."""
        value = self._value(kind)
        self._producing.produce(None, value)
        self.flush()
        return next(spot for spot, found in [*self.confirmed.items()] if found == value)

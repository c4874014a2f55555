"""A plain producer, as any team's: it knows nothing of Offramp."""

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

from tests.e2e.load.journal import Spot
from tests.e2e.load.kinds import Kind, make
from tests.servers.kafka import QUIET, KafkaServer

_FLUSH_TIMEOUT = 60.0


class Producing:
    """Tells where each value is, once Kafka has said so. What it cannot get rid of it keeps trying, for minutes."""

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

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._confirmed(Spot(message.partition() or 0, message.offset() or 0), message.value() or b"")


class Load:
    """Produces records of all kinds at a steady pace, until it is stopped. Only what Kafka confirmed counts."""

    def __init__(
        self,
        kafka: KafkaServer,
        topic: str,
        chance: random.Random,
        shares: Mapping[Kind, float],
        *,
        keys: int = 60,
        pace: int = 250,
    ) -> None:
        #: what Kafka has said it has
        self.confirmed: dict[Spot, bytes] = {}
        self._chance = chance
        self._shares = shares
        self._keys = [f"key-{number}".encode() for number in range(keys)]
        self._pace = pace
        self._numbers = 0
        self._producing = Producing(kafka.bootstrap, topic, self.confirmed.__setitem__)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Returns when all that was produced is confirmed."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(_FLUSH_TIMEOUT)
        self.flush()

    def flush(self) -> None:
        """Wait for what was produced until now."""
        self._producing.flush()

    def produce(self, *kinds: Kind, lane: int | None = None) -> None:
        for kind in kinds:
            self._numbers += 1
            key = self._chance.choice(self._keys) if lane is None else None
            self._producing.produce(key, make(kind, self._numbers), lane)

    def place(self, kind: Kind) -> Spot:
        """One record, confirmed; answers where it is."""
        self._numbers += 1
        value = make(kind, self._numbers)
        self._producing.produce(None, value)
        self.flush()
        return next(spot for spot, found in [*self.confirmed.items()] if found == value)

    def _run(self) -> None:
        kinds: Sequence[Kind] = tuple(self._shares)
        weights = tuple(self._shares.values())
        while not self._stopped.wait(0.02):
            self.produce(*self._chance.choices(kinds, weights, k=self._pace // 50))

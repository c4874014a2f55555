"""A plain producer, as any team's: it knows nothing of Offramp."""

import random
import threading
from collections.abc import Mapping, Sequence
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

from tests.e2e.load.journal import Spot
from tests.e2e.load.kinds import Kind, make
from tests.servers.kafka import QUIET, KafkaServer

_PATIENCE = 60.0


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
        self.confirmed: set[Spot] = set()
        self._topic = topic
        self._chance = chance
        self._shares = shares
        self._keys = [f"key-{number}".encode() for number in range(keys)]
        self._pace = pace
        self._numbers = 0
        settings = {**kafka.settings(), "enable.idempotence": True, "linger.ms": 5, "partitioner": "murmur2_random"}
        self._producer = Producer(settings, logger=QUIET)
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
            self._thread.join(_PATIENCE)
        self.flush()

    def flush(self) -> None:
        """Wait for what was produced until now."""
        assert self._producer.flush(_PATIENCE) == 0, "the producer could not get rid of its records"

    def produce(self, *kinds: Kind, lane: int | None = None) -> None:
        for kind in kinds:
            self._numbers += 1
            key = self._chance.choice(self._keys) if lane is None else None
            value = make(kind, self._numbers)
            self._producer.produce(self._topic, value, key, -1 if lane is None else lane, on_delivery=self._delivered)

    def place(self, kind: Kind) -> Spot:
        """One record, confirmed; answers where it is."""
        placed: list[Spot] = []
        self._numbers += 1
        self._producer.produce(
            self._topic,
            make(kind, self._numbers),
            on_delivery=lambda _, message: placed.append(Spot(message.partition() or 0, message.offset() or 0)),
        )
        self.flush()
        (spot,) = placed
        self.confirmed.add(spot)
        return spot

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.confirmed.add(Spot(message.partition() or 0, message.offset() or 0))

    def _run(self) -> None:
        kinds: Sequence[Kind] = tuple(self._shares)
        weights = tuple(self._shares.values())
        while not self._stopped.wait(0.02):
            self.produce(*self._chance.choices(kinds, weights, k=self._pace // 50))
            self._producer.poll(0)

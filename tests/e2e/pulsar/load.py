"""A plain producer, as any team's: it knows nothing of Offramp."""

import random
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Self

import _pulsar
import pulsar

from tests.e2e.load.journal import Spot
from tests.e2e.load.kinds import Kind, make
from tests.e2e.pulsar.stock import QUIET, spot_of
from tests.servers.process import await_
from tests.servers.pulsar import PulsarServer


class Load:
    """Produces records of all kinds at a steady pace, until it is stopped. Only what Pulsar confirmed counts.

    Producers batch: by key if keys must stay together, since a batch goes to one consumer whatever is in it.
    """

    def __init__(
        self,
        server: PulsarServer,
        topic: str,
        chance: random.Random,
        shares: Mapping[Kind, float],
        *,
        by_key: bool,
        keys: int = 60,
        pace: int = 250,
    ) -> None:
        #: what Pulsar has said it has
        self.confirmed: set[Spot] = set()
        self._chance = chance
        self._shares = shares
        self._keys = [f"key-{number}" for number in range(keys)]
        self._pace = pace
        self._numbers = 0
        self._answered = 0
        self._client = pulsar.Client(server.url, logger=QUIET)
        self._producer = self._client.create_producer(
            topic,
            batching_enabled=True,
            batching_max_publish_delay_ms=20,
            batching_type=pulsar.BatchingType.KeyBased if by_key else pulsar.BatchingType.Default,
            message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
            # A broker that is away for a while costs nothing but time.
            send_timeout_millis=0,
            max_pending_messages=100_000,
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._client.close()

    def stop(self) -> None:
        """Returns when all that was produced is confirmed."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        await_(lambda: self._answered == self._numbers, "Pulsar has all that was produced")

    def produce(self, *kinds: Kind) -> None:
        for kind in kinds:
            self._numbers += 1
            key = self._chance.choice(self._keys)
            self._producer.send_async(make(kind, self._numbers), self._sent, partition_key=key)

    def _sent(self, result: _pulsar.Result, id_: Any) -> None:
        self._answered += 1
        if result == _pulsar.Result.Ok:
            self.confirmed.add(spot_of(id_.partition(), id_))

    def _run(self) -> None:
        kinds: Sequence[Kind] = tuple(self._shares)
        weights = tuple(self._shares.values())
        while not self._stopped.wait(0.02):
            self.produce(*self._chance.choices(kinds, weights, k=self._pace // 50))

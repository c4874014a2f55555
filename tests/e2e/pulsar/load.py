"""A plain producer, as any team's: it knows nothing of Offramp."""

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import _pulsar
import pulsar

from tests.e2e.load.journal import Spot
from tests.e2e.load.kinds import Kind, make
from tests.e2e.pulsar.snapshot import QUIET, spot_of
from tests.servers.process import await_
from tests.servers.pulsar import PulsarServer


class Producing:
    """Tells where each value is, once Pulsar has said so. What it cannot get rid of it keeps trying.

    It batches by key unless told otherwise: a batch goes to one consumer whatever is in it.
    """

    def __init__(self, url: str, topic: str, confirmed: Callable[[Spot, bytes], None], *, by_key: bool = True) -> None:
        self._confirmed = confirmed
        self._sent = self._answered = 0
        self._client = pulsar.Client(url, logger=QUIET)
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

    def produce(self, key: bytes, value: bytes) -> None:
        self._sent += 1

        def answered(result: _pulsar.Result, id_: Any) -> None:
            if result == _pulsar.Result.Ok:
                self._confirmed(spot_of(id_.partition(), id_), value)
            self._answered += 1

        self._producer.send_async(value, answered, partition_key=key.decode())

    def flush(self) -> None:
        """Wait for what was produced until now."""
        await_(lambda: self._answered == self._sent, "Pulsar has all that was produced")

    def close(self) -> None:
        self._client.close()


class Load:
    """Produces records of all kinds at a steady pace, until it is stopped. Only what Pulsar confirmed counts."""

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
        self.confirmed: dict[Spot, bytes] = {}
        self._chance = chance
        self._shares = shares
        self._keys = [f"key-{number}".encode() for number in range(keys)]
        self._pace = pace
        self._numbers = 0
        self._producing = Producing(server.url, topic, self.confirmed.__setitem__, by_key=by_key)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._producing.close()

    def stop(self) -> None:
        """Returns when all that was produced is confirmed."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self._producing.flush()

    def produce(self, *kinds: Kind) -> None:
        for kind in kinds:
            self._numbers += 1
            self._producing.produce(self._chance.choice(self._keys), make(kind, self._numbers))

    def _run(self) -> None:
        kinds: Sequence[Kind] = tuple(self._shares)
        weights = tuple(self._shares.values())
        while not self._stopped.wait(0.02):
            self.produce(*self._chance.choices(kinds, weights, k=self._pace // 50))

"""A plain producer of Pulsar under load."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import _pulsar
import pulsar

from tests.e2e.load.journal import Spot
from tests.e2e.load.kinds import Kind
from tests.e2e.load.steady import SteadyLoad
from tests.e2e.pulsar.snapshot import QUIET, spot_of
from tests.servers.process import await_
from tests.servers.pulsar import PulsarServer


class Producing:
    """Reports where each value is, once it is confirmed. Retries what is not confirmed.

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

    def produce(self, key: bytes | None, value: bytes) -> None:
        self._sent += 1

        def answered(result: _pulsar.Result, id_: Any) -> None:
            if result == _pulsar.Result.Ok:
                self._confirmed(spot_of(id_.partition(), id_), value)
            self._answered += 1

        self._producer.send_async(value, answered, partition_key=key.decode() if key else None)

    def flush(self) -> None:
        """Wait for what was produced until now."""
        await_(lambda: self._answered == self._sent, "Pulsar has all that was produced")

    def close(self) -> None:
        self._client.close()


class Load(SteadyLoad):
    def __init__(
        self, server: PulsarServer, topic: str, chance: random.Random, shares: Mapping[Kind, float], *, by_key: bool
    ) -> None:
        super().__init__(chance, shares)
        self._producing = Producing(server.url, topic, self.confirmed.__setitem__, by_key=by_key)

"""Publishes records of all kinds, until it is told to stop.

    python -m tests.chaos.publisher BROKER ADDRESS TOPIC JOURNAL SEED PACE KIND=SHARE...

What it is told to be there it writes into its journal: lane, place and value of each. It is told on its standard
input: `stop` ends the load and is answered by `stopped` once everything is confirmed, `one` publishes one record that
asks for nothing, and is answered by `published` once that is confirmed. It ends with its input.
"""

import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import grpc

from offramp.v1 import publish_pb2, publish_pb2_grpc
from tests.e2e.kafka.load import Producing as KafkaProducing
from tests.e2e.load.journal import Spot
from tests.e2e.load.kinds import Kind, make
from tests.e2e.pulsar.load import Producing as PulsarProducing
from tests.e2e.redis.load import Producing as RedisProducing

_KEYS = 40
#: seconds between two bursts
_BURST_INTERVAL = 0.04

#: called with the place of a value, once the broker has confirmed it
Confirmed = Callable[[Spot, bytes], None]


class Producing(Protocol):
    """Publishes to one broker, and retries until each record is confirmed."""

    def produce(self, key: bytes, value: bytes) -> None: ...

    def flush(self) -> None:
        """Returns when everything is confirmed."""


class LocalProducing:
    """Through a sidecar, to its embedded broker. One call at a time; what was not answered is sent again."""

    def __init__(self, address: str, topic: str, confirmed: Confirmed) -> None:
        self._address = address
        self._topic = topic
        self._confirmed = confirmed
        self._waiting: list[publish_pb2.Message] = []

    def produce(self, key: bytes, value: bytes) -> None:
        self._waiting.append(publish_pb2.Message(key=key, value=value))

    def flush(self) -> None:
        while self._waiting:
            request = publish_pb2.PublishRequest(broker="local", topic=self._topic, messages=self._waiting)
            try:
                # A channel that was refused waits longer and longer before it tries again.
                with grpc.insecure_channel(self._address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
                    stub = publish_pb2_grpc.PublishServiceStub(channel)  # type: ignore[no-untyped-call]
                    answer = stub.Publish(request, timeout=5.0)
            except grpc.RpcError:
                time.sleep(_BURST_INTERVAL)
                continue
            for message, one in zip(self._waiting, answer.published, strict=True):
                self._confirmed(Spot(one.lane, one.position), message.value)
            self._waiting.clear()


_BROKERS: Mapping[str, Callable[[str, str, Confirmed], Producing]] = {
    "local": LocalProducing,
    "kafka": KafkaProducing,
    "pulsar": PulsarProducing,
    "redis": RedisProducing,
}


class Publisher:
    def __init__(self, broker: str, address: str, topic: str, journal: str, seed: str) -> None:
        self._file = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._chance = random.Random(seed)
        self._number = 0
        self._producing = _BROKERS[broker](address, topic, self._confirmed)

    def load(self, pace: int, shares: Mapping[Kind, int], stopped: threading.Event) -> None:
        kinds, weights = [Kind.OK, *shares], [1000 - sum(shares.values()), *shares.values()]
        while not stopped.wait(_BURST_INTERVAL):
            self._produce(self._chance.choices(kinds, weights, k=int(pace * _BURST_INTERVAL)))
            if isinstance(self._producing, LocalProducing):
                self._producing.flush()
        self._producing.flush()

    def one(self) -> None:
        self._produce([Kind.OK])
        self._producing.flush()

    def _produce(self, kinds: list[Kind]) -> None:
        for kind in kinds:
            self._number += 1
            key = f"key-{self._chance.randrange(_KEYS)}".encode()
            self._producing.produce(key, make(kind, self._number))

    def _confirmed(self, spot: Spot, value: bytes) -> None:
        # One write: it is there whole or not at all, however this process ends.
        os.write(self._file, (json.dumps([*spot, value.decode()]) + "\n").encode())


def main(broker: str, address: str, topic: str, journal: str, seed: str, pace: str, *shares: str) -> None:
    publisher = Publisher(broker, address, topic, journal, seed)
    told = {Kind(kind): int(share) for kind, _, share in (one.partition("=") for one in shares)}
    stopped = threading.Event()
    load = threading.Thread(target=publisher.load, args=(int(pace), told, stopped))
    load.start()
    for line in sys.stdin:
        if line.strip() == "stop":
            stopped.set()
            load.join()
            print("stopped", flush=True)
        else:
            publisher.one()
            print("published", flush=True)
    stopped.set()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A plain producer under a steady load, as any team's: it knows nothing of Offramp."""

import random
import threading
from collections.abc import Mapping, Sequence
from typing import Protocol, Self

from tests.e2e.load.journal import Spot
from tests.e2e.load.kinds import Kind, make


class Producing(Protocol):
    """A producer of a broker's own library. It reports where each value is, once the broker has confirmed it."""

    def produce(self, key: bytes | None, value: bytes) -> None: ...

    def flush(self) -> None:
        """Waits for what was produced until now."""

    def close(self) -> None: ...


class SteadyLoad:
    """Produces records of all kinds at a steady pace, until it is stopped. Only what the broker confirmed counts."""

    #: set by the classes of brokers
    _producing: Producing

    def __init__(self, chance: random.Random, shares: Mapping[Kind, float], *, keys: int = 60, pace: int = 250) -> None:
        #: what the broker has confirmed
        self.confirmed: dict[Spot, bytes] = {}
        self._chance = chance
        self._shares = shares
        self._keys = [f"key-{number}".encode() for number in range(keys)]
        self._pace = pace
        self._numbers = 0
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
        self.flush()

    def flush(self) -> None:
        """Waits for what was produced until now."""
        self._producing.flush()

    def produce(self, *kinds: Kind) -> None:
        for kind in kinds:
            self._producing.produce(self._chance.choice(self._keys), self._value(kind))

    def _value(self, kind: Kind) -> bytes:
        self._numbers += 1
        return make(kind, self._numbers)

    def _run(self) -> None:
        kinds: Sequence[Kind] = tuple(self._shares)
        weights = tuple(self._shares.values())
        while not self._stopped.wait(0.02):
            self.produce(*self._chance.choices(kinds, weights, k=self._pace // 50))

"""A correct client of the attacked sidecar: what it publishes must reach it, and soon."""

import threading
import time
from collections.abc import Iterator
from typing import Self

from offramp import Batch, Worker
from tests.e2e.harness import Sidecar

#: its subscription, and its topic
OWN = "orders"
#: seconds between two of its records
_PUBLISH_INTERVAL = 0.05
#: seconds that one may be under way, on a busy machine that is under attack
_DELIVERY_TIMEOUT = 60.0


class ControlClient:
    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar
        self._sent: dict[bytes, float] = {}
        self._came: dict[bytes, float] = {}
        self._failed: list[str] = []
        self._over = threading.Event()
        self._worker = Worker(OWN, self._handle, workers=2, address=sidecar.target)
        self._threads = [threading.Thread(target=self._worker.run), threading.Thread(target=self._publish)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._threads[1].join()
        ends = time.monotonic() + _DELIVERY_TIMEOUT
        while self._sent.keys() - self._came.keys() and time.monotonic() < ends:
            time.sleep(0.02)
        self._worker.drain()
        self._threads[0].join()

    @property
    def slowest(self) -> float:
        """The longest time from publishing to delivery, in seconds."""
        return max((self._came[value] - self._sent[value] for value in self._came), default=0.0)

    @property
    def records(self) -> int:
        return len(self._came)

    def problems(self) -> Iterator[str]:
        """The problems, after the campaign."""
        yield from self._failed
        if lost := self._sent.keys() - self._came.keys():
            yield f"{len(lost)} records of the control client never came"
        if self.slowest > _DELIVERY_TIMEOUT:
            yield f"a record of the control client took {self.slowest:.1f} s"
        if not self._came:
            yield "the control client got nothing at all"

    def _publish(self) -> None:
        number = 0
        while not self._over.wait(_PUBLISH_INTERVAL):
            number += 1
            value = b"%d" % number
            self._sent[value] = time.monotonic()
            try:
                self._sidecar.publish(OWN, [value])
            except Exception as error:
                del self._sent[value]
                self._failed.append(f"the control client could not publish: {error!r}")
                return

    def _handle(self, batch: Batch) -> None:
        for record in batch:
            self._came.setdefault(record.value or b"", time.monotonic())

"""Collecting batches for calls that wait for them: what every Fetch has in common."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from offramp.v1 import consumer_pb2 as pb
from sidecar.model.records import Credit, Delivery, Notice, NoticeKind, SettleResult
from sidecar.model.wire import FETCH_BATCH_TAG, encode_batch
from sidecar.server.grpc import encode
from sidecar.server.grpc.clients import read_credit
from sidecar.server.grpc.notices import Notices

#: seconds that a call waits for its first batch at the most
MOST_WAIT = 60.0


@dataclass(frozen=True, slots=True)
class FetchDemand:
    """What one call may bring."""

    credit: Credit
    #: on the loop's clock: when the call gives up
    until: float

    @classmethod
    def of(cls, request: pb.FetchRequest) -> "FetchDemand":
        wait = min(request.wait_ms / 1_000, MOST_WAIT)
        credit = read_credit(request.want) if request.HasField("want") else Credit(1)
        return cls(credit, asyncio.get_running_loop().time() + wait)


class BatchWaiter:
    """What the subscription hands out between two answers. A `Consumer`."""

    def __init__(self) -> None:
        self._deliveries: list[Delivery] = []
        self._notices = Notices()
        self._changed = asyncio.Event()
        self.draining = False

    def deliver(self, delivery: Delivery) -> None:
        self._deliveries.append(delivery)
        self._changed.set()

    def notify(self, notice: Notice) -> None:
        self._notices.add(notice)
        if notice.kind is NoticeKind.DRAINING:
            # No batch will come, so nobody should wait for one. Other notices can wait for the next answer.
            self.draining = True
            self._changed.set()

    def look_again(self) -> None:
        """Wake a call that waits, so that it sees what became of it."""
        self._changed.set()

    async def change(self, until: float) -> bool:
        """Returns True at the next change, or when there is something to answer with, and False when it is time."""
        if self.ready:
            return True
        self._changed.clear()
        try:
            async with asyncio.timeout_at(until):
                return await self._changed.wait()
        except TimeoutError:
            return False

    @property
    def ready(self) -> bool:
        """There is no reason to wait any longer."""
        return bool(self._deliveries) or self.draining

    def undelivered(self) -> list[bytes]:
        """Leases that no answer carries so far."""
        return [delivery.lease for delivery in self._deliveries]

    def take_back(self) -> list[bytes]:
        """Leases that no answer will carry."""
        leases = self.undelivered()
        self._deliveries.clear()
        return leases

    def answer(self, results: Sequence[SettleResult], batches: int, limit: int) -> tuple[bytes, list[bytes]]:
        """A FetchResponse of at most `batches` batches and `limit` bytes, and the leases in it.

        A batch alone goes in whatever its size: the subscription keeps it within the client's limit. Beside results it
        goes only if there is room; what is left over is for the caller to give back.
        """
        pieces = [encode.settle_result(encode.FETCH_RESULTS, result) for result in results]
        pieces.extend(encode.notice(encode.FETCH_NOTICES, notice) for notice in self._notices.take())
        room = limit - sum(map(len, pieces))
        leases: list[bytes] = []
        while self._deliveries and len(leases) < batches:
            batch, size = encode_batch(FETCH_BATCH_TAG, self._deliveries[0])
            room -= size
            if pieces and room < 0:
                break
            pieces.extend(batch)
            leases.append(self._deliveries.pop(0).lease)
        return b"".join(pieces), leases

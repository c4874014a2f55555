"""What waits to be written to one stream, joined into few frames.

A client that does not read costs little, whatever it asks for and whatever it settles: past some bytes of batches none
is delivered to it, and past some bytes of answers none of its requests is read.
"""

import asyncio
from collections import deque
from typing import NamedTuple

from sidecar.model.records import Delivery
from sidecar.model.wire import CONSUME_BATCH_TAG, encode_batch

#: bytes of a frame: enough to make gRPC's cost per message small, little enough to keep other streams moving
FRAME_BYTES = 1 << 20
#: bytes of unwritten batches at which no further one is delivered: enough to keep the connection busy
MOST_BATCHES = 4 << 20
#: bytes of unwritten answers at which no further request of the client is read
MOST_ANSWERS = 1 << 20


class _Batch(NamedTuple):
    lease: bytes
    pieces: list[bytes]
    #: bytes of the pieces
    size: int


class Outbox:
    """Owned by one stream; one task takes from it."""

    def __init__(self, max_message_bytes: int) -> None:
        self._frame_bytes = min(FRAME_BYTES, max_message_bytes)
        #: encoded fields, in the order in which they must arrive
        self._answers: deque[bytes] = deque()
        self._answers_bytes = 0
        self._batches: deque[_Batch] = deque()
        self._batches_bytes = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False

    def add_answer(self, field: bytes) -> None:
        self._answers.append(field)
        self._answers_bytes += len(field)
        if self._answers_bytes > MOST_ANSWERS:
            self._room.clear()
        self._changed.set()

    def add_delivery(self, delivery: Delivery) -> None:
        pieces, size = encode_batch(CONSUME_BATCH_TAG, delivery)
        self._batches.append(_Batch(delivery.lease, pieces, size))
        self._batches_bytes += size
        self._changed.set()

    @property
    def full(self) -> bool:
        """No further batch should be delivered."""
        return self._batches_bytes >= MOST_BATCHES

    def take_back(self) -> list[bytes]:
        """The leases of batches that were not taken for writing; they will not be."""
        leases = [batch.lease for batch in self._batches]
        self._batches.clear()
        self._batches_bytes = 0
        return leases

    def close(self) -> None:
        """Nothing is added any more. What is in here may still be taken."""
        self._closed = True
        self._changed.set()

    async def room(self) -> None:
        """Returns when there is room for more answers."""
        await self._room.wait()

    async def filled(self) -> bool:
        """Returns when there is something to take, or False when there never will be."""
        while not (self._answers or self._batches or self._closed):
            self._changed.clear()
            await self._changed.wait()
        return bool(self._answers or self._batches)

    def take(self) -> tuple[bytes, list[bytes]]:
        """The next frame, and the leases of the batches in it. Answers go first: workers wait for them."""
        pieces: list[bytes] = []
        size = 0
        while self._answers and (not pieces or size + len(self._answers[0]) <= self._frame_bytes):
            answer = self._answers.popleft()
            pieces.append(answer)
            size += len(answer)
        self._answers_bytes -= size
        if self._answers_bytes <= MOST_ANSWERS:
            self._room.set()
        leases: list[bytes] = []
        while self._batches and (not pieces or size + self._batches[0].size <= self._frame_bytes):
            batch = self._batches.popleft()
            leases.append(batch.lease)
            pieces.extend(batch.pieces)
            size += batch.size
            self._batches_bytes -= batch.size
        return b"".join(pieces), leases

"""Reading without a group."""

from collections.abc import AsyncIterator
from typing import Any

from sidecar.brokers.base import LaneEnd
from sidecar.brokers.pulsar.library import Library
from sidecar.brokers.pulsar.positions import pack, unpack
from sidecar.brokers.pulsar.records import encode_one
from sidecar.model import Chunk, Lane, Run

#: messages read at a time
_BATCH = 500
#: milliseconds to wait for a message that is known to be there
_PATIENCE_MS = 10_000


class Ranges:
    """Readers, each for one call."""

    def __init__(self, library: Library) -> None:
        self._library = library

    async def read(self, lane: Lane, name: str, run: Run, max_bytes: int) -> AsyncIterator[Chunk]:
        """The records of a run, in chunks of at most `max_bytes`, or of one record."""
        positions: list[int] = []
        frames: list[bytes] = []
        size = 0
        async for message, position in self._messages(name, run):
            frame = encode_one(message, lane.number, position)
            if frames and size + len(frame) > max_bytes:
                yield Chunk(lane, positions, frames)
                positions, frames, size = [], [], 0
            positions.append(position)
            frames.append(frame)
            size += len(frame)
        if frames:
            yield Chunk(lane, positions, frames)

    async def first_at_time(self, name: str, ends: LaneEnd, timestamp_ms: int) -> int:
        """The first record with this timestamp or a later one; the end if there is none. Reads all before it: Pulsar
        finds messages only by when they were published."""
        async for message, position in self._messages(name, Run(ends.start, ends.end)):
            if (message.event_timestamp() or message.publish_timestamp()) >= timestamp_ms:
                return position
        return ends.end

    async def _messages(self, name: str, run: Run) -> AsyncIterator[tuple[Any, int]]:
        ledger, entry, _ = unpack(max(0, run.start))
        reader = await self._library.reader(name, (ledger, entry - 1))
        try:
            while True:
                batch: list[Any] = await self._library.run(f"read {name}", _read, reader)
                for message in batch:
                    id_ = message.message_id()
                    position = pack(id_.ledger_id(), id_.entry_id(), id_.batch_index())
                    if position >= run.stop:
                        return
                    if position >= run.start:
                        yield message, position
                if not batch:
                    return
        finally:
            await self._library.run(f"close the reader of {name}", reader.close)


def _read(reader: Any) -> list[Any]:
    out: list[Any] = []
    while len(out) < _BATCH and reader.has_message_available():
        out.append(reader.read_next(_PATIENCE_MS))
    return out

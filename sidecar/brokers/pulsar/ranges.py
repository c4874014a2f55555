"""Reading without a group."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from sidecar.brokers.base import LaneEnd
from sidecar.brokers.pulsar.library import Library
from sidecar.brokers.pulsar.positions import LIMITS, Id, pack, unpack
from sidecar.brokers.pulsar.records import encode_one
from sidecar.model.errors import Refused
from sidecar.model.records import Chunk, Lane, Run

#: messages read at a time
_BATCH = 500
#: how much the newest read counts in the average number of messages in an entry
_WEIGHT = 0.2
#: milliseconds to wait for a message that is known to be there
_PATIENCE_MS = 10_000


class Ranges:
    """Readers, each for one call."""

    def __init__(self, library: Library) -> None:
        self._library = library
        #: messages of an average entry, by topic
        self._per_entry: dict[str, float] = {}

    async def per_entry(self, name: str, run: Run) -> float:
        """How many messages an entry holds, as far as they were read; a few are read if none was."""
        if name not in self._per_entry:
            async with aclosing(self._messages(name, run)) as messages:
                async for _ in messages:
                    # The first ones are counted when they arrive, all at once.
                    break
        return self._per_entry.get(name, 1.0)

    async def read(self, lane: Lane, name: str, run: Run, max_bytes: int) -> AsyncGenerator[Chunk, None]:
        """The records of a run, in chunks of at most `max_bytes`, or of one record."""
        positions: list[int] = []
        frames: list[bytes] = []
        size = 0
        async with aclosing(self._messages(name, run)) as messages:
            async for message, position in messages:
                _check(name, message, position)
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
        async with aclosing(self._messages(name, Run(ends.start, ends.end))) as messages:
            async for message, position in messages:
                if (message.event_timestamp() or message.publish_timestamp()) >= timestamp_ms:
                    _check(name, message, position)
                    return position
        return ends.end

    def _count(self, name: str, batch: list[Any]) -> None:
        if batch:
            ids = [message.message_id() for message in batch]
            average = len(ids) / len({(id_.ledger_id(), id_.entry_id()) for id_ in ids})
            before = self._per_entry.get(name, average)
            self._per_entry[name] = before + _WEIGHT * (average - before)

    async def _messages(self, name: str, run: Run) -> AsyncGenerator[tuple[Any, int], None]:
        """With their positions, or -1 for those that have none: they lie within the run, between the others."""
        start, stop = unpack(max(0, run.start)), unpack(run.stop)
        reader = await self._library.reader(name, (start.ledger, start.entry - 1))
        try:
            while True:
                batch: list[Any] = await self._library.run(f"read {name}", _read, reader)
                self._count(name, batch)
                for message in batch:
                    id_ = message.message_id()
                    found = Id(id_.ledger_id(), id_.entry_id(), max(0, id_.batch_index()))
                    if found >= stop:
                        return
                    if found >= start:
                        yield message, pack(*found)
                if not batch:
                    return
        finally:
            await self._library.leave(reader)


def _check(name: str, message: Any, position: int) -> None:
    if position < 0:
        id_ = message.message_id()
        where = f"{id_.ledger_id()}:{id_.entry_id()}:{max(0, id_.batch_index())}"
        raise Refused(
            f"Pulsar: message {where} of {name} has no position, and cannot be read by range: there is room for "
            f"{LIMITS}. A group that consumes by leases gets it"
        )


def _read(reader: Any) -> list[Any]:
    out: list[Any] = []
    while len(out) < _BATCH and reader.has_message_available():
        out.append(reader.read_next(_PATIENCE_MS))
    return out

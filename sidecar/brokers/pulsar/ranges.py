"""Reading without a group, by the library's readers."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from sidecar.brokers.base import LaneEnd
from sidecar.brokers.pulsar.client_threads import ClientThreads
from sidecar.brokers.pulsar.positions import LIMITS, Id, pack, unpack
from sidecar.brokers.pulsar.records import encode_one
from sidecar.model.errors import Refused
from sidecar.model.records import Chunk, Lane, Run

#: messages that one call in a thread reads
_BATCH_RECORDS = 500
#: weight of the newest call in the average number of messages in an entry
_WEIGHT = 0.2
#: milliseconds to wait for a message that the broker says is available
_READ_TIMEOUT_MS = 10_000


class RangeReader:
    """Makes a reader for each call, and learns how many messages an entry holds."""

    def __init__(self, client: ClientThreads) -> None:
        self._client = client
        #: the average number of messages in an entry, by topic
        self._per_entry: dict[str, float] = {}

    async def messages_per_entry(self, name: str, run: Run) -> float:
        """The average number of messages in the entries that were read; reads some of the run if none was."""
        if name not in self._per_entry:
            async with aclosing(self._messages(name, run)) as messages:
                async for _ in messages:
                    # The first call has counted all that it read.
                    break
        return self._per_entry.get(name, 1.0)

    async def read(self, lane: Lane, name: str, run: Run, max_bytes: int) -> AsyncGenerator[Chunk, None]:
        """The records of a run, in chunks of at most `max_bytes` or of one record. Raises `Refused` for a message that
        has no position."""
        positions: list[int] = []
        frames: list[bytes] = []
        size = 0
        async with aclosing(self._messages(name, run)) as messages:
            async for message, position in messages:
                _check_position(name, message, position)
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
        """The first record with this timestamp or a later one; the end if there is none. Reads everything before it:
        Pulsar finds messages only by their publish time."""
        async with aclosing(self._messages(name, Run(ends.start, ends.end))) as messages:
            async for message, position in messages:
                if (message.event_timestamp() or message.publish_timestamp()) >= timestamp_ms:
                    _check_position(name, message, position)
                    return position
        return ends.end

    def _count(self, name: str, batch: list[Any]) -> None:
        if batch:
            ids = [message.message_id() for message in batch]
            average = len(ids) / len({(id_.ledger_id(), id_.entry_id()) for id_ in ids})
            before = self._per_entry.get(name, average)
            self._per_entry[name] = before + _WEIGHT * (average - before)

    async def _messages(self, name: str, run: Run) -> AsyncGenerator[tuple[Any, int], None]:
        """The messages of a run with their positions; -1 for those whose id does not fit."""
        start, stop = unpack(max(0, run.start)), unpack(run.stop)
        reader = await self._client.reader(name, (start.ledger, start.entry - 1))
        try:
            while True:
                batch: list[Any] = await self._client.run(f"read {name}", _read, reader)
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
            await self._client.close_one(reader)


def _check_position(name: str, message: Any, position: int) -> None:
    if position < 0:
        id_ = message.message_id()
        where = f"{id_.ledger_id()}:{id_.entry_id()}:{max(0, id_.batch_index())}"
        raise Refused(
            f"Pulsar: message {where} of {name} has no position, and cannot be read by range: there is room for "
            f"{LIMITS}. A group that consumes by leases gets it"
        )


def _read(reader: Any) -> list[Any]:
    out: list[Any] = []
    while len(out) < _BATCH_RECORDS and reader.has_message_available():
        out.append(reader.read_next(_READ_TIMEOUT_MS))
    return out

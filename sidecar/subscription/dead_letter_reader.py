"""Reads the dead-letter topic of a group: its dead letters, where they are, and what was done with them."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import replace
from typing import NamedTuple

from sidecar.brokers.base import Broker, LaneEnd
from sidecar.core.failures import dead_letter_notes, dead_letter_topic
from sidecar.core.failures.dead_letter_notes import Done
from sidecar.core.failures.dead_letter_topic import DeadLetterEntry
from sidecar.model.errors import NotFound
from sidecar.model.records import Chunk, Lane, Run
from sidecar.model.run_set import RunSet
from sidecar.model.wire import decode_frame
from sidecar.settings import SubscriptionSettings

_READ_BYTES = 1 << 20
#: one read of the tail: the limits of records and bytes, and how many times further back each next read starts
_TAIL_RECORDS, _TAIL_BYTES, _TAIL_FACTOR = 1_000, 4 << 20, 16


class Found(NamedTuple):
    """A dead letter, and where in its topic it is."""

    lane: Lane
    position: int
    letter: DeadLetterEntry


async def read_all(broker: Broker, settings: SubscriptionSettings) -> AsyncIterator[Found]:
    """The dead letters of the group that are not deleted, lane by lane.

    The topic is read twice: the notes on a dead letter come after it, and there may be too many to keep.
    """
    try:
        ends = await broker.lane_ends(settings.dead_letter_topic)
    except NotFound:
        return
    for lane, end in ends.items():
        run = Run(end.start, end.end)
        done = _DoneBefore(settings.group_name)
        async for chunk in broker.read(lane, run, _READ_BYTES):
            for _ in done.letters_in(chunk):
                pass
        async for chunk in broker.read(lane, run, _READ_BYTES):
            for found in done.letters_in(chunk):
                if found.position not in done.deleted:
                    yield done.mark(found)


async def newest_of(broker: Broker, lane: Lane, end: LaneEnd, group: str, limit: int) -> list[DeadLetterEntry]:
    """The newest of one lane that are not deleted, oldest first. Reads only its end, and a limited amount."""
    own: list[DeadLetterEntry] = []
    length, start = limit, end.end
    while len(own) < limit and start > end.start:
        start = max(end.start, end.end - length)
        letters, whole = await _some(broker, lane, Run(start, end.end), group)
        if whole:
            own = letters
            if length < limit:
                break
            # Positions may not count records, or others write to the topic too: read further back.
            length *= _TAIL_FACTOR
        elif 1 < length <= limit:
            # Too large, and these are the oldest ones: read fewer from the end.
            length, start = length // 2, end.end
        else:
            break
    return own


class _DoneBefore:
    """What the notes of one lane say that was done with dead letters of a group."""

    def __init__(self, group: str) -> None:
        self._group = group
        self.deleted = RunSet()
        self._redriven = RunSet()

    def letters_in(self, chunk: Chunk) -> Iterator[Found]:
        """The dead letters of the group in a chunk, also those that are deleted. Remembers its notes."""
        for position, frame in zip(chunk.positions, chunk.frames, strict=True):
            record = decode_frame(frame)
            letter = dead_letter_topic.read(record)
            if letter is not None:
                if letter.group == self._group:
                    yield Found(chunk.lane, position, letter)
                continue
            note = dead_letter_notes.read(record)
            if note is not None and note.group == self._group:
                noted = self.deleted if note.done is Done.DELETED else self._redriven
                for run in note.runs:
                    noted.add(run)

    def mark(self, found: Found) -> Found:
        if found.position not in self._redriven:
            return found
        return found._replace(letter=replace(found.letter, redriven=True))


async def _some(broker: Broker, lane: Lane, run: Run, group: str) -> tuple[list[DeadLetterEntry], bool]:
    """The first dead letters of the group in a run, and whether these are all: then all notes on them were read."""
    letters: list[Found] = []
    done = _DoneBefore(group)
    seen = size = 0
    whole = True
    reading = broker.read(lane, run, _READ_BYTES)
    try:
        async for chunk in reading:
            letters += done.letters_in(chunk)
            seen += len(chunk.frames)
            size += sum(map(len, chunk.frames))
            if (seen >= _TAIL_RECORDS or size >= _TAIL_BYTES) and chunk.positions[-1] + 1 < run.stop:
                whole = False
                break
    finally:
        # Frees its connections now, not at the next garbage collection.
        if isinstance(reading, AsyncGenerator):
            await reading.aclose()
    return [done.mark(found).letter for found in letters if found.position not in done.deleted], whole

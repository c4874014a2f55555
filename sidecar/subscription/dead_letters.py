"""The dead letters of a group, as operators see them: listed, and sent back."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable
from dataclasses import replace

from sidecar.brokers.base import Broker, LaneEnd
from sidecar.core.failures import retry_topic
from sidecar.core.failures.dead_letter_topic import DeadLetterEntry, read
from sidecar.model.errors import NotFound
from sidecar.model.records import Lane, Message, Record, Run
from sidecar.model.wire import decode_frame, encode_frame
from sidecar.settings import SubscriptionSettings

_READ_BYTES = 1 << 20
#: records and bytes that are sent back in one write
_REDRIVE_BATCH, _REDRIVE_BYTES = 500, 1 << 20
#: records and bytes of a listing that are read beyond its limit before those that will not be in it are dropped
_READ_AHEAD, _READ_AHEAD_BYTES = 1_000, 4 << 20
#: of a look at the newest: records and bytes that are read at the most, and by how much further back each look goes
_LOOK_AT, _LOOK_BYTES, _FURTHER = 1_000, 4 << 20, 16


async def list_dead_letters(
    broker: Broker,
    settings: SubscriptionSettings,
    *,
    limit: int = 0,
    ids: Collection[str] = (),
    payloads: bool = True,
) -> list[DeadLetterEntry]:
    """Dead letters of the subscription's group, oldest first. `limit` = 0: all. `ids`: only these. Without `payloads`
    they have no key, no value and no headers.

    One that was written twice, because its write and the commit are not one step, is listed once.
    """
    found: dict[str, DeadLetterEntry] = {}
    ahead = 0
    async for letter in _all(broker, settings):
        if letter.id in found or (ids and letter.id not in ids):
            continue
        found[letter.id] = letter if payloads else replace(letter, record=_bare(letter.record))
        ahead += _size(found[letter.id].record)
        if limit and (len(found) > 2 * limit + _READ_AHEAD or (len(found) > limit and ahead > _READ_AHEAD_BYTES)):
            # There may be millions: only the oldest so far can be among the oldest in the end.
            found = {letter.id: letter for letter in _oldest_first(found.values())[:limit]}
            ahead = 0
    letters = _oldest_first(found.values())
    return letters[:limit] if limit else letters


async def newest(broker: Broker, settings: SubscriptionSettings, *, limit: int) -> tuple[list[DeadLetterEntry], int]:
    """The newest dead letters of the subscription's group, newest first, and how many records their topic has (-1: not
    known). Reads the ends of the lanes only, and never much: of a topic that others write to it may miss some.
    """
    try:
        ends = await broker.lane_ends(settings.dead_letter_topic)
    except NotFound:
        return [], 0
    found: dict[str, DeadLetterEntry] = {}
    for lane, end in ends.items():
        letters = await _newest_of(broker, lane, end, settings.group_name, limit)
        found |= {letter.id: letter for letter in letters}
    counts = broker.traits.positions_count_records
    total = sum(end.end - end.start for end in ends.values()) if counts else -1
    return _oldest_first(found.values())[::-1][:limit], total


async def redrive(broker: Broker, settings: SubscriptionSettings, *, ids: Collection[str], wall_ms: int) -> list[str]:
    """Send dead letters back to this group alone, through its retry topic. Answers the ids; `ids` empty: all.

    In the order in which they stand in their topic, a few at a time: there may be millions. Raises what
    `Broker.publish` raises; what was sent before the error is on its way.
    """
    await broker.ensure_topic(settings.retry_topic, settings.parking.lanes)
    # One that was written twice is sent once.
    sent: dict[str, None] = {}
    waiting: list[Message] = []
    size = 0
    async for letter in _all(broker, settings):
        if letter.id in sent or (ids and letter.id not in ids):
            continue
        sent[letter.id] = None
        waiting.append(retry_topic.redriven(_frame(letter.record), letter.topic, wall_ms=wall_ms))
        size += _size(letter.record)
        if len(waiting) == _REDRIVE_BATCH or size >= _REDRIVE_BYTES:
            await broker.publish(settings.retry_topic, waiting)
            waiting, size = [], 0
    if waiting:
        await broker.publish(settings.retry_topic, waiting)
    return list(sent)


def _oldest_first(letters: Iterable[DeadLetterEntry]) -> list[DeadLetterEntry]:
    return sorted(letters, key=lambda letter: (letter.dead_lettered_ms, letter.id))


def _bare(record: Record) -> Record:
    return Record(None, None, (), record.lane, record.position, record.timestamp_ms, record.ref)


def _size(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _frame(record: Record) -> bytes:
    return encode_frame(
        record.key, record.value, record.headers, record.lane, record.position, record.timestamp_ms, record.ref
    )


async def _all(broker: Broker, settings: SubscriptionSettings) -> AsyncIterator[DeadLetterEntry]:
    try:
        ends = await broker.lane_ends(settings.dead_letter_topic)
    except NotFound:
        return
    for lane, end in ends.items():
        async for chunk in broker.read(lane, Run(end.start, end.end), _READ_BYTES):
            for frame in chunk.frames:
                letter = read(decode_frame(frame))
                if letter is not None and letter.group == settings.group_name:
                    yield letter


async def _newest_of(broker: Broker, lane: Lane, end: LaneEnd, group: str, limit: int) -> list[DeadLetterEntry]:
    """Of the end of one lane; oldest first."""
    own: list[DeadLetterEntry] = []
    slice_, start = limit, end.end
    while len(own) < limit and start > end.start:
        start = max(end.start, end.end - slice_)
        letters, whole = await _some(broker, lane, Run(start, end.end))
        if whole:
            own = [letter for letter in letters if letter.group == group]
            if slice_ < limit:
                break
            # Where positions do not count records, or others write here too, one must look further back.
            slice_ *= _FURTHER
        elif 1 < slice_ <= limit:
            # These are the oldest of them, and too large: the newest are fewer.
            slice_, start = slice_ // 2, end.end
        else:
            break
    return own


async def _some(broker: Broker, lane: Lane, run: Run) -> tuple[list[DeadLetterEntry], bool]:
    """The first dead letters of a run, whoever's they are, and whether they are all."""
    letters: list[DeadLetterEntry] = []
    seen = size = 0
    reading = broker.read(lane, run, _READ_BYTES)
    try:
        async for chunk in reading:
            for frame in chunk.frames:
                seen += 1
                size += len(frame)
                letter = read(decode_frame(frame))
                if letter is not None:
                    letters.append(letter)
            if (seen >= _LOOK_AT or size >= _LOOK_BYTES) and chunk.positions[-1] + 1 < run.stop:
                return letters, False
    finally:
        # What it reads with is to be freed now, not when somebody collects the garbage.
        if isinstance(reading, AsyncGenerator):
            await reading.aclose()
    return letters, True

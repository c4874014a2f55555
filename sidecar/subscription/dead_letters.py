"""Lists the dead letters of a group and sends them back, for operators.

`sidecar.core.failures.dead_letter_topic` has their format.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Mapping
from dataclasses import replace

from sidecar.brokers.base import Broker, LaneEnd
from sidecar.core.failures import retry_topic
from sidecar.core.failures.dead_letter_topic import DeadLetterEntry, Identity, read
from sidecar.model.errors import NotFound
from sidecar.model.records import Lane, Message, Record, Run
from sidecar.model.wire import decode_frame
from sidecar.settings import SubscriptionSettings

_READ_BYTES = 1 << 20
#: records and bytes that are sent back in one write
_REDRIVE_BATCH, _REDRIVE_BYTES = 500, 1 << 20
#: records and bytes of a listing that are kept beyond its limit before the newest are dropped
_READ_AHEAD, _READ_AHEAD_BYTES = 1_000, 4 << 20
#: one read for `newest`: the limits of records and bytes, and how many times further back each next read starts
_TAIL_RECORDS, _TAIL_BYTES, _TAIL_FACTOR = 1_000, 4 << 20, 16


async def list_dead_letters(
    broker: Broker,
    settings: SubscriptionSettings,
    *,
    limit: int = 0,
    ids: Collection[str] = (),
    payloads: bool = True,
) -> list[DeadLetterEntry]:
    """Dead letters of the subscription's group, by when they died first. `limit` = 0: all. `ids`: only these. Without
    `payloads` they have no key, no value and no headers.

    One that was written twice, because the write and the commit are not atomic, or because it died again after it was
    sent back, is listed once, as it was written last.
    """
    #: when each died first, its id, and what was written last
    found: dict[Identity, tuple[int, str, DeadLetterEntry]] = {}
    ahead = 0
    async for letter in _all(broker, settings):
        if ids and letter.id not in ids:
            continue
        died, _, before = found.get(letter.identity, (letter.dead_lettered_ms, "", letter))
        if letter.dead_lettered_ms < before.dead_lettered_ms:
            continue
        kept = letter if payloads else replace(letter, record=_bare(letter.record))
        found[letter.identity] = died, letter.id, kept
        ahead += _size(kept.record)
        if limit and (len(found) > 2 * limit + _READ_AHEAD or (len(found) > limit and ahead > _READ_AHEAD_BYTES)):
            # There may be millions: only the oldest so far can be in the result.
            found = dict(_first_dead_first(found)[:limit])
            ahead = 0
    return [letter for _, (_, _, letter) in _first_dead_first(found)[: limit or None]]


async def newest(broker: Broker, settings: SubscriptionSettings, *, limit: int) -> tuple[list[DeadLetterEntry], int]:
    """The newest dead letters of the subscription's group, newest first, and the number of records in their topic (-1:
    not known). Reads only the ends of the lanes, and a limited amount: if others write to the topic it may miss some.
    """
    try:
        ends = await broker.lane_ends(settings.dead_letter_topic)
    except NotFound:
        return [], 0
    found: dict[Identity, DeadLetterEntry] = {}
    for lane, end in ends.items():
        letters = await _newest_of(broker, lane, end, settings.group_name, limit)
        found |= {letter.identity: letter for letter in letters}
    counts = broker.traits.positions_count_records
    total = sum(end.end - end.start for end in ends.values()) if counts else -1
    return _oldest_first(found.values())[::-1][:limit], total


async def redrive(broker: Broker, settings: SubscriptionSettings, *, ids: Collection[str], wall_ms: int) -> list[str]:
    """Send dead letters back to this group alone, through its retry topic. `ids` empty: all. Returns their ids.

    In the order of their topic, in batches: there may be millions. Raises what `Broker.publish` raises; dead letters
    that were sent before the error stay sent.
    """
    await broker.ensure_topic(settings.retry_topic, settings.parking.lanes)
    # One that was written twice is sent back once.
    sent: dict[Identity, str] = {}
    waiting: list[Message] = []
    size = 0
    async for letter in _all(broker, settings):
        if letter.identity in sent or (ids and letter.id not in ids):
            continue
        sent[letter.identity] = letter.id
        waiting.append(retry_topic.redriven(letter.record, letter.topic, letter.topic_id, wall_ms=wall_ms))
        size += _size(letter.record)
        if len(waiting) == _REDRIVE_BATCH or size >= _REDRIVE_BYTES:
            await broker.publish(settings.retry_topic, waiting)
            waiting, size = [], 0
    if waiting:
        await broker.publish(settings.retry_topic, waiting)
    return [*sent.values()]


def _first_dead_first(
    found: Mapping[Identity, tuple[int, str, DeadLetterEntry]],
) -> list[tuple[Identity, tuple[int, str, DeadLetterEntry]]]:
    return sorted(found.items(), key=lambda item: item[1][:2])


def _oldest_first(letters: Iterable[DeadLetterEntry]) -> list[DeadLetterEntry]:
    return sorted(letters, key=lambda letter: (letter.dead_lettered_ms, letter.id))


def _bare(record: Record) -> Record:
    return Record(None, None, (), record.lane, record.position, record.timestamp_ms, record.ref)


def _size(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


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
    """The newest of one lane, oldest first."""
    own: list[DeadLetterEntry] = []
    length, start = limit, end.end
    while len(own) < limit and start > end.start:
        start = max(end.start, end.end - length)
        letters, whole = await _some(broker, lane, Run(start, end.end))
        if whole:
            own = [letter for letter in letters if letter.group == group]
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


async def _some(broker: Broker, lane: Lane, run: Run) -> tuple[list[DeadLetterEntry], bool]:
    """The first dead letters of a run, of all groups, and whether these are all."""
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
            if (seen >= _TAIL_RECORDS or size >= _TAIL_BYTES) and chunk.positions[-1] + 1 < run.stop:
                return letters, False
    finally:
        # Frees its connections now, not at the next garbage collection.
        if isinstance(reading, AsyncGenerator):
            await reading.aclose()
    return letters, True

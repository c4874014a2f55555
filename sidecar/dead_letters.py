"""Records that failed for good: how they are written, listed and sent back."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sidecar import parking
from sidecar.brokers.base import Broker, LaneEnd
from sidecar.errors import NotFound
from sidecar.model import Header, Lane, Message, Record, Run
from sidecar.settings import SubscriptionSettings
from sidecar.spans import Span
from sidecar.wire import decode_frame, encode_frame

#: a dead letter carries these headers, in this order, after its own
HEADERS = (
    "offramp-id",
    "offramp-topic",
    "offramp-lane",
    "offramp-position",
    "offramp-ref",
    "offramp-timestamp-ms",
    "offramp-group",
    "offramp-reason",
    "offramp-attempts",
    "offramp-worker",
    "offramp-dead-lettered-ms",
    "offramp-dead-lettered-at",
)
_READ_BYTES = 1 << 20
#: records and bytes that are sent back in one write
_REDRIVE_BATCH, _REDRIVE_BYTES = 500, 1 << 20
#: records and bytes of a listing that are read beyond its limit before those that will not be in it are dropped
_READ_AHEAD, _READ_AHEAD_BYTES = 1_000, 4 << 20
#: the first millisecond that is no date any more
_LAST_MS = 253_402_300_800_000
#: of a look at the newest: records and bytes that are read at the most, and by how much further back each look goes
_LOOK_AT, _LOOK_BYTES, _FURTHER = 1_000, 4 << 20, 16


@dataclass(frozen=True, slots=True)
class DeadLetter:
    #: `topic/lane/position` of the origin: stable, however often it was written
    id: str
    topic: str
    #: as it was in its own topic
    record: Record
    group: str
    reason: str
    attempts: int
    worker: str
    dead_lettered_ms: int


def write(span: Span, *, group: str, reason: str, worker: str, wall_ms: int) -> Message:
    """A single record as it is written to the dead-letter topic."""
    record = decode_frame(span.chunk.frames[span.start])
    topic = span.chunk.shown.topic
    values = (
        f"{topic}/{record.lane}/{record.position}",
        topic,
        record.lane,
        record.position,
        record.ref.hex(),
        record.timestamp_ms,
        group,
        reason,
        max(1, span.history.failures),
        worker,
        wall_ms,
        datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds"),
    )
    said = tuple(Header(name, str(value).encode()) for name, value in zip(HEADERS, values, strict=True))
    return Message(record.key, record.value, (*record.headers, *said), aside=True)


def read(record: Record) -> DeadLetter | None:
    """What a record of the dead-letter topic says; None if Offramp did not write it."""
    said = record.headers[-len(HEADERS) :]
    if tuple(header.name for header in said) != HEADERS:
        return None
    try:
        id_, topic, lane, position, ref, timestamp_ms, group, reason, attempts, worker, wall_ms, _ = (
            (header.value or b"").decode() for header in said
        )
        original = Record(
            record.key,
            record.value,
            record.headers[: -len(HEADERS)],
            _number(lane, 1 << 32),
            _number(position),
            _number(timestamp_ms),
            bytes.fromhex(ref),
        )
        wall = _number(wall_ms, _LAST_MS)
        return DeadLetter(id_, topic, original, group, reason, _number(attempts, 1 << 32), worker, wall)
    except ValueError:
        return None


async def list_dead_letters(
    broker: Broker,
    settings: SubscriptionSettings,
    *,
    limit: int = 0,
    ids: Collection[str] = (),
    payloads: bool = True,
) -> list[DeadLetter]:
    """Dead letters of the subscription's group, oldest first. `limit` = 0: all. `ids`: only these. Without `payloads`
    they have no key, no value and no headers.

    One that was written twice, because its write and the commit are not one step, is listed once.
    """
    found: dict[str, DeadLetter] = {}
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


async def newest(broker: Broker, settings: SubscriptionSettings, *, limit: int) -> tuple[list[DeadLetter], int]:
    """The newest dead letters of the subscription's group, newest first, and how many records their topic has (-1: not
    known). Reads the ends of the lanes only, and never much: of a topic that others write to it may miss some.
    """
    try:
        ends = await broker.lane_ends(settings.dead_letter_topic)
    except NotFound:
        return [], 0
    found: dict[str, DeadLetter] = {}
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
        waiting.append(parking.redriven(_frame(letter.record), letter.topic, wall_ms=wall_ms))
        size += _size(letter.record)
        if len(waiting) == _REDRIVE_BATCH or size >= _REDRIVE_BYTES:
            await broker.publish(settings.retry_topic, waiting)
            waiting, size = [], 0
    if waiting:
        await broker.publish(settings.retry_topic, waiting)
    return list(sent)


def _number(text: str, limit: int = 1 << 63) -> int:
    number = int(text)
    if not 0 <= number < limit:
        raise ValueError(text)
    return number


def _oldest_first(letters: Iterable[DeadLetter]) -> list[DeadLetter]:
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


async def _all(broker: Broker, settings: SubscriptionSettings) -> AsyncIterator[DeadLetter]:
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


async def _newest_of(broker: Broker, lane: Lane, end: LaneEnd, group: str, limit: int) -> list[DeadLetter]:
    """Of the end of one lane; oldest first."""
    own: list[DeadLetter] = []
    span, start = limit, end.end
    while len(own) < limit and start > end.start:
        start = max(end.start, end.end - span)
        letters, whole = await _some(broker, lane, Run(start, end.end))
        if whole:
            own = [letter for letter in letters if letter.group == group]
            if span < limit:
                break
            # Where positions do not count records, or others write here too, one must look further back.
            span *= _FURTHER
        elif 1 < span <= limit:
            # These are the oldest of them, and too large: the newest are fewer.
            span, start = span // 2, end.end
        else:
            break
    return own


async def _some(broker: Broker, lane: Lane, run: Run) -> tuple[list[DeadLetter], bool]:
    """The first dead letters of a run, whoever's they are, and whether they are all."""
    letters: list[DeadLetter] = []
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

"""Lists the dead letters of a group, sends them back and deletes them, for operators.

`sidecar.core.failures.dead_letter_topic` has their format. They stay in their topic, which no broker lets change; what
was done with them is noted there (`sidecar.core.failures.dead_letter_notes`).
"""

import base64
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from sidecar.brokers.base import Broker
from sidecar.core.failures import dead_letter_notes, retry_topic
from sidecar.core.failures.dead_letter_notes import Done, Note
from sidecar.core.failures.dead_letter_topic import DeadLetterEntry, Identity
from sidecar.model.errors import InvalidRequest, NotFound
from sidecar.model.records import Lane, Message, Record, Run
from sidecar.settings import SubscriptionSettings
from sidecar.subscription.dead_letter_reader import Found, newest_of, read_all

#: dead letters and bytes that are sent back in one write, and dead letters of one note
_BATCH, _BATCH_BYTES = 500, 1 << 20
#: records and bytes of a listing that are kept beyond its limit before the newest are dropped
_READ_AHEAD, _READ_AHEAD_BYTES = 1_000, 4 << 20


@dataclass(frozen=True, slots=True)
class Filter:
    """Which dead letters are meant: those that meet all conditions. A record that died more than once is one for each
    time."""

    #: empty: any
    ids: frozenset[str] = frozenset()
    #: a part of the reason
    reason: str = ""
    #: when it died, in milliseconds since 1970: from `since_ms` on, before `until_ms`; 0: any time
    since_ms: int = 0
    until_ms: int = 0

    def takes(self, letter: DeadLetterEntry) -> bool:
        return (
            (not self.ids or letter.id in self.ids)
            and self.reason in letter.reason
            and self.since_ms <= letter.dead_lettered_ms
            and (not self.until_ms or letter.dead_lettered_ms < self.until_ms)
        )


EVERYTHING = Filter()


class Page(NamedTuple):
    letters: list[DeadLetterEntry]
    #: where the next page begins; empty if this is the last one
    next: str


class Progress(NamedTuple):
    """What `redrive` or `delete` has come to."""

    #: of the dead letters of this step
    ids: list[str]
    #: so many were left out so far, because they were redriven before
    skipped: int = 0


#: the place of a dead letter in the listing: when it died first, its id, and what tells it from others with that id
_Order = tuple[int, str, int, str]
_NOWHERE: _Order = (-1, "", 0, "")


async def list_dead_letters(
    broker: Broker,
    settings: SubscriptionSettings,
    *,
    limit: int = 0,
    which: Filter = EVERYTHING,
    page: str = "",
    payloads: bool = True,
) -> Page:
    """Dead letters of the subscription's group, by when they died first. `limit` = 0: all. `page`: as the page before
    said. Without `payloads` they have no key, no value and no headers. Raises `InvalidRequest` for a page that is none.

    One that was written twice, because the write and the commit are not atomic, or because it died again after it was
    sent back, is listed once, as it was written last.
    """
    after = _read_page(page)
    #: where each is in the listing, and what was written last
    found: dict[Identity, tuple[_Order, DeadLetterEntry]] = {}
    #: on earlier pages, even if they have died again since
    earlier: set[Identity] = set()
    ahead = 0
    async for _, _, letter in read_all(broker, settings):
        if not which.takes(letter):
            continue
        order, before = found.get(letter.identity, (_order(letter), letter))
        if order <= after:
            earlier.add(letter.identity)
        if letter.identity in earlier or letter.dead_lettered_ms < before.dead_lettered_ms:
            continue
        kept = letter if payloads else replace(letter, record=_bare(letter.record))
        found[letter.identity] = order, kept
        ahead += _size(kept.record)
        if limit and (len(found) > 2 * limit + _READ_AHEAD or (len(found) > limit + 1 and ahead > _READ_AHEAD_BYTES)):
            # There may be millions: only the oldest so far can be in the result, and whether there are more.
            found = dict(_first_dead_first(found)[: limit + 1])
            ahead = 0
    listed = _first_dead_first(found)
    last = listed[limit - 1][1][0] if limit and len(listed) > limit else None
    return Page([letter for _, (_, letter) in listed[: limit or None]], _write_page(last) if last else "")


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
        letters = await newest_of(broker, lane, end, settings.group_name, limit)
        found |= {letter.identity: letter for letter in letters}
    counts = broker.traits.positions_count_records
    total = sum(end.end - end.start for end in ends.values()) if counts else -1
    return _oldest_first(found.values())[::-1][:limit], total


async def redrive(
    broker: Broker,
    settings: SubscriptionSettings,
    *,
    which: Filter = EVERYTHING,
    again: bool = False,
    wall_ms: int,
) -> AsyncIterator[Progress]:
    """Send dead letters back to this group alone, through its retry topic. Yields after each batch, and at the end.

    Those that were sent back before, and have not died again since, are left out unless `again`. In the order of their
    topic, in batches: there may be millions. Raises what `Broker.publish` raises; what was sent before the error stays
    sent, and is noted but for the last batch, so that another call continues where this one stopped.
    """
    await broker.ensure_topic(settings.retry_topic, settings.parking.lanes)
    notes = _Notes(broker, settings, Done.REDRIVEN, wall_ms)
    # One that was written twice is sent back once.
    sent: set[Identity] = set()
    skipped: set[Identity] = set()
    ids: list[str] = []
    waiting: list[Message] = []
    size = 0

    async def flush() -> Progress:
        if waiting:
            await broker.publish(settings.retry_topic, waiting)
        await notes.write()
        return Progress(ids, len(skipped))

    async for found in read_all(broker, settings):
        letter = found.letter
        if not which.takes(letter):
            notes.left_one_out()
            continue
        if letter.redriven and not again:
            if letter.identity not in sent:
                skipped.add(letter.identity)
            continue
        notes.add(found)
        if letter.identity not in sent:
            sent.add(letter.identity)
            skipped.discard(letter.identity)
            ids.append(letter.id)
            waiting.append(retry_topic.redriven(letter.record, letter.topic, letter.topic_id, wall_ms=wall_ms))
            size += _size(letter.record)
        if notes.count >= _BATCH or size >= _BATCH_BYTES:
            yield await flush()
            ids, waiting, size = [], [], 0
    yield await flush()


async def delete(
    broker: Broker, settings: SubscriptionSettings, *, which: Filter, wall_ms: int
) -> AsyncIterator[Progress]:
    """Note that dead letters are deleted: they are neither listed nor sent back any more. Yields after each batch.

    One that dies again is there again. Raises what `Broker.publish` raises; what was noted before stays noted.
    """
    notes = _Notes(broker, settings, Done.DELETED, wall_ms)
    deleted: set[Identity] = set()
    ids: list[str] = []
    async for found in read_all(broker, settings):
        if not which.takes(found.letter):
            notes.left_one_out()
            continue
        notes.add(found)
        if found.letter.identity not in deleted:
            deleted.add(found.letter.identity)
            ids.append(found.letter.id)
        if notes.count >= _BATCH:
            await notes.write()
            yield Progress(ids)
            ids = []
    await notes.write()
    yield Progress(ids)


class _Notes:
    """Collects where dead letters are with which something was done, and writes it down."""

    def __init__(self, broker: Broker, settings: SubscriptionSettings, done: Done, wall_ms: int) -> None:
        self._broker = broker
        self._settings = settings
        self._done = done
        self._wall_ms = wall_ms
        self._runs: dict[Lane, list[Run]] = {}
        #: the last dead letter of the lane was added, so that the next continues its run
        self._together = False
        self.count = 0

    def add(self, found: Found) -> None:
        runs = self._runs.setdefault(found.lane, [])
        if runs and self._together:
            # What lies between is no dead letter of the group.
            runs[-1] = runs[-1]._replace(stop=found.position + 1)
        else:
            runs.append(Run(found.position, found.position + 1))
        self._together = True
        self.count += 1

    def left_one_out(self) -> None:
        self._together = False

    async def write(self) -> None:
        runs, self._runs, self.count, self._together = self._runs, {}, 0, False
        for lane, its in runs.items():
            note = Note(self._settings.group_name, self._done, tuple(its), self._wall_ms)
            await self._broker.publish(self._settings.dead_letter_topic, [dead_letter_notes.write(note, lane.number)])


def _order(letter: DeadLetterEntry) -> _Order:
    return letter.dead_lettered_ms, letter.id, letter.record.timestamp_ms, letter.record.ref.hex()


def _write_page(order: _Order) -> str:
    return base64.urlsafe_b64encode(json.dumps(order).encode()).decode()


def _read_page(page: str) -> _Order:
    if not page:
        return _NOWHERE
    try:
        died, id_, timestamp_ms, ref = json.loads(base64.urlsafe_b64decode(page))
        return int(died), str(id_), int(timestamp_ms), str(ref)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidRequest(f'page: "{page}" is not one that a listing has returned') from error


def _first_dead_first(
    found: Mapping[Identity, tuple[_Order, DeadLetterEntry]],
) -> list[tuple[Identity, tuple[_Order, DeadLetterEntry]]]:
    return sorted(found.items(), key=lambda item: item[1][0])


def _oldest_first(letters: Iterable[DeadLetterEntry]) -> list[DeadLetterEntry]:
    return sorted(letters, key=lambda letter: (letter.dead_lettered_ms, letter.id))


def _bare(record: Record) -> Record:
    return Record(None, None, (), record.lane, record.position, record.timestamp_ms, record.ref)


def _size(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers

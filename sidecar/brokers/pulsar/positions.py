"""Message ids as positions, and counting entries between positions. Pure.

The id of a message is (ledger, entry, index in its batch). The core knows positions as ascending 63-bit numbers, so the
three are packed into one, ledger first: positions then compare as ids do, across ledgers, entries and batches, and mean
the same to every sidecar and after every restart.

The widths follow from Pulsar's own limits. Ledger ids are counted by the whole cluster, one for each ledger of a topic
or a cursor; a ledger is closed after 50,000 entries, but not before ten minutes have passed; a batch has at most 1,000
messages unless the producer says otherwise. An id that does not fit has no position of its own: its message is consumed
all the same, at the next free position (see `unacked`), but it cannot be sought or read by position.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sidecar.model.records import Run

LEDGER_BITS, ENTRY_BITS, BATCH_BITS = 30, 22, 11
_LEDGERS, _ENTRIES, _BATCH = 1 << LEDGER_BITS, 1 << ENTRY_BITS, 1 << BATCH_BITS
_LEDGER_SHIFT = ENTRY_BITS + BATCH_BITS
#: the limits in words, for error messages
LIMITS = f"{_BATCH:,} messages in a batch, {_ENTRIES:,} entries in a ledger, {_LEDGERS:,} ledgers"


class Id(NamedTuple):
    """The id of a message. `place` is its index in the batch, 0 for a message that is not in a batch."""

    ledger: int
    entry: int
    place: int = 0


def pack(ledger: int, entry: int, index: int = 0) -> int:
    """The position of an id, or -1 if it does not fit. Pulsar's -1 for "not in a batch" counts as index 0."""
    index = max(0, index)
    if not (0 <= ledger < _LEDGERS and 0 <= entry < _ENTRIES and index < _BATCH):
        return -1
    return ledger << _LEDGER_SHIFT | entry << BATCH_BITS | index


def unpack(position: int) -> Id:
    """The id at a position."""
    entry = position >> BATCH_BITS & _ENTRIES - 1
    return Id(position >> _LEDGER_SHIFT, entry, position & _BATCH - 1)


def end(ledger: int, entry: int, index: int) -> int:
    """The end of a lane whose last message has this id; -1 if it does not fit."""
    position = pack(ledger, entry, index)
    # If only the index does not fit, the lane ends after the entry.
    return position + 1 if position >= 0 else pack(ledger, entry + 1)


def after(ledger: int, entry: int) -> int:
    """The first position after an entry; entry -1 is the one before the first of its ledger. 0, which is before every
    message, if it does not fit."""
    return max(0, pack(ledger, entry + 1))


@dataclass(frozen=True, slots=True)
class EntryCounter:
    """Estimates how many records wait in a run: a `RangeEstimate` of the adapter contract.

    The distance of two positions says nothing. But Pulsar tells how many entries each ledger has, and the average
    number of messages in an entry is known from those that were read.
    """

    run: Run
    #: ids of ledgers with the number of their entries, in order
    ledgers: tuple[tuple[int, int], ...]
    #: the average number of messages in an entry
    per_entry: float

    @property
    def records(self) -> int:
        if self.run.start >= self.run.stop:
            return 0
        start, stop = unpack(self.run.start), unpack(self.run.stop)
        if start[:2] == stop[:2]:
            return stop.place - start.place
        # At least the rest of the first entry.
        return max(1, round(sum(last - first for _, first, last in self._entries()) * self.per_entry))

    def position_after(self, records: int) -> int:
        start, stop = unpack(self.run.start), unpack(self.run.stop)
        if start[:2] == stop[:2]:
            return min(self.run.start + records, self.run.stop)
        if records >= self.records:
            return self.run.stop
        left = max(1, int(records / self.per_entry))
        for ledger, first, last in self._entries():
            if left <= last - first:
                return min(pack(ledger, first + left), self.run.stop)
            left -= last - first
        return self.run.stop

    def _entries(self) -> Iterator[tuple[int, int, int]]:
        """By ledger, the entries of the run: the first that is whole, and the one after the last."""
        start, stop = unpack(self.run.start), unpack(self.run.stop)
        for ledger, entries in self.ledgers:
            first = start.entry + (1 if start.place else 0) if ledger == start.ledger else 0
            last = min(entries, stop.entry + (1 if stop.place else 0)) if ledger == stop.ledger else entries
            if start.ledger <= ledger <= stop.ledger and first < last:
                yield ledger, first, last


def next_entry(position: int, ledgers: Sequence[tuple[int, int]]) -> int:
    """The same position for all that lie between two entries, such as the end of a ledger and the start of the next:
    the start of the later entry. Pulsar's cursor may be at any of them. After the last entry, the position itself."""
    ledger, entry, _ = unpack(position)
    for one, entries in ledgers:
        if one == ledger and entry < entries:
            break
        if one > ledger and entries:
            return pack(one, 0)
    return position


def cursor_entry(position: int, ledgers: Sequence[tuple[int, int]]) -> Id | None:
    """The entry at which Pulsar's cursor waits for a reader that is at a position; None if there is no entry at all.

    It is the entry that is read next. But for a reader at the end of a ledger, it is the last entry of that ledger:
    Pulsar removes ledgers that every cursor has left, and with this one would go the only proof that nothing was lost
    between the position and the next ledger.
    """
    ledger, entry, _ = unpack(position)
    filled = [(one, entries) for one, entries in ledgers if entries]
    before = [(one, entries) for one, entries in filled if one <= ledger]
    if not before:
        return Id(filled[0][0], 0) if filled else None
    last, entries = before[-1]
    return Id(last, min(entry, entries - 1) if last == ledger else entries - 1)

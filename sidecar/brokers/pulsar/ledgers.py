"""Counting from one position of a lane to another. Pure.

Positions are made of ledger, entry and place in a batch, so that their distance says nothing. But Pulsar tells how many
entries each ledger has, and how many messages an entry holds is known from those that were read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sidecar.brokers.pulsar.positions import Id, pack, unpack
from sidecar.model.records import Run


@dataclass(frozen=True, slots=True)
class Ledgers:
    """What waits in a run: a `Stretch` of the adapter contract."""

    run: Run
    #: ids and numbers of entries, in order
    ledgers: tuple[tuple[int, int], ...]
    #: messages of an average entry
    per_entry: float

    @property
    def records(self) -> int:
        if self.run.start >= self.run.stop:
            return 0
        start, stop = unpack(self.run.start), unpack(self.run.stop)
        if start[:2] == stop[:2]:
            return stop.place - start.place
        # At least the rest of the first entry.
        return max(1, round(self._entries() * self.per_entry))

    def position_after(self, records: int) -> int:
        start, stop = unpack(self.run.start), unpack(self.run.stop)
        if start[:2] == stop[:2]:
            return min(self.run.start + records, self.run.stop)
        if records >= self.records:
            return self.run.stop
        left = max(1, int(records / self.per_entry))
        first = start.entry + (1 if start.place else 0)
        for ledger, entries in self.ledgers:
            if ledger < start.ledger:
                continue
            if left <= entries - first:
                return min(pack(ledger, first + left), self.run.stop)
            left -= max(0, entries - first)
            first = 0
        return self.run.stop

    def _entries(self) -> int:
        """Whole entries from the start on."""
        start, stop = unpack(self.run.start), unpack(self.run.stop)
        count = 0
        for ledger, entries in self.ledgers:
            first = start.entry + (1 if start.place else 0) if ledger == start.ledger else 0
            last = stop.entry + (1 if stop.place else 0) if ledger == stop.ledger else entries
            if start.ledger <= ledger <= stop.ledger:
                count += max(0, min(last, entries) - first)
        return count


def next_entry(position: int, ledgers: Sequence[tuple[int, int]]) -> int:
    """One place for all positions between two entries, such as the end of a ledger and the start of the next: where the
    second begins. Pulsar's cursor may be at any of them. After the last entry, the position itself."""
    ledger, entry, _ = unpack(position)
    for one, entries in ledgers:
        if one == ledger and entry < entries:
            break
        if one > ledger and entries:
            return pack(one, 0)
    return position


def resting_place(position: int, ledgers: Sequence[tuple[int, int]]) -> Id | None:
    """The entry on which Pulsar's cursor waits for a reader that is at a position; None if there is no entry at all.

    It is the one that is read next. But where the reader has come to the end of a ledger it is the last one of that:
    Pulsar removes ledgers that every cursor has left, and with it would go the only proof that nothing was lost between
    this position and the next ledger.
    """
    ledger, entry, _ = unpack(position)
    filled = [(one, entries) for one, entries in ledgers if entries]
    before = [(one, entries) for one, entries in filled if one <= ledger]
    if not before:
        return Id(filled[0][0], 0) if filled else None
    last, entries = before[-1]
    return Id(last, min(entry, entries - 1) if last == ledger else entries - 1)

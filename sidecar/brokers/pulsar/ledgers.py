"""Counting from one position of a lane to another. Pure.

Positions are made of ledger, entry and place in a batch, so that their distance says nothing. But Pulsar tells how many
entries each ledger has, and how many messages an entry holds is known from those that were read.
"""

from dataclasses import dataclass

from sidecar.brokers.pulsar.positions import pack, unpack
from sidecar.model import Run


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

    def ahead(self, records: int) -> int:
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

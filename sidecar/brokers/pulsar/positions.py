"""Message ids as positions. Pure.

A message stands in its lane at (ledger, entry, index in its batch). The core knows positions as ascending 63-bit
numbers, so the three are packed into one, ledger first: positions then compare as the ids do, across ledgers, entries
and batches, and mean the same to every sidecar and in every life.

The widths are chosen after what Pulsar makes of them. Ledger ids are counted up by the whole cluster, one for each
ledger of a topic or a cursor; a ledger is closed after 50,000 entries, but not before ten minutes are over; a batch
has 1,000 messages unless the producer says otherwise. An id that does not fit has no position of its own: its message
is consumed all the same, at the next free position (see `held`), but it cannot be sought or read by position.
"""

from typing import NamedTuple

LEDGER_BITS, ENTRY_BITS, BATCH_BITS = 30, 22, 11
_LEDGERS, _ENTRIES, _BATCH = 1 << LEDGER_BITS, 1 << ENTRY_BITS, 1 << BATCH_BITS
_LEDGER_SHIFT = ENTRY_BITS + BATCH_BITS
#: for people
LIMITS = f"{_BATCH:,} messages in a batch, {_ENTRIES:,} entries in a ledger, {_LEDGERS:,} ledgers"


class Id(NamedTuple):
    """Where a message is. `place` is 0 for a message that is not in a batch."""

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
    """The position from which on everything lies after a message that is the last one; -1 if it does not fit."""
    position = pack(ledger, entry, index)
    # Of a place that does not fit at least its entry is known.
    return position + 1 if position >= 0 else pack(ledger, entry + 1)


def after(ledger: int, entry: int) -> int:
    """The position from which on everything lies after an entry, -1 being the one before the first of its ledger.
    0 if it does not fit, since everything lies after that."""
    return max(0, pack(ledger, entry + 1))

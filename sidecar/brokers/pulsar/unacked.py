"""The position of each message of a lane, from its arrival to its ack. Pure."""

import threading
from bisect import bisect_left
from typing import NamedTuple, Protocol

from sidecar.brokers.pulsar.positions import BATCH_BITS, Id, pack, unpack
from sidecar.model.records import Commit, Run

#: positions that one entry has room for
_ENTRY = 1 << BATCH_BITS


class MessageId(Protocol):
    """The library's id. It must be kept for the ack: a new object with the same numbers does not know its batch, and
    acks all of it."""

    def ledger_id(self) -> int: ...
    def entry_id(self) -> int: ...
    def batch_index(self) -> int: ...


class Acks(NamedTuple):
    """What is to be acked."""

    #: ledger and entry of a cumulative ack, which covers everything up to there
    upto: tuple[int, int] | None = None
    #: acked one by one, in the order of arrival
    messages: tuple[MessageId, ...] = ()

    def __bool__(self) -> bool:
        return self.upto is not None or bool(self.messages)


class UnackedMessages:
    """The messages of one lane that arrived and are not acked yet. They are added in one thread and acked in another.

    A message that arrives in order gets the position that is its id. One that arrives out of order, because a consumer
    that is gone had it before, gets the next free position: the core requires positions to ascend as records arrive,
    and only this class needs to know what they mean. A message that arrives again while it is unacked is a duplicate:
    the library has reconnected.

    With `ascending`, one consumer alone has the lane, and nothing arrives out of order. A message that arrives after
    later ones and is not here was acked, so the broker has `gone_back`: it lost acks, or somebody has reset the cursor.
    Such a message gets no position, since those of later messages are given already.

    With `ascending`, a cumulative ack can cover all before it, but only if all of it was acked or has arrived. The
    library withholds some entries without a word: chunks of an incomplete message, and what it cannot decrypt. Others
    are never delivered: markers of transactions, and what was acked before. And nobody here knows the last entry of a
    ledger. All of these look alike, as gaps, and behind a gap each message is acked by itself, until the broker says
    that everything before the gap is acked.
    """

    def __init__(self, *, ascending: bool = False) -> None:
        self._lock = threading.Lock()
        self._ascending = ascending
        #: the message that arrived last, since the start
        self._last: MessageId | None = None
        self.gone_back = False
        #: ascending; positions of acked messages stay until all before them are acked
        self._positions: list[int] = []
        #: by index in `_positions`; None: acked
        self._ids: list[MessageId | None] = []
        #: positions of messages that did not get the position that is their id
        self._displaced: dict[Id, int] = {}
        #: there was such a message since the start, so positions no longer tell which entries have arrived
        self._any_displaced = False
        #: positions of messages that come right after a gap: the last that was committed, and all after it
        self._gaps: list[int] = []
        #: the position after the last one
        self.next = 0
        #: messages that arrived only because they share an entry with the position that was sought
        self.skipped: list[MessageId] = []
        self._skip: Run | None = None

    def __len__(self) -> int:
        """The number of messages that are not acked."""
        # Not by `count`, which would compare: the library's ids refuse to be compared with None.
        with self._lock:
            return sum(message is not None for message in self._ids)

    @property
    def has_gaps(self) -> bool:
        return bool(self._gaps)

    @property
    def is_past_a_gap(self) -> bool:
        """The entry after the first gap, and all before it, are acked: what is missing there is not unacked here."""
        with self._lock:
            if not self._gaps or not self._positions:
                return bool(self._gaps) and self._gaps[0] < self.next
            return self._gaps[0] >> BATCH_BITS < self._positions[0] >> BATCH_BITS

    def reset(self, start: int = 0, *, acked_before: bool = True, sought: bool = False) -> None:
        """Forget everything; the next message gets `start` or a later position.

        `acked_before`: the broker has acks for all before `start`. `sought`: the first messages may lie before `start`
        in the same entry, and are skipped.
        """
        with self._lock:
            entry = pack(*unpack(start)[:2])
            self._skip = Run(entry, start) if sought and entry < start else None
            self._positions.clear()
            self._ids.clear()
            self._displaced.clear()
            self._any_displaced = False
            self._gaps = [] if acked_before else [start]
            self._last = None
            self.gone_back = False
            self.next = start

    def add(self, message: MessageId) -> int:
        """The position of a message that arrived, or -1 for a duplicate, or if the broker has gone back to it."""
        return self.add_id(message, message.ledger_id(), message.entry_id(), message.batch_index())

    def add_id(self, message: MessageId, ledger: int, entry: int, index: int) -> int:
        """Like `add`, for callers that know the numbers of the id already: reading them is slow."""
        position = pack(ledger, entry, index)
        with self._lock:
            if self._skip is not None:
                if self._skip.start <= position < self._skip.stop:
                    self.skipped.append(message)
                    return -1
                self._skip = None
            if position < self.next:
                # Out of order, or an id that does not fit.
                found = Id(ledger, entry, max(0, index))
                if self._is_unacked(position, found):
                    return -1
                if self._ascending and self._is_behind(position, found):
                    self.gone_back = True
                    return -1
                position = self.next
                self._displaced[found] = position
                self._any_displaced = True
            elif position - self.next >= _ENTRY and self._ascending and self._is_gap(position):
                # The first condition is for speed: where nothing is missing, it is mostly the only one evaluated.
                self._gaps.append(position)
            self._last = message
            self.next = position + 1
            self._positions.append(position)
            self._ids.append(message)
        return position

    def take(self, commit: Commit) -> Acks:
        """The acks of all messages that a commit covers and that are unacked. They count as acked from now on."""
        with self._lock:
            covered = bisect_left(self._positions, commit.position)
            cumulative = self._cumulative(covered)
            upto: tuple[int, int] | None = None
            if any(message is not None for message in self._ids[:cumulative]):
                upto = unpack(self._positions[cumulative - 1])[:2]
            messages = [message for message in self._ids[cumulative:covered] if message is not None]
            for start, stop in commit.beyond:
                first = bisect_left(self._positions, start, covered)
                last = bisect_left(self._positions, stop, first)
                messages += [message for message in self._ids[first:last] if message is not None]
                self._ids[first:last] = [None] * (last - first)
            del self._positions[:covered], self._ids[:covered]
            # Of the gaps before the commit only the last is kept: once it is closed, all before it are.
            del self._gaps[: max(0, bisect_left(self._gaps, commit.position) - 1)]
            if self._displaced:
                for message in messages:
                    self._displaced.pop(_id(message), None)
        return Acks(upto, tuple(messages))

    def close_gaps(self, position: int) -> None:
        """The broker has acks for all before a position, also for what never arrived here."""
        with self._lock:
            self._gaps = [gap for gap in self._gaps if gap >> BATCH_BITS > position >> BATCH_BITS]

    def _cumulative(self, covered: int) -> int:
        """Of the first `covered` messages, all settled: how many a cumulative ack may cover.

        Not the last entry, if it is a batch: an ack of all of it might cover messages that have not arrived, and a
        cumulative ack into the middle would leave out those after it that were acked before, which nobody here knows.
        """
        if not self._ascending or self._any_displaced:
            return 0
        if self._gaps:
            covered = bisect_left(self._positions, self._gaps[0], 0, covered)
        if not covered:
            return 0
        last = self._ids[covered - 1]
        if last is not None and last.batch_index() < 0:
            return covered
        entry = self._positions[covered - 1] >> BATCH_BITS << BATCH_BITS
        return bisect_left(self._positions, entry, 0, covered)

    def _is_gap(self, position: int) -> bool:
        return (position >> BATCH_BITS) - (self.next - 1 >> BATCH_BITS) > 1

    def _is_behind(self, position: int, found: Id) -> bool:
        # Compares ids: after one that does not fit, positions say nothing.
        return found <= _id(self._last) if self._last is not None else 0 <= position < self.next

    def _is_unacked(self, position: int, found: Id) -> bool:
        if found in self._displaced:
            return True
        at = bisect_left(self._positions, position)
        if position < 0 or at == len(self._positions) or self._positions[at] != position:
            return False
        there = self._ids[at]
        return there is not None and _id(there) == found


def _id(message: MessageId) -> Id:
    return Id(message.ledger_id(), message.entry_id(), max(0, message.batch_index()))

"""Which message stands at which position of a lane, from its arrival to its ack. Pure."""

import threading
from bisect import bisect_left
from typing import NamedTuple, Protocol

from sidecar.brokers.pulsar.positions import BATCH_BITS, Id, pack, unpack
from sidecar.model.records import Commit, Run

#: positions that one entry has room for
_ENTRY = 1 << BATCH_BITS


class MessageId(Protocol):
    """The library's id. It must be kept for the ack: one made anew does not know its batch, and acks all of it."""

    def ledger_id(self) -> int: ...
    def entry_id(self) -> int: ...
    def batch_index(self) -> int: ...


class Settled(NamedTuple):
    """What is to be acked."""

    #: the ledger and entry up to which one ack can speak for all
    upto: tuple[int, int] | None = None
    #: one by one, in the order in which they arrived
    messages: tuple[MessageId, ...] = ()

    def __bool__(self) -> bool:
        return self.upto is not None or bool(self.messages)


class Held:
    """The messages of one lane that arrived and were not acked yet. They arrive in one thread and leave in another.

    A message that arrives in order stands at the position that is its id. One that arrives out of order, which is what
    a lost consumer had in hand, stands at the next free position: the core wants positions to ascend as records
    arrive, and only here is it known what they mean. A message that arrives again while it is held is not news: the
    library has connected anew.

    Where one consumer alone has the lane (`ascending`), nothing comes out of order. A message that arrives after later
    ones, and is not held, was acked, and the broker has `gone_back`: acks were lost with it, or somebody has reset the
    cursor. It has no position, since after it come others that have theirs already.

    There one ack can speak for all before it, but only if all before it were acked or have arrived. The library keeps
    entries to itself without a word: chunks of a message that is not whole, and what it cannot decrypt. Others are
    never delivered: markers of transactions, and what was acked before. And nobody here knows the last entry of a
    ledger. All of these are gaps, and behind a gap each message is acked by itself, until the broker says that it has
    acks for all before the gap.
    """

    def __init__(self, *, ascending: bool = False) -> None:
        self._lock = threading.Lock()
        self._ascending = ascending
        #: the one that arrived last, since the start
        self._last: MessageId | None = None
        self.gone_back = False
        #: ascending; acked ones in between stay until all before them are acked
        self._positions: list[int] = []
        #: None: acked
        self._ids: list[MessageId | None] = []
        #: where messages stand that could not stand at their own position
        self._elsewhere: dict[Id, int] = {}
        #: some did so since the start, and positions do not tell any more which entries have arrived
        self._displaced = False
        #: positions of messages before which something is missing: the last that was committed, and all after it
        self._gaps: list[int] = []
        #: the position after the last one
        self.next = 0
        #: messages that arrived only because they share an entry with the one that was sought
        self.passed_over: list[MessageId] = []
        self._pass_over: Run | None = None

    def __len__(self) -> int:
        """Messages that are not acked."""
        # Not by `count`, which would compare: the library's ids refuse to be compared with None.
        with self._lock:
            return sum(message is not None for message in self._ids)

    @property
    def has_gaps(self) -> bool:
        return bool(self._gaps)

    @property
    def is_past_a_gap(self) -> bool:
        """The entry after it and all before are acked: what is missing there is not here."""
        with self._lock:
            if not self._gaps or not self._positions:
                return bool(self._gaps) and self._gaps[0] < self.next
            return self._gaps[0] >> BATCH_BITS < self._positions[0] >> BATCH_BITS

    def clear(self, start: int = 0, *, acked_before: bool = True, sought: bool = False) -> None:
        """Everything is forgotten; what arrives next stands at `start` or later. `acked_before`: the broker has acks
        for all before it. `sought`: what arrives first may lie before `start` in the same entry, and is passed over."""
        with self._lock:
            entry = pack(*unpack(start)[:2])
            self._pass_over = Run(entry, start) if sought and entry < start else None
            self._positions.clear()
            self._ids.clear()
            self._elsewhere.clear()
            self._displaced = False
            self._gaps = [] if acked_before else [start]
            self._last = None
            self.gone_back = False
            self.next = start

    def arrive(self, message: MessageId) -> int:
        """The position of a message that arrived, or -1 if it is held already, or the broker has gone back to it."""
        return self.place(message, message.ledger_id(), message.entry_id(), message.batch_index())

    def place(self, message: MessageId, ledger: int, entry: int, index: int) -> int:
        """The same for who knows the id in numbers: asking for them costs."""
        position = pack(ledger, entry, index)
        with self._lock:
            if self._pass_over is not None:
                if self._pass_over.start <= position < self._pass_over.stop:
                    self.passed_over.append(message)
                    return -1
                self._pass_over = None
            if position < self.next:
                # Out of order, or an id that does not fit.
                found = Id(ledger, entry, max(0, index))
                if self._is_held(position, found):
                    return -1
                if self._ascending and self._is_behind(position, found):
                    self.gone_back = True
                    return -1
                position = self.next
                self._elsewhere[found] = position
                self._displaced = True
            elif position - self.next >= _ENTRY and self._ascending and self._is_gap(position):
                # The first question is for speed: where nothing is missing, it mostly is the only one.
                self._gaps.append(position)
            self._last = message
            self.next = position + 1
            self._positions.append(position)
            self._ids.append(message)
        return position

    def take(self, commit: Commit) -> Settled:
        """The messages that a commit covers and that were not acked yet. They count as acked from now on."""
        with self._lock:
            covered = bisect_left(self._positions, commit.position)
            whole = self._whole(covered)
            upto: tuple[int, int] | None = None
            if any(message is not None for message in self._ids[:whole]):
                upto = unpack(self._positions[whole - 1])[:2]
            messages = [message for message in self._ids[whole:covered] if message is not None]
            for start, stop in commit.beyond:
                first = bisect_left(self._positions, start, covered)
                last = bisect_left(self._positions, stop, first)
                messages += [message for message in self._ids[first:last] if message is not None]
                self._ids[first:last] = [None] * (last - first)
            del self._positions[:covered], self._ids[:covered]
            # Of those that were passed the last one stands for all.
            del self._gaps[: max(0, bisect_left(self._gaps, commit.position) - 1)]
            if self._elsewhere:
                for message in messages:
                    self._elsewhere.pop(_id(message), None)
        return Settled(upto, tuple(messages))

    def acked_before(self, position: int) -> None:
        """The broker has acks for all before a position, also for what never arrived here."""
        with self._lock:
            self._gaps = [gap for gap in self._gaps if gap >> BATCH_BITS > position >> BATCH_BITS]

    def _whole(self, covered: int) -> int:
        """Of so many messages that are settled, the first ones for which one ack can speak.

        Of the last entry perhaps not all messages have arrived, and of those that were acked before nobody here knows:
        one ack up to the middle of a batch would leave what was acked after it.
        """
        if not self._ascending or self._displaced:
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
        # By ids: after one that does not fit, a position says nothing.
        return found <= _id(self._last) if self._last is not None else 0 <= position < self.next

    def _is_held(self, position: int, found: Id) -> bool:
        if found in self._elsewhere:
            return True
        at = bisect_left(self._positions, position)
        if position < 0 or at == len(self._positions) or self._positions[at] != position:
            return False
        there = self._ids[at]
        return there is not None and _id(there) == found


def _id(message: MessageId) -> Id:
    return Id(message.ledger_id(), message.entry_id(), max(0, message.batch_index()))

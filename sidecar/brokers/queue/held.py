"""The messages that a receiver has given out and that are not settled: their positions and handles. Pure."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, NamedTuple

from sidecar.brokers.queue.driver import H, Received
from sidecar.model.records import Commit

#: messages that were settled too late and are remembered, in case they come again
_REMEMBERED = 10_000
#: bits of a position below the milliseconds at which its epoch began
_COUNT_BITS = 20


def first_position(wall_ms: int) -> int:
    """The first position of an epoch that begins at this time of day. It lies beyond all of any earlier one: no queue
    delivers a million messages in a millisecond."""
    return wall_ms << _COUNT_BITS


@dataclass(frozen=True, slots=True)
class Acks(Generic[H]):
    """What a commit settles: messages in the order in which they arrived."""

    positions: Sequence[int]
    handles: Sequence[H]
    #: so many of the first of them, and everything that arrived before, is settled
    cumulative: int


class Renewal(NamedTuple, Generic[H]):
    positions: list[int]
    handles: list[H]


class HeldMessages(Generic[H]):
    """One epoch of handles.

    A message gets its own number as its position, if the broker has one and it ascends; otherwise the next free one:
    the core requires positions to ascend as records arrive, and only this class needs to know what they mean.

    Where messages must be renewed, a handle can run out while its message is held. Then the broker delivers the message
    again, to anybody. If it comes here, which its ref tells, it goes on under its old position with its new handle; and
    if it was settled meanwhile, it is acked and not delivered.
    """

    def __init__(self, start: int, renew_every: float | None = None) -> None:
        #: the position after the last one
        self.next = start
        #: messages received by this epoch that have no position, because they are kept elsewhere: see `Shelf`
        self.aside = 0
        #: how many handles ran out
        self.expired = 0
        self._renew_every = renew_every
        #: ascending
        self._positions: list[int] = []
        #: by index in `_positions`; None: settled or run out
        self._handles: list[H | None] = []
        self._refs: list[bytes] = []
        #: unsettled, without a handle
        self._orphans: set[int] = set()
        #: where messages must be renewed: positions of those that are not settled, by ref
        self._by_ref: dict[bytes, int] = {}
        #: refs of messages that were settled after their handle had run out: a dict, because it is ordered
        self._late: dict[bytes, None] = {}
        #: handles of messages that came again after they were settled
        self._repeats: list[H] = []
        #: times at which to renew, each with the first and the last position that is due then
        self._due: deque[tuple[float, int, int]] = deque()
        #: since when the broker does not answer to renewals; None: it does
        self._failing_since: float | None = None
        #: times of arrival, each with the last position that arrived then
        self._arrivals: deque[tuple[int, float]] = deque()

    def __len__(self) -> int:
        """How many messages are held."""
        return sum(handle is not None for handle in self._handles)

    def add(self, received: Sequence[Received[H]], now: float) -> list[int]:
        """Messages arrived. Returns their positions; -1 for those that were delivered before and go on as they were."""
        first = self.next
        positions = [self._add(message) for message in received]
        if self.next > first:
            self._arrivals.append((self.next - 1, now))
            if self._renew_every is not None:
                self._due.append((now + self._renew_every, first, self.next - 1))
        return positions

    def _add(self, message: Received[H]) -> int:
        if self._renew_every is not None and message.ref:
            if message.ref in self._late:
                del self._late[message.ref]
                self._repeats.append(message.handle)
                return -1
            known = self._by_ref.get(message.ref)
            if known is not None:
                self._handles[bisect_left(self._positions, known)] = message.handle
                if known in self._orphans:
                    # Its turn is over. Others are renewed in their turn, which comes sooner than is needed.
                    self._orphans.discard(known)
                    self._due.appendleft((0.0, known, known))
                return -1
            self._by_ref[message.ref] = max(message.number, self.next)
        position = message.number if message.number >= self.next else self.next
        self.next = position + 1
        self._positions.append(position)
        self._handles.append(message.handle)
        self._refs.append(message.ref)
        return position

    def skip(self) -> int:
        """A position that nothing is delivered at."""
        self.next += 1
        return self.next - 1

    # Settling

    def covered(self, commit: Commit) -> Acks[H]:
        """What a commit covers and is held. It stays held until `settle`."""
        stop = bisect_left(self._positions, commit.position)
        positions, handles = self._held(0, stop)
        # What is kept aside may have arrived before any of these.
        cumulative = 0 if self.aside else len(handles)
        for run in commit.beyond:
            start = bisect_left(self._positions, run.start, stop)
            stop = bisect_left(self._positions, run.stop, start)
            more_positions, more_handles = self._held(start, stop)
            positions += more_positions
            handles += more_handles
        return Acks(positions, [*handles, *self._repeats], cumulative)

    def settle(self, commit: Commit, acks: Acks[H], not_ours: Iterable[int]) -> None:
        """The broker has these acks of a commit, but for those whose handles had run out, given by index."""
        del self._repeats[: len(acks.handles) - len(acks.positions)]
        for index in not_ours:
            if index < len(acks.positions):
                self._settled_late(acks.positions[index], acks.handles[index])
        stop = bisect_left(self._positions, commit.position)
        self._forget(0, stop)
        del self._positions[:stop], self._handles[:stop], self._refs[:stop]
        stop = 0
        for run in commit.beyond:
            start = bisect_left(self._positions, run.start, stop)
            stop = bisect_left(self._positions, run.stop, start)
            self._forget(start, stop)

    def _settled_late(self, position: int, handle: H) -> None:
        at = bisect_left(self._positions, position)
        self.expired += 1
        now = self._handles[at]
        if now is not None and now is not handle:
            # It has come again already.
            self._repeats.append(now)
        elif self._renew_every is not None and self._refs[at]:
            self._late[self._refs[at]] = None
            if len(self._late) > _REMEMBERED:
                del self._late[next(iter(self._late))]

    def _forget(self, start: int, stop: int) -> None:
        """These are settled."""
        self._handles[start:stop] = [None] * (stop - start)
        if self._by_ref:
            for ref in self._refs[start:stop]:
                self._by_ref.pop(ref, None)
        if self._orphans:
            self._orphans.difference_update(self._positions[start:stop])

    def take_all(self) -> list[H]:
        """Every handle that is held, to give it back. Nothing is held after it."""
        handles = [*self._held(0, len(self._handles))[1], *self._repeats]
        self._positions.clear()
        self._handles.clear()
        self._refs.clear()
        self._by_ref.clear()
        self._repeats.clear()
        self._due.clear()
        self._arrivals.clear()
        return handles

    def _held(self, start: int, stop: int) -> tuple[list[int], list[H]]:
        handles = [handle for handle in self._handles[start:stop] if handle is not None]
        positions = self._positions[start:stop]
        if len(handles) < len(positions):
            held = zip(positions, self._handles[start:stop], strict=True)
            positions = [position for position, handle in held if handle is not None]
        return positions, handles

    # Renewing

    def next_renewal(self) -> float | None:
        """When something is to be renewed; None: nothing is held."""
        return self._due[0][0] if self._due else None

    def due(self, now: float) -> Renewal[H]:
        """What is to be renewed now. Report the result by `renewed` or `not_renewed`."""
        found: Renewal[H] = Renewal([], [])
        while self._due and self._due[0][0] <= now:
            _, first, last = self._due.popleft()
            start = bisect_left(self._positions, first)
            positions, handles = self._held(start, bisect_left(self._positions, last + 1, start))
            found.positions.extend(positions)
            found.handles.extend(handles)
        return found

    def in_doubt(self, now: float) -> bool:
        """Whether handles may run out before anybody notices: renewing fails, or nothing ran for a while."""
        if self._renew_every is None or not self._due:
            return False
        since = self._due[0][0] if self._failing_since is None else self._failing_since
        return now >= since + self._renew_every

    def renewed(self, renewal: Renewal[H], handles: Sequence[H | None], now: float) -> None:
        """The broker has renewed these: their handles from now on, None for one that had run out."""
        assert self._renew_every is not None
        self._failing_since = None
        for position, before, after in zip(renewal.positions, renewal.handles, handles, strict=True):
            at = self._index(position)
            # It may have been settled meanwhile, or delivered anew.
            if at is not None and self._handles[at] is before:
                if after is None:
                    self.expired += 1
                    self._orphans.add(position)
                self._handles[at] = after
        self._schedule(renewal.positions, now + self._renew_every)

    def not_renewed(self, renewal: Renewal[H], now: float) -> None:
        """The broker did not answer: they are due again."""
        if self._failing_since is None:
            self._failing_since = now
        self._schedule(renewal.positions, now)

    def _schedule(self, positions: Iterable[int], at: float) -> None:
        """In as few ranges as possible: those that are neighbours here stay together."""
        indexes = [index for index in map(self._index, sorted(positions)) if index is not None]
        for _, neighbours in groupby(enumerate(indexes), lambda pair: pair[1] - pair[0]):
            run = [index for _, index in neighbours]
            self._due.append((at, self._positions[run[0]], self._positions[run[-1]]))
        self._due = deque(sorted(self._due))

    def _index(self, position: int) -> int | None:
        """Where a position is; None if nothing is held there."""
        at = bisect_left(self._positions, position)
        known = at < len(self._positions) and self._positions[at] == position
        return at if known and self._handles[at] is not None else None

    # Ages

    def oldest(self, now: float) -> float:
        """Seconds for which the oldest that is held has been held; 0 if there is none."""
        held = (at for at, handle in zip(self._positions, self._handles, strict=True) if handle is not None)
        first = next(held, None)
        while self._arrivals and (first is None or self._arrivals[0][0] < first):
            self._arrivals.popleft()
        return now - self._arrivals[0][1] if self._arrivals else 0.0

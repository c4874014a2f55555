"""What is settled in one lane, and so how far the broker may be told."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from sidecar.model.records import Commit, Run
from sidecar.model.run_set import RunSet


class Ledger:
    """The books of one lane, from its assignment to its end. Pure.

    Positions arrive in order but need not be contiguous: compaction and transaction markers leave gaps. A record
    answers for the gap before it, so that settled records join into runs whatever lies between them.
    Work is done in runs: settling a thousand contiguous records costs what settling one does.
    """

    __slots__ = ("_beyond", "_changed", "_floor", "committed", "tracked")

    def __init__(self, start: int, settled: Iterable[Run] = ()) -> None:
        #: what the broker was told last: everything before it is settled
        self.committed = start
        #: the next position to arrive
        self.tracked = start
        self._floor = start
        self._changed = False
        self._beyond = RunSet(Run(max(run.start, start), run.stop) for run in settled)
        self._raise_floor()

    @property
    def floor(self) -> int:
        """Everything before it is settled; the record at it is not, or has not arrived."""
        return self._floor

    @property
    def settled_beyond(self) -> int:
        """Positions beyond the floor that are settled."""
        return len(self._beyond)

    def track(self, positions: Sequence[int]) -> list[tuple[int, int, int]]:
        """Take in records as they arrive. Answers which of them are new and unsettled: (first index, index after
        the last, position from which the first one answers).

        What was tracked before is dropped, so a record that the broker gives twice counts once; what an earlier
        life of the sidecar settled is dropped too.
        """
        low = max(self.tracked, self._floor)
        begin = bisect_left(positions, low)
        end = len(positions)
        if begin == end:
            return []
        self.tracked = positions[-1] + 1
        last = self._beyond.last
        if last is None or last.stop <= low:
            return [(begin, end, low)]
        fresh: list[tuple[int, int, int]] = []
        at = begin
        for run in [*iter(self._beyond)]:
            left = bisect_left(positions, run.start, at, end)
            right = bisect_left(positions, run.stop, left, end)
            if left > at:
                fresh.append((at, left, low))
                low = positions[left - 1] + 1
            if right > left:
                # The settled records answer for the gap before them, like all records.
                self._beyond.add(Run(low, run.start))
                low = positions[right - 1] + 1
            at = right
        if at < end:
            fresh.append((at, end, low))
        self._raise_floor()
        return fresh

    def advance(self, position: int) -> None:
        """There is no further record before `position`."""
        if position > self.tracked:
            gap = Run(self.tracked, position)
            self.tracked = position
            self.settle(gap)

    def settle(self, run: Run) -> None:
        """Settle positions. Settling again what is settled changes nothing."""
        start, stop = run
        if stop <= self._floor:
            return
        if start <= self._floor and not self._beyond:
            self._floor = stop
        else:
            self._beyond.add(Run(max(start, self._floor), stop))
            self._raise_floor()
        self._changed = True

    def committable(self, *, with_beyond: bool) -> Commit | None:
        """What to tell the broker next, or None when it knows. `with_beyond`: acks beyond the floor are told too."""
        if with_beyond:
            # By `iter`: a tuple would first make room for as many as there are positions, which may be astronomic.
            return Commit(self._floor, tuple(iter(self._beyond))) if self._changed else None
        return Commit(self._floor) if self._floor > self.committed else None

    def commit_sent(self) -> None:
        """What `committable` gave is on its way; what is settled from now on is news."""
        self._changed = False

    def commit_failed(self) -> None:
        self._changed = True

    def commit_done(self, commit: Commit) -> None:
        """The broker has it."""
        self.committed = max(self.committed, commit.position)

    def _raise_floor(self) -> None:
        first = self._beyond.first
        if first is not None and first.start <= self._floor:
            self._floor = max(self._floor, first.stop)
            self._beyond.pop_first()
            # Also when this comes of records arriving that were settled before: the broker does not know the new floor.
            self._changed = True

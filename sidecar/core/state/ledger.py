"""What is settled in one lane, and so what can be committed. Pure."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from sidecar.model.records import Commit, Run
from sidecar.model.run_set import RunSet


class Ledger:
    """The settled positions of one epoch of a lane.

    Positions arrive in order but need not be contiguous: compaction and transaction markers leave gaps. Settling a
    record settles the gap before it, so settled records always form runs. Work is done in runs: settling a thousand
    contiguous records costs what settling one does.
    """

    __slots__ = ("_beyond", "_changed", "_low_watermark", "committed", "tracked")

    def __init__(self, start: int, settled: Iterable[Run] = ()) -> None:
        #: the position of the last commit
        self.committed = start
        #: the next position to arrive
        self.tracked = start
        self._low_watermark = start
        self._changed = False
        self._beyond = RunSet(Run(max(run.start, start), run.stop) for run in settled)
        self._raise_low_watermark()

    @property
    def low_watermark(self) -> int:
        """Everything before it is settled; the record at it is not, or has not arrived."""
        return self._low_watermark

    @property
    def settled_beyond(self) -> int:
        """Positions beyond the low watermark that are settled."""
        return len(self._beyond)

    def track(self, positions: Sequence[int]) -> list[tuple[int, int, int]]:
        """Records arrived. Returns those that are new and unsettled, as (first index, index after the last, first
        position that is settled with them).

        Records that were tracked before are left out, so one that the broker sends twice counts once; so are those
        that an earlier run of the sidecar settled.
        """
        low = max(self.tracked, self._low_watermark)
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
        # Only the runs among these positions: after a restart with sparse acks each chunk is one of thousands.
        for run in self._beyond.meeting(Run(low, self.tracked)):
            left = bisect_left(positions, run.start, at, end)
            right = bisect_left(positions, run.stop, left, end)
            if left > at:
                fresh.append((at, left, low))
                low = positions[left - 1] + 1
            if right > left:
                # Settled records settle the gap before them, like all records.
                self._beyond.add(Run(low, run.start))
                low = positions[right - 1] + 1
            at = right
        if at < end:
            fresh.append((at, end, low))
        self._raise_low_watermark()
        return fresh

    def advance(self, position: int) -> None:
        """There are no further records before `position`."""
        if position > self.tracked:
            gap = Run(self.tracked, position)
            self.tracked = position
            self.settle(gap)

    def settle(self, run: Run) -> None:
        """Settle positions. Settling them again changes nothing."""
        start, stop = run
        if stop <= self._low_watermark:
            return
        if start <= self._low_watermark and not self._beyond:
            self._low_watermark = stop
        else:
            self._beyond.add(Run(max(start, self._low_watermark), stop))
            self._raise_low_watermark()
        self._changed = True

    def committable(self, *, with_beyond: bool) -> Commit | None:
        """The next commit; None if nothing has changed since the last one. `with_beyond`: it carries the settled runs
        beyond the low watermark."""
        due = self._changed if with_beyond else self._low_watermark > self.committed
        return self.commit(with_beyond=with_beyond) if due else None

    def commit(self, *, with_beyond: bool) -> Commit:
        """The commit of what is settled, whether or not that has changed."""
        # By `iter`: `tuple` would first allocate room for `len`, which is the number of positions.
        return Commit(self._low_watermark, tuple(iter(self._beyond)) if with_beyond else ())

    def commit_sent(self) -> None:
        """The last result of `committable` is on its way; what is settled from now on needs another commit."""
        self._changed = False

    def commit_failed(self) -> None:
        self._changed = True

    def commit_done(self, commit: Commit) -> None:
        """The broker has stored it."""
        self.committed = max(self.committed, commit.position)

    def _raise_low_watermark(self) -> None:
        first = self._beyond.first
        if first is not None and first.start <= self._low_watermark:
            self._low_watermark = max(self._low_watermark, first.stop)
            self._beyond.pop_first()
            # Also if records have arrived that were settled before: the broker does not know the new watermark.
            self._changed = True

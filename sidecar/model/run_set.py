"""A set of positions, stored as runs."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from sidecar.model.records import Run


class RunSet:
    """Ascending runs that neither overlap nor touch. The cost of all operations depends on runs, not on positions."""

    __slots__ = ("_starts", "_stops")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        for run in runs:
            self.add(run)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __iter__(self) -> Iterator[Run]:
        return map(Run, self._starts, self._stops)

    def __len__(self) -> int:
        """The number of positions, not of runs."""
        return sum(self._stops) - sum(self._starts)

    def __contains__(self, position: int) -> bool:
        at = bisect_right(self._starts, position) - 1
        return at >= 0 and position < self._stops[at]

    @property
    def first(self) -> Run | None:
        return Run(self._starts[0], self._stops[0]) if self._starts else None

    @property
    def last(self) -> Run | None:
        return Run(self._starts[-1], self._stops[-1]) if self._starts else None

    def add(self, run: Run) -> None:
        start, stop = run
        if start >= stop:
            return
        if not self._starts or start > self._stops[-1]:
            self._starts.append(start)
            self._stops.append(stop)
            return
        # Runs from low to high (exclusive) touch or overlap the new one and are merged with it.
        low = bisect_left(self._stops, start)
        high = bisect_right(self._starts, stop)
        if low < high:
            start = min(start, self._starts[low])
            stop = max(stop, self._stops[high - 1])
        self._starts[low:high] = [start]
        self._stops[low:high] = [stop]

    def discard(self, run: Run) -> None:
        start, stop = run
        if start >= stop:
            return
        low = bisect_right(self._stops, start)
        high = bisect_left(self._starts, stop)
        if low >= high:
            return
        starts, stops = [], []
        if self._starts[low] < start:
            starts.append(self._starts[low])
            stops.append(start)
        if self._stops[high - 1] > stop:
            starts.append(stop)
            stops.append(self._stops[high - 1])
        self._starts[low:high] = starts
        self._stops[low:high] = stops

    def pop_first(self) -> Run:
        return Run(self._starts.pop(0), self._stops.pop(0))

    def meeting(self, run: Run) -> list[Run]:
        """The runs of the set that have positions in common with `run`, whole."""
        low = bisect_right(self._stops, run.start)
        high = bisect_left(self._starts, run.stop)
        return [*map(Run, self._starts[low:high], self._stops[low:high])]

    def missing(self, run: Run) -> list[Run]:
        """The parts of `run` that are not in the set."""
        start, stop = run
        out = []
        at = bisect_right(self._stops, start)
        while at < len(self._starts) and self._starts[at] < stop:
            if self._starts[at] > start:
                out.append(Run(start, self._starts[at]))
            start = max(start, self._stops[at])
            at += 1
        if start < stop:
            out.append(Run(start, stop))
        return out

    def next_from(self, position: int) -> int | None:
        """The first position of the set from `position` on."""
        at = bisect_right(self._stops, position)
        if at == len(self._starts):
            return None
        return max(position, self._starts[at])

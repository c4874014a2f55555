"""Records that came back and wait for their next delivery. Pure."""

import heapq
from collections import deque
from collections.abc import Iterator

from sidecar.spans import Parcel, ParcelState

#: parcels that stopped waiting and may be kept all the same
_FEW = 1000


class Returns:
    """Parcels by the time at which they may go. Those that stopped waiting are skipped when met, and most of them are
    let go before."""

    def __init__(self) -> None:
        self._later: list[tuple[float, int, Parcel]] = []
        self._now: deque[Parcel] = deque()
        self._count = 0
        #: so many that most of them may have stopped waiting
        self._prune_at = _FEW

    def add(self, parcel: Parcel, now: float) -> None:
        if parcel.due <= now:
            self._now.append(parcel)
        else:
            self._count += 1
            heapq.heappush(self._later, (parcel.due, self._count, parcel))
            if len(self._later) > self._prune_at:
                self.prune()

    def prune(self) -> None:
        """Let go of those that stopped waiting: they may be due in an hour. Not while what `due` gave is in use."""
        self._now = deque(parcel for parcel in self._now if parcel.state is ParcelState.WAITING)
        self._later = [entry for entry in self._later if entry[2].state is ParcelState.WAITING]
        heapq.heapify(self._later)
        self._prune_at = 2 * len(self._later) + _FEW

    def next_due(self) -> float | None:
        """When the next parcel becomes due that is not due yet."""
        while self._later and self._later[0][2].state is not ParcelState.WAITING:
            heapq.heappop(self._later)
        return self._later[0][0] if self._later else None

    def due(self, now: float) -> "deque[Parcel]":
        """Parcels that may go as far as time is concerned, oldest first. The caller removes what it takes."""
        while self._later and self._later[0][0] <= now:
            self._now.append(heapq.heappop(self._later)[2])
        while self._now and self._now[0].state is not ParcelState.WAITING:
            self._now.popleft()
        return self._now

    def __iter__(self) -> Iterator[Parcel]:
        """All that wait, in no particular order."""
        for parcel in self._now:
            if parcel.state is ParcelState.WAITING:
                yield parcel
        for _, _, parcel in self._later:
            if parcel.state is ParcelState.WAITING:
                yield parcel

"""When leases expire. Pure."""

import heapq
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from sidecar.core.state.leases import Lease

L = TypeVar("L", bound="Lease[Any]")

#: `Lease.row` of a lease that is in none
NO_ROW = float("inf")
#: times of rows that are gone and are kept all the same: pruning costs more
_PRUNE_SLACK = 1000


class Deadlines(Generic[L]):
    """Leases in rows, by the time at which they expire.

    Batches that are delivered in one turn of the loop mostly expire together, so they share a row, and only the rows
    are kept in order. A lease whose deadline moves to a later time stays in its row until the time of that has come.
    """

    def __init__(self) -> None:
        self._rows: dict[float, dict[L, None]] = {}
        #: a heap of the times of all rows, and of some that are gone
        self._times: list[float] = []

    def set(self, lease: L, deadline: float) -> None:
        """The lease expires at this time, and not when it was said before."""
        lease.deadline = deadline
        if lease.row <= deadline:
            return
        if lease.row != NO_ROW:
            self.remove(lease)
        lease.row = deadline
        row = self._rows.get(deadline)
        if row is not None:
            row[lease] = None
            return
        self._rows[deadline] = {lease: None}
        heapq.heappush(self._times, deadline)
        if len(self._times) > 2 * len(self._rows) + _PRUNE_SLACK:
            # Nearly all leases are settled long before their deadline.
            self._times = sorted(self._rows)

    def remove(self, lease: L) -> None:
        """The lease does not expire any more. Removing it again changes nothing."""
        row = self._rows.get(lease.row)
        if row is not None:
            del row[lease]
            if not row:
                del self._rows[lease.row]
        lease.row = NO_ROW

    def next(self) -> float | None:
        """A time before which no lease expires, and at which one may."""
        while self._times and self._times[0] not in self._rows:
            heapq.heappop(self._times)
        return self._times[0] if self._times else None

    def expire(self, now: float) -> list[L]:
        """Remove the leases that have expired. Returns them in the order of their deadlines."""
        expired = []
        while (time := self.next()) is not None and time <= now:
            for lease in [*self._rows[time]]:
                self.remove(lease)
                if lease.deadline <= now:
                    expired.append(lease)
                else:
                    self.set(lease, lease.deadline)
        return sorted(expired, key=lambda lease: lease.deadline)

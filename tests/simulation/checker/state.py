"""What the checker tracks: only what it observed, never what the code under test says of itself."""

from bisect import bisect_left
from enum import Enum
from typing import Any

from sidecar.model.records import Assigned, Outcome, Run
from tests.simulation.broker.storage import LaneLog, StoredRecord


class Phase(Enum):
    ACTIVE = "active"
    #: the sidecar was told that the lane is about to move
    LEAVING = "leaving"
    #: the sidecar knows that the lane is no longer its own
    GONE = "gone"


class Flag(Enum):
    """Whether a delivery must, may or must not be flagged `possibly_processed`."""

    NO = "no"
    MAY = "may"
    MUST = "must"


class Epoch:
    """One assignment of a lane to one life of the sidecar."""

    def __init__(self, log: LaneLog, event: Assigned, life: int, *, sought: bool) -> None:
        self.log = log
        self.lane = log.lane
        self.life = life
        self.start = event.start
        self.settled: tuple[Run, ...] = event.settled
        self.first = event.first
        #: of the last commit that the sidecar knows to be stored
        self.reach = self.found_reach = event.reach
        self.sought = sought
        self.phase = Phase.ACTIVE
        #: the records that arrived, by position, and their positions in order
        self.items: dict[int, TrackedRecord] = {}
        self.positions: list[int] = []
        #: cumulated bytes of the records, in order of arrival
        self.ends: list[int] = []
        #: by key: unsettled records in order (order `key` only)
        self.by_key: dict[bytes, list[TrackedRecord]] = {}
        #: everything before it has arrived or is a gap
        self.tracked = event.start
        #: the position that the sidecar knows to be committed, and since when
        self.committed = event.start
        self.committed_at = 0.0
        #: commits up to here were checked
        self.checked = event.start
        #: not settled
        self.held_records = 0
        self.held_bytes = 0
        #: when the sidecar was told that the lane is about to move
        self.left_at: float | None = None
        #: when the last record was settled
        self.emptied = 0.0
        #: records with which two workers died
        self.suspects: list[TrackedRecord] = []

    def __repr__(self) -> str:
        return f"{self.lane} of life {self.life} from {self.start}"

    def was_settled(self, position: int) -> bool:
        """It was settled before this assignment."""
        return position < self.start or any(run.start <= position < run.stop for run in self.settled)

    def arrived(self, position: int, size: int) -> None:
        self.positions.append(position)
        self.ends.append((self.ends[-1] if self.ends else 0) + size)

    def used(self, position: int) -> tuple[int, int]:
        """Records and bytes from the committed position up to this one."""
        first = bisect_left(self.positions, self.committed)
        last = bisect_left(self.positions, position)
        return last - first + 1, self.ends[last] - (self.ends[first - 1] if first else 0)

    def first_past_committed(self) -> int | None:
        at = bisect_left(self.positions, self.committed)
        return self.positions[at] if at < len(self.positions) else None


class TrackedRecord:
    """One stored record in one epoch."""

    def __init__(self, copy: StoredRecord, epoch: Epoch, now: float, flag: Flag) -> None:
        self.copy = copy
        self.epoch = epoch
        self.position = copy.position
        self.arrived = now
        self.failures = copy.failures
        self.worker_crashes = copy.worker_crashes
        #: failures that certainly count against it: none from an outage
        self.counted_failures = copy.counted_failures
        self.first_failed: float | None = None
        self.flag = flag
        self.not_before = copy.not_before
        #: its latest delivery
        self.grant: Grant | None = None
        #: settled in this epoch: acked, or durably in a side topic
        self.done = False
        self.done_at = 0.0
        self.acked = False
        #: its attempts are used up, and it may have been dropped, as the settings say
        self.dropped = False
        self.rejected = False
        #: it may, or must, be given up and never delivered again
        self.can_end = False
        self.must_end = False
        self.reason = ""
        #: two workers died with it: it must be alone in its batch
        self.alone = copy.worker_crashes >= 2
        #: it failed and may wait, until a time that is not known exactly
        self.waits = False
        #: since when nothing about the record itself prevents its delivery
        self.ready = max(now, copy.ready)

    def __repr__(self) -> str:
        return repr(self.copy)


class Grant:
    """One lease, granted to one session."""

    def __init__(self, id_: bytes, session: Any, items: list[TrackedRecord], size: int, limit: float) -> None:
        self.id = id_
        self.session = session
        self.items = items
        self.size = size
        self.limit = limit
        self.granted = 0.0
        self.written: float | None = None
        self.deadline = float("inf")
        self.live = True
        self.how = ""
        #: the accepted outcome of each record; "stale" where it was refused
        self.said: list[Outcome | str | None] = [None] * len(items)
        #: when it was settled, or ended
        self.ended: float | None = None
        self.probe = False
        #: how often the time of day had jumped
        self.jumps = 0
        #: one of its records may kill its worker, and the worker held nothing else
        self.exclusive = False
        #: none of its records was delivered before
        self.fresh = False
        #: none of its records was delivered before in this epoch, also not as one that was parked since
        self.untried = False
        #: it failed as a whole while the handler works, so its records come back in halves
        self.to_be_split = False

    def __repr__(self) -> str:
        return f"lease {self.id[-3:].hex()}"

    def unsettled(self) -> list[int]:
        return [index for index, said in enumerate(self.said) if said is None]

"""The checker's own books: what it saw, never what the code under test says of itself."""

from bisect import bisect_left
from enum import Enum
from typing import Any

from sidecar.model.records import Assigned, Outcome, Run
from tests.simulation.storage import Copy, LaneLog


class Phase(Enum):
    ACTIVE = "active"
    #: the sidecar was told that the lane is about to move
    LEAVING = "leaving"
    #: the sidecar knows that the lane is no longer its own
    GONE = "gone"


class Doubt(Enum):
    """Whether a delivery must be flagged `possibly_processed`."""

    NO = "no"
    MAY = "may"
    MUST = "must"


class Epoch:
    """One lane in the hands of one life, from its assignment on."""

    def __init__(self, log: LaneLog, event: Assigned, life: int, *, sought: bool) -> None:
        self.log = log
        self.lane = log.lane
        self.life = life
        self.start = event.start
        self.settled: tuple[Run, ...] = event.settled
        self.first = event.first
        self.sought = sought
        self.phase = Phase.ACTIVE
        #: all records of it that arrived, by position, and their positions in order
        self.items: dict[int, Item] = {}
        self.positions: list[int] = []
        #: bytes of the records up to each of them, as they arrived
        self.ends: list[int] = []
        #: records that are not over, in order, by key (order `key`)
        self.by_key: dict[bytes, list[Item]] = {}
        #: everything before it has arrived or is a gap
        self.tracked = event.start
        #: what the sidecar knows to be committed, and since when
        self.committed = event.start
        self.committed_at = 0.0
        #: commits up to here were checked
        self.checked = event.start
        #: not settled
        self.held_records = 0
        self.held_bytes = 0
        #: in the hands of workers
        self.leased = 0
        #: when the sidecar was told that the lane is about to move
        self.left_at: float | None = None
        #: when the last record was settled
        self.emptied = 0.0
        #: records that have killed two workers
        self.suspects: list[Item] = []

    def __repr__(self) -> str:
        return f"{self.lane} of life {self.life} from {self.start}"

    def was_settled(self, position: int) -> bool:
        """An earlier life settled it."""
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


class Item:
    """One copy in one epoch."""

    __slots__ = (
        "acked",
        "alone",
        "arrived",
        "can_end",
        "copy",
        "counted_failures",
        "done",
        "done_at",
        "doubt",
        "dropped",
        "epoch",
        "failures",
        "first_failed",
        "hand",
        "must_end",
        "not_before",
        "position",
        "ready",
        "reason",
        "rejected",
        "waits",
        "worker_crashes",
    )

    def __init__(self, copy: Copy, epoch: Epoch, now: float, doubt: Doubt) -> None:
        self.copy = copy
        self.epoch = epoch
        self.position = copy.position
        self.arrived = now
        self.failures = copy.failures
        self.worker_crashes = copy.worker_crashes
        #: failures that surely count against it: none from an outage
        self.counted_failures = copy.counted_failures
        self.first_failed = copy.first_failed
        self.doubt = doubt
        self.not_before = copy.not_before
        #: its latest delivery
        self.hand: Hand | None = None
        #: settled in this epoch: acked, or durably aside
        self.done = False
        self.done_at = 0.0
        self.acked = False
        #: it failed for good and was perhaps dropped, as the settings say
        self.dropped = False
        self.rejected = False
        #: it may, or must, be given up: never delivered again
        self.can_end = False
        self.must_end = False
        self.reason = ""
        #: its worker died twice: no company
        self.alone = copy.worker_crashes >= 2
        #: it came back and may wait; when it can be delivered again at the latest is not known
        self.waits = False
        #: since when it could be delivered at the latest, as far as it alone is concerned
        self.ready = max(now, copy.ready)

    def __repr__(self) -> str:
        return repr(self.copy)


class Hand:
    """One lease in the hands of one worker."""

    __slots__ = (
        "deadline",
        "fresh",
        "granted",
        "how",
        "id",
        "items",
        "life",
        "limit",
        "live",
        "probe",
        "said",
        "session",
        "size",
        "to_be_split",
        "written",
    )

    def __init__(self, id_: bytes, session: Any, items: list[Item], size: int, life: int, limit: float) -> None:
        self.id = id_
        self.session = session
        self.items = items
        self.size = size
        self.life = life
        self.limit = limit
        self.granted = 0.0
        self.written: float | None = None
        self.deadline = float("inf")
        self.live = True
        self.how = ""
        #: what was said of each record, and accepted; "stale" where it was refused
        self.said: list[Outcome | str | None] = [None] * len(items)
        self.probe = False
        #: none of its records was delivered before
        self.fresh = False
        #: it failed as a whole while the handler works: its records come back in halves
        self.to_be_split = False

    def __repr__(self) -> str:
        return f"lease {self.id[-3:].hex()}"

    def unsaid(self) -> list[int]:
        return [index for index, said in enumerate(self.said) if said is None]

"""What the simulated broker has on its disk: it survives every crash of the sidecar."""

from bisect import bisect_left
from collections.abc import Sequence

from sidecar.core.failures import retry_topic
from sidecar.model.records import Commit, Header, Lane, Message, Run
from sidecar.model.wire import encode_frame

#: the broker marks what is parked, so that each copy of a record can be told from the others
MARK = "sim-copy"


class Copy:
    """One place of a lane that holds a record: the record itself or, in the retry topic, a copy of it."""

    __slots__ = (
        "acked",
        "asides",
        "counted_failures",
        "dead",
        "failures",
        "first_failed",
        "frame",
        "headers",
        "item",
        "key",
        "kind",
        "lane",
        "last_delivered_by",
        "not_before",
        "origin",
        "parked",
        "position",
        "possibly_processed",
        "produced",
        "ready",
        "removed",
        "root",
        "shown",
        "size",
        "skipped",
        "value",
        "worker_crashes",
    )

    def __init__(self, lane: Lane, position: int, message: Message, produced: float, origin: "Copy | None") -> None:
        self.lane = lane
        self.position = position
        self.key = message.key
        self.value = message.value
        self.headers = message.headers
        self.produced = produced
        self.origin = origin
        self.root: Copy = origin.root if origin else self
        #: the lane as a worker sees it
        self.shown: Lane = self.root.lane
        #: what the broker gives out
        self.frame = encode_frame(message.key, message.value, message.headers, lane.number, position)
        #: bytes of what a worker gets: see `Storage.publish`
        self.size = len(self.frame)
        #: how the handler fares with it: good, poison or killer
        self.kind: str = self.root.kind if origin else "good"
        #: what happened to it before it was parked
        self.failures = 0
        self.counted_failures = 0
        self.worker_crashes = 0
        self.possibly_processed = False
        self.first_failed: float | None = None
        self.not_before = 0.0
        #: when it may be delivered again at the latest
        self.ready = 0.0
        #: what became of it, in any life: acked, durably dead-lettered, durably parked again
        self.acked = False
        self.dead = False
        self.parked = False
        #: passed over by a seek or by the choice of where to start
        self.skipped = False
        #: by retention, before it was read
        self.removed = False
        #: the checker's view of its latest delivery, and the life that made it
        self.item: object = None
        self.last_delivered_by = 0
        self.asides = 0

    def __repr__(self) -> str:
        kind = "" if self.kind == "good" else f" {self.kind}"
        return f"<{self.lane}@{self.position}{kind}>"

    @property
    def over(self) -> bool:
        """Nobody owes this copy anything any more."""
        return self.acked or self.dead or self.parked or self.skipped or self.removed


class LaneLog:
    """One lane and the group's place in it."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.copies: dict[int, Copy] = {}
        #: by retention; what the sidecar has read of them it may still write aside
        self.removed: dict[int, Copy] = {}
        #: ascending; gaps are positions that never held a record, or hold none any more
        self.positions: list[int] = []
        self.end = 0
        self.start = 0
        self.committed = 0
        self.beyond: tuple[Run, ...] = ()
        #: the group has a place here
        self.pinned = False
        #: who has the lane: a source, the word "other" for another sidecar of the group, or nobody
        self.owner: object = None

    def __repr__(self) -> str:
        return str(self.lane)

    def append(self, message: Message, now: float, origin: Copy | None, gap: int) -> Copy:
        position = self.end + gap
        copy = Copy(self.lane, position, message, now, origin)
        self.copies[position] = copy
        self.positions.append(position)
        self.end = position + 1
        return copy

    def commit(self, commit: Commit) -> None:
        self.committed = commit.position
        self.beyond = commit.beyond

    def from_(self, position: int) -> int:
        """The index of the first record at or after a position."""
        return bisect_left(self.positions, position)

    def has_settled(self, position: int) -> bool:
        return position < self.committed or any(run.start <= position < run.stop for run in self.beyond)

    def remove(self, count: int, position: int) -> list[Copy]:
        """Retention: the next records from a position on are gone."""
        at = self.from_(position)
        gone = [self.copies.pop(each) for each in self.positions[at : at + count]]
        del self.positions[at : at + count]
        for copy in gone:
            copy.removed = True
            self.removed[copy.position] = copy
        return gone


class Storage:
    """All lanes of all topics, and how to tell what a worker got."""

    def __init__(self) -> None:
        self.lanes: dict[Lane, LaneLog] = {}
        self.topics: dict[str, list[LaneLog]] = {}
        #: by topic and frame as a worker sees them
        self.by_frame: dict[tuple[str, bytes], Copy] = {}
        self._by_mark: dict[bytes, Copy] = {}

    def make_topic(self, topic: str, lanes: int) -> None:
        if topic not in self.topics:
            logs = [LaneLog(Lane(topic, number)) for number in range(lanes)]
            self.topics[topic] = logs
            for log in logs:
                self.lanes[log.lane] = log

    def produce(self, lane: Lane, message: Message, now: float, gap: int, kind: str) -> Copy:
        copy = self.lanes[lane].append(message, now, None, gap)
        copy.kind = kind
        self.by_frame[lane.topic, copy.frame] = copy
        return copy

    def source_of(self, message: Message, topic: str, lane: int, position: int) -> Copy:
        """The copy that was written aside as `message`, whose record came from there."""
        for header in message.headers:
            if header.name == MARK and header.value is not None:
                return self._by_mark[header.value]
        log = self.lanes[Lane(topic, lane)]
        return log.copies.get(position) or log.removed[position]

    def park(self, message: Message, lane: Lane, origin: Copy, now: float, gap: int) -> Copy:
        """A copy in the retry topic. It is marked, and what a worker should get of it is known from here on."""
        mark = str(len(self._by_mark)).encode()
        own: Sequence[Header] = [header for header in message.headers[:-1] if header.name != MARK]
        marked = Message(message.key, message.value, (*own, Header(MARK, mark), message.headers[-1]))
        copy = self.lanes[lane].append(marked, now, origin, gap)
        self._by_mark[mark] = copy
        root = copy.root
        shown = encode_frame(copy.key, copy.value, marked.headers[:-1], root.lane.number, root.position)
        copy.size = len(shown)
        self.by_frame[root.lane.topic, shown] = copy
        return copy


def is_parked(message: Message) -> bool:
    return bool(message.headers) and message.headers[-1].name == retry_topic.HEADER

"""What the simulated broker stores: it survives every crash of the sidecar."""

from bisect import bisect_left
from collections.abc import Sequence

from sidecar.core.failures import retry_topic
from sidecar.model.records import Commit, Header, Lane, Message, Run
from sidecar.model.wire import encode_frame

#: header that tells the copies of a parked record apart
MARK = "sim-copy"


class StoredRecord:
    """A record at one position of a lane: the original or, in the retry topic, a copy of it."""

    def __init__(self, lane: Lane, position: int, message: Message, origin: "StoredRecord | None") -> None:
        self.lane = lane
        self.position = position
        self.key = message.key
        self.value = message.value
        self.headers = message.headers
        self.origin = origin
        self.root: StoredRecord = origin.root if origin else self
        #: the lane that a worker is told
        self.shown: Lane = self.root.lane
        #: as the broker sends it
        self.frame = encode_frame(message.key, message.value, message.headers, lane.number, position)
        #: bytes of what a worker gets: see `Storage.park`
        self.size = len(self.frame)
        #: what the handler does with it: good (succeeds), poison (fails) or killer (kills the worker)
        self.kind: str = self.root.kind if origin else "good"
        #: counts from before it was parked
        self.failures = 0
        self.counted_failures = 0
        self.worker_crashes = 0
        self.possibly_processed = False
        #: by the time of day of whoever parked it
        self.failed_ms: int | None = None
        self.not_before = 0.0
        #: time from which it may be delivered for sure
        self.ready = 0.0
        #: the longest wait that its parking can have asked for
        self.longest_wait = 0.0
        #: the time of day had jumped so often when it was last delivered before it was parked
        self.jumps_before = 0
        #: in any life: acked, durably dead-lettered, durably parked (again)
        self.acked = False
        self.dead = False
        self.parked = False
        #: passed over by a seek or by the choice of where to start
        self.skipped = False
        #: by retention, before it was read
        self.removed = False
        #: what the checker tracks of it in the current epoch, and the life that delivered it last
        self.item: object = None
        self.last_delivered_by = 0
        #: it was delivered when no reach was stored
        self.beyond_any_reach = False

    def __repr__(self) -> str:
        kind = "" if self.kind == "good" else f" {self.kind}"
        return f"<{self.lane}@{self.position}{kind}>"

    @property
    def over(self) -> bool:
        """Nothing more has to happen with it."""
        return self.acked or self.dead or self.parked or self.skipped or self.removed


class LaneLog:
    """One lane, and the position of the group in it."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.copies: dict[int, StoredRecord] = {}
        #: by retention; the sidecar may still park or dead-letter those that it has read
        self.removed: dict[int, StoredRecord] = {}
        #: ascending, with gaps
        self.positions: list[int] = []
        self.end = 0
        self.start = 0
        self.committed = 0
        self.beyond: tuple[Run, ...] = ()
        self.reach: int | None = None
        #: after the topic was made
        self.added = False
        #: the group has a position here
        self.pinned = False
        #: a source, "other" for another sidecar of the group, or None
        self.owner: object = None

    def __repr__(self) -> str:
        return str(self.lane)

    def append(self, message: Message, origin: StoredRecord | None, gap: int) -> StoredRecord:
        position = self.end + gap
        copy = StoredRecord(self.lane, position, message, origin)
        self.copies[position] = copy
        self.positions.append(position)
        self.end = position + 1
        return copy

    def commit(self, commit: Commit) -> None:
        self.committed = commit.position
        self.beyond = commit.beyond
        self.reach = commit.reach

    def from_(self, position: int) -> int:
        """The index of the first record at or after a position."""
        return bisect_left(self.positions, position)

    def has_settled(self, position: int) -> bool:
        return position < self.committed or any(run.start <= position < run.stop for run in self.beyond)

    def remove(self, count: int, position: int) -> list[StoredRecord]:
        """Remove the next records from a position on, as retention does."""
        at = self.from_(position)
        gone = [self.copies.pop(each) for each in self.positions[at : at + count]]
        del self.positions[at : at + count]
        for copy in gone:
            copy.removed = True
            self.removed[copy.position] = copy
        return gone


class Storage:
    """All lanes of all topics, and which stored record each frame is."""

    def __init__(self) -> None:
        self.lanes: dict[Lane, LaneLog] = {}
        self.topics: dict[str, list[LaneLog]] = {}
        #: by topic and frame as workers get them
        self.by_frame: dict[tuple[str, bytes], StoredRecord] = {}
        self._by_mark: dict[bytes, StoredRecord] = {}

    def make_topic(self, topic: str, lanes: int) -> None:
        if topic not in self.topics:
            logs = [LaneLog(Lane(topic, number)) for number in range(lanes)]
            self.topics[topic] = logs
            for log in logs:
                self.lanes[log.lane] = log

    def add_lane(self, topic: str) -> LaneLog:
        """A topic gets one more lane, which is read from its start."""
        logs = self.topics[topic]
        log = LaneLog(Lane(topic, len(logs)))
        log.added = True
        logs.append(log)
        self.lanes[log.lane] = log
        return log

    def produce(self, lane: Lane, message: Message, gap: int, kind: str) -> StoredRecord:
        copy = self.lanes[lane].append(message, None, gap)
        copy.kind = kind
        self.by_frame[lane.topic, copy.frame] = copy
        return copy

    def source_of(self, message: Message, topic: str, lane: int, position: int) -> StoredRecord:
        """The stored record that was written to a side topic as `message`, and came from that position."""
        for header in message.headers:
            if header.name == MARK and header.value is not None:
                return self._by_mark[header.value]
        log = self.lanes[Lane(topic, lane)]
        return log.copies.get(position) or log.removed[position]

    def park(self, message: Message, lane: Lane, origin: StoredRecord, gap: int) -> StoredRecord:
        """Append a marked copy to the retry topic, and register the frame that a worker must get for it."""
        mark = str(len(self._by_mark)).encode()
        own: Sequence[Header] = [header for header in message.headers[:-1] if header.name != MARK]
        marked = Message(message.key, message.value, (*own, Header(MARK, mark), message.headers[-1]))
        copy = self.lanes[lane].append(marked, origin, gap)
        self._by_mark[mark] = copy
        root = copy.root
        shown = encode_frame(copy.key, copy.value, marked.headers[:-1], root.lane.number, root.position)
        copy.size = len(shown)
        self.by_frame[root.lane.topic, shown] = copy
        return copy


def is_parked(message: Message) -> bool:
    return bool(message.headers) and message.headers[-1].name == retry_topic.HEADER

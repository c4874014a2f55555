"""Records between the poll thread and the event loop, and a count of bytes that were fetched but never got there."""

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import accumulate
from typing import Any

from sidecar.brokers.base import Advanced, LaneEvent, Polled
from sidecar.brokers.kafka.records import LaneRecords
from sidecar.model.records import Chunk, Lane

#: records with their size in bytes, or a gap between records of a lane
_Item = tuple[LaneRecords, int] | Advanced


class PollBuffer:
    """Events, and records in the order in which they came. Thread-safe.

    An `Advanced` keeps its place among the records of its lane. Other events go before everything: before one is
    added, `drop` must remove the records of an earlier epoch.
    """

    def __init__(self, on_filled: Callable[[], None]) -> None:
        """`on_filled` is called, on the thread that did it, when something was added or may be taken again."""
        self._on_filled = on_filled
        self._lock = threading.Lock()
        self._events: list[LaneEvent] = []
        self._items: deque[_Item] = deque()
        self._paused: set[Lane] = set()
        #: of lanes that are not paused: records of paused lanes must not stop the others from being fetched
        self.records = 0
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._events or self._items)

    def add_event(self, event: LaneEvent) -> None:
        with self._lock:
            if isinstance(event, Advanced):
                self._items.append(event)
            else:
                self._events.append(event)
        self._on_filled()

    def add_records(self, records: Iterable[LaneRecords]) -> None:
        items = [(each, sum(map(len, each.frames))) for each in records]
        if not items:
            return
        with self._lock:
            self._items.extend(items)
            self._count()
        self._on_filled()

    def drop(self, lanes: Collection[Lane]) -> None:
        """Drop all records and gaps of lanes."""
        with self._lock:
            self._items = deque(item for item in self._items if _lane(item) not in lanes)
            self._count()

    def pause(self, lanes: Iterable[Lane]) -> None:
        """Keep the records of these lanes until `resume`."""
        with self._lock:
            self._paused.update(lanes)
            self._count()

    def resume(self, lanes: Iterable[Lane]) -> None:
        with self._lock:
            self._paused.difference_update(lanes)
            self._count()
        self._on_filled()

    def take_back(self, lane: Lane) -> int | None:
        """Remove the records of a lane behind its last gap. Returns the position of the first; None if there are none.

        Records before a gap stay: the gap says what was lost, and would be reported twice.
        """
        with self._lock:
            start: int | None = None
            others: deque[_Item] = deque()
            while self._items:
                item = self._items.pop()
                if _lane(item) != lane:
                    others.appendleft(item)
                elif isinstance(item, Advanced):
                    self._items.append(item)
                    break
                else:
                    start = item[0].positions[0]
            self._items.extend(others)
            self._count()
        return start

    def take(self, max_records: int, max_bytes: int) -> Polled:
        """All events, and records up to the limits; one record alone may exceed `max_bytes`."""
        with self._lock:
            events, self._events = self._events, []
            chunks: list[Chunk] = []
            taken_lanes: set[Lane] = set()
            skipped: list[_Item] = []
            while self._items and max_records > 0:
                item = self._items[0]
                if _lane(item) in self._paused:
                    skipped.append(self._items.popleft())
                    continue
                if isinstance(item, Advanced):
                    if item.lane in taken_lanes:
                        # Events go before chunks: the gap must wait for the next call.
                        break
                    events.append(item)
                    self._items.popleft()
                    continue
                records, size = item
                count = _fitting(records, size, max_records, max_bytes, at_least=0 if chunks else 1)
                if not count:
                    break
                taken_lanes.add(records.lane)
                self._items.popleft()
                if count < len(records.frames):
                    rest = LaneRecords(records.lane, records.positions[count:], records.frames[count:])
                    self._items.appendleft((rest, sum(map(len, rest.frames))))
                    records = LaneRecords(records.lane, records.positions[:count], records.frames[:count])
                chunk = Chunk(*records)
                chunks.append(chunk)
                max_records -= count
                max_bytes -= chunk.ends[-1]
            self._items.extendleft(reversed(skipped))
            self._count()
        return Polled(chunks, events)

    def _count(self) -> None:
        pairs = [item for item in self._items if not isinstance(item, Advanced) and item[0].lane not in self._paused]
        self.records = sum(len(records.frames) for records, _ in pairs)
        self.bytes = sum(size for _, size in pairs)


def _fitting(records: LaneRecords, size: int, max_records: int, max_bytes: int, *, at_least: int) -> int:
    """How many of the records may be taken."""
    count = min(len(records.frames), max_records)
    if size > max_bytes:
        fitting = bisect_right(list(accumulate(map(len, records.frames[:count]))), max_bytes)
        count = min(count, max(at_least, fitting))
    return count


def _lane(item: _Item) -> Lane:
    return item.lane if isinstance(item, Advanced) else item[0].lane


class RefetchMeter:
    """Bytes that were fetched and not used: a pause discards what the library has fetched of the lane.

    Compares what the library has received, by its statistics, with what was taken from it.
    """

    def __init__(self) -> None:
        #: messages that were taken, by lane
        self._taken: dict[Lane, int] = {}
        #: never decreases
        self.bytes = 0

    def count(self, lane: Lane, messages: int) -> None:
        """This many messages were taken; a negative number: that many were discarded afterwards."""
        self._taken[lane] = self._taken.get(lane, 0) + messages

    def on_statistics(self, statistics: Mapping[str, Any]) -> None:
        """The library's statistics: what it has received since it started, and what waits to be taken."""
        refetched = 0.0
        for name, topic in statistics["topics"].items():
            for number, figures in topic["partitions"].items():
                refetched += self._refetched(Lane(name, int(number)), figures)
        self.bytes = max(self.bytes, int(refetched))

    def _refetched(self, lane: Lane, figures: Mapping[str, Any]) -> float:
        received = figures["rxmsgs"]
        if not received:
            return 0.0
        discarded: int = received - figures["fetchq_cnt"] - self._taken.get(lane, 0)
        average_size: float = figures["rxbytes"] / received
        return max(0, discarded) * average_size

"""What the poll thread has ready for the event loop. Both sides use it; it locks itself."""

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable
from itertools import accumulate

from sidecar.brokers.base import Advanced, LaneEvent, Polled
from sidecar.brokers.kafka.records import Taken
from sidecar.model.records import Chunk, Lane


class Shelf:
    """Events, and records by lane, in the order in which they came.

    An `Advanced` keeps its place among the records of its lane. Other events go before everything: whoever puts one
    makes sure with `forget` that no record of an earlier epoch is left.
    """

    def __init__(self, stocked: Callable[[], None]) -> None:
        """`stocked` is called on the thread that puts something on the empty shelf."""
        self._stocked = stocked
        self._lock = threading.Lock()
        self._events: list[LaneEvent] = []
        self._items: deque[tuple[Taken, int] | Advanced] = deque()
        self._paused: set[Lane] = set()
        #: of the items that may be taken: what waits for a paused lane must not keep the others from being fetched
        self.records = 0
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._events or self._items)

    def tell(self, event: LaneEvent) -> None:
        with self._lock:
            if isinstance(event, Advanced):
                self._items.append(event)
            else:
                self._events.append(event)
        self._stocked()

    def put(self, taken: Iterable[Taken]) -> None:
        items = [(each, sum(map(len, each.frames))) for each in taken]
        if not items:
            return
        with self._lock:
            self._items.extend(items)
            self._count()
        self._stocked()

    def forget(self, lanes: Collection[Lane]) -> None:
        """Drop all records of lanes, and what is said of their gaps."""
        with self._lock:
            self._items = deque(item for item in self._items if _lane(item) not in lanes)
            self._count()

    def pause(self, lanes: Iterable[Lane]) -> None:
        """Nothing of these lanes is taken from now on."""
        with self._lock:
            self._paused.update(lanes)
            self._count()

    def resume(self, lanes: Iterable[Lane]) -> None:
        with self._lock:
            self._paused.difference_update(lanes)
            self._count()
        self._stocked()

    def withdraw(self, lane: Lane) -> int | None:
        """Take back the records of a lane, as far as nothing but records follows. Answers where they began."""
        with self._lock:
            kept: deque[tuple[Taken, int] | Advanced] = deque()
            start: int | None = None
            items = list(self._items)
            last = max(
                (at for at, item in enumerate(items) if isinstance(item, Advanced) and item.lane == lane), default=-1
            )
            for at, item in enumerate(items):
                if at > last and not isinstance(item, Advanced) and item[0].lane == lane:
                    start = item[0].positions[0] if start is None else start
                else:
                    kept.append(item)
            self._items = kept
            self._count()
        return start

    def take(self, max_records: int, max_bytes: int) -> Polled:
        """Everything that happened, and records up to the limits; one record alone may exceed `max_bytes`."""
        with self._lock:
            events, self._events = self._events, []
            chunks: list[Chunk] = []
            touched: set[Lane] = set()
            held: list[tuple[Taken, int] | Advanced] = []
            while self._items and max_records > 0:
                item = self._items[0]
                if _lane(item) in self._paused:
                    held.append(self._items.popleft())
                    continue
                if isinstance(item, Advanced):
                    if item.lane in touched:
                        break
                    events.append(item)
                    self._items.popleft()
                    continue
                taken, size = item
                count = self._fitting(taken, size, max_records, max_bytes, at_least=0 if chunks else 1)
                if not count:
                    break
                touched.add(taken.lane)
                self._items.popleft()
                if count < len(taken.frames):
                    rest = Taken(taken.lane, taken.positions[count:], taken.frames[count:])
                    self._items.appendleft((rest, sum(map(len, rest.frames))))
                    taken = Taken(taken.lane, taken.positions[:count], taken.frames[:count])
                chunk = Chunk(taken.lane, taken.positions, taken.frames)
                chunks.append(chunk)
                max_records -= count
                max_bytes -= chunk.ends[-1]
            self._items.extendleft(reversed(held))
            self._count()
        return Polled(chunks, events)

    def _fitting(self, taken: Taken, size: int, max_records: int, max_bytes: int, *, at_least: int) -> int:
        count = min(len(taken.frames), max_records)
        if size > max_bytes:
            fitting = bisect_right(list(accumulate(map(len, taken.frames[:count]))), max_bytes)
            count = min(count, max(at_least, fitting))
        return count

    def _count(self) -> None:
        pairs = [item for item in self._items if not isinstance(item, Advanced) and item[0].lane not in self._paused]
        self.records = sum(len(taken.frames) for taken, _ in pairs)
        self.bytes = sum(size for _, size in pairs)


def _lane(item: tuple[Taken, int] | Advanced) -> Lane:
    return item.lane if isinstance(item, Advanced) else item[0].lane

"""The contract's Source on the embedded broker: one group's consumption."""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from sidecar.brokers.base import Advanced, LaneEnd, LaneEvent, Polled, SeekTarget, Source, SourceSpec, Trouble
from sidecar.brokers.local.blocks import without
from sidecar.brokers.local.queries import LaneQuery, LaneRecords, group_state, read_lanes
from sidecar.model.errors import LaneGone, NotFound, Refused, Unavailable
from sidecar.model.records import Assigned, Chunk, Commit, Lane, Run

if TYPE_CHECKING:
    from sidecar.brokers.local.broker import LocalBroker
    from sidecar.brokers.local.catalog import LaneView

#: records; a smaller share would cost more than it brings, so fewer lanes are read instead
_LEAST_SHARE = 256


@dataclass(slots=True, eq=False)
class _LaneReader:
    """How far this source is in a lane."""

    view: "LaneView"
    #: the next position to deliver
    next: int
    #: runs after `next` that were settled before the source was opened
    settled: tuple[Run, ...]
    #: counts seeks: what was read in an earlier epoch is dropped
    epoch: int = 0
    paused: bool = False
    seeking: bool = False
    #: cannot be read further; a seek ends it
    damaged: bool = False

    @property
    def backlog(self) -> int:
        """Positions that may be read now."""
        return 0 if self.paused or self.seeking or self.damaged else self.view.end - self.next


class LocalSource(Source):
    """All state belongs to the event loop. A lane advances in the same step in which `poll` returns its records, so a
    cancelled poll loses nothing."""

    def __init__(self, broker: "LocalBroker", spec: SourceSpec) -> None:
        self.spec = spec
        self.topics = frozenset((*spec.topics, *spec.own_topics))
        self._broker = broker
        self._group = 0
        self._lanes: dict[Lane, _LaneReader] = {}
        #: indexes of lanes: of the first to read at the next poll, and of the next that are read after it
        self._first = self._turn = 0
        self._events: list[LaneEvent] = []
        self._wake = asyncio.Event()

    async def open(self) -> None:
        self._broker.enter(self)
        try:
            opened = await self._broker.write(lambda store: store.groups.open(self.spec))
        except BaseException:
            self._broker.exit(self)
            raise
        self._group = opened.id
        for lane, commit in opened.cursors.items():
            self._assign(self._broker.view(lane), commit, first=lane in opened.new)
        # Lanes that were added meanwhile.
        for topic in self.topics:
            for view in self._broker.views(topic):
                self.add(view)
        if self._broker.trouble:
            self.tell(Trouble("disk", self._broker.trouble))

    async def poll(self, max_records: int, max_bytes: int, timeout: float) -> Polled:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            self._wake.clear()
            chunks: list[Chunk] = []
            readers = self._next_lanes(max_records)
            queries = [self._query(reader) for reader in readers]
            if readers:
                epochs = [reader.epoch for reader in readers]
                taken = await self._broker.read_with(read_lanes, queries, max_records, max_bytes)
                chunks = self._accept(readers, epochs, taken)
            if chunks or self._events:
                events, self._events = self._events, []
                return Polled(chunks, events)
            if any(reader.next != query.run.start for reader, query in zip(readers, queries, strict=True)):
                # Lanes have only advanced over settled records. Other lanes may have records.
                continue
            try:
                async with asyncio.timeout_at(deadline):
                    await self._wake.wait()
            except TimeoutError:
                return Polled()

    async def commit(self, commits: Mapping[Lane, Commit]) -> None:
        known: dict[int, Commit] = {}
        gone = []
        for lane, commit in commits.items():
            reader = self._lanes.get(lane)
            if reader is None:
                gone.append(lane)
                continue
            end = reader.view.end
            if not 0 <= commit.position <= end or (commit.beyond and commit.beyond[-1].stop > end):
                raise Refused(f"{lane} ends at {end}: {commit} is not in it.")
            known[reader.view.id] = commit
        if known:
            await self._broker.write(lambda store: store.groups.save(self._group, known))
        if gone:
            raise LaneGone(gone)

    async def release(self, lanes: Collection[Lane]) -> None:
        """Lanes of the embedded broker never move away."""

    async def pause(self, lanes: Collection[Lane]) -> None:
        for lane in lanes:
            if lane in self._lanes:
                self._lanes[lane].paused = True

    async def resume(self, lanes: Collection[Lane]) -> None:
        for lane in lanes:
            if lane in self._lanes:
                self._lanes[lane].paused = False
        self._wake.set()

    async def seek(self, lanes: Mapping[Lane, SeekTarget]) -> Mapping[Lane, int]:
        unknown = [str(lane) for lane in lanes if lane not in self._lanes]
        if unknown:
            raise NotFound(f"Group {self.spec.group!r} has no lane {', '.join(unknown)}.")
        readers = {lane: self._lanes[lane] for lane in lanes}
        for reader in readers.values():
            reader.seeking = True
            reader.epoch += 1
        try:
            positions = {lane: await self._broker.resolve(readers[lane].view, target) for lane, target in lanes.items()}
            commits = {readers[lane].view.id: Commit(position) for lane, position in positions.items()}
            await self._broker.write(lambda store: store.groups.save(self._group, commits))
        finally:
            for reader in readers.values():
                reader.seeking = False
            self._wake.set()
        for lane, position in positions.items():
            self._clear_damage(readers[lane])
            readers[lane].next, readers[lane].settled = position, ()
            self.tell(Assigned(lane, position))
        return positions

    async def ends(self) -> Mapping[Lane, LaneEnd]:
        return {lane: LaneEnd(reader.view.start, reader.view.end) for lane, reader in self._lanes.items()}

    async def left_behind(self) -> Mapping[Lane, Run]:
        if not self._group:
            raise Unavailable("The source is not open.")
        state = await self._broker.read_with(group_state, self._group)
        found: dict[Lane, Run] = {}
        for lane, position in state.positions.items():
            view = self._broker.view(lane)
            if lane.topic not in self.topics and position < view.end:
                found[lane] = Run(max(position, view.start), view.end)
        return found

    async def close(self) -> None:
        self._lanes.clear()
        self._broker.exit(self)

    # Called by the broker.

    def wake(self) -> None:
        """Something was published or removed."""
        self._wake.set()

    def add(self, view: "LaneView") -> None:
        """A topic has a new lane."""
        if self._group and view.lane not in self._lanes:
            self._assign(view, Commit(view.start), first=True)

    def tell(self, event: LaneEvent) -> None:
        self._events.append(event)
        self._wake.set()

    def _assign(self, view: "LaneView", commit: Commit, *, first: bool) -> None:
        self._lanes[view.lane] = _LaneReader(view, commit.position, commit.beyond)
        self.tell(Assigned(view.lane, commit.position, commit.beyond, first, reach=commit.reach))

    def _next_lanes(self, max_records: int) -> list[_LaneReader]:
        """The lanes to read next. Each lane is the first in turn, and then gets a record even if that is large. The
        others are sorted by backlog, so that what one with few records leaves of its share goes to those after it."""
        self._skip_removed()
        lanes = list(self._lanes.values())
        ready = [index for index, reader in enumerate(lanes) if reader.backlog > 0]
        if not ready:
            return []
        first = _rotate(ready, self._first)[0]
        # The others rotate by themselves, several lanes at once, so that a lane need not wait until it is the first.
        # If the same index were used for the first one, that might always be one of the same few lanes.
        others = [index for index in _rotate(ready, self._turn) if index != first]
        del others[max(0, max_records // _LEAST_SHARE - 1) :]
        self._first = first + 1
        if others:
            self._turn = others[-1] + 1
        return [lanes[first], *sorted((lanes[index] for index in others), key=lambda reader: reader.backlog)]

    def _skip_removed(self) -> None:
        """Advances lanes over records that retention has removed unread."""
        for lane, reader in self._lanes.items():
            start = reader.view.start
            if reader.next < start:
                lost = sum(stop - first for first, stop in without(Run(reader.next, start), reader.settled))
                reader.next = start
                self._clear_damage(reader)
                self._events.append(Advanced(lane, start, lost))

    def _query(self, reader: _LaneReader) -> LaneQuery:
        view = reader.view
        return LaneQuery(view.id, view.lane, Run(reader.next, view.end), reader.settled)

    def _accept(
        self, readers: Sequence[_LaneReader], epochs: Sequence[int], taken: Sequence[LaneRecords]
    ) -> list[Chunk]:
        chunks: list[Chunk] = []
        for reader, epoch, each in zip(readers, epochs, taken, strict=False):
            # Sought, paused or closed meanwhile: it is read again later.
            if reader.epoch != epoch or reader.paused or each.lane not in self._lanes:
                continue
            reader.next = each.position
            passed = bisect_right(reader.settled, each.position, key=attrgetter("stop"))
            reader.settled = reader.settled[passed:]
            chunks += each.chunks
            if each.damage:
                reader.damaged = True
                text = f"{each.lane} is held: {each.damage}. The other lanes continue; this one after a seek past it."
                self._events.append(Trouble(f"damage in {each.lane}", text))
        return chunks

    def _clear_damage(self, reader: _LaneReader) -> None:
        """The lane has moved past what could not be read."""
        if reader.damaged:
            reader.damaged = False
            self.tell(Trouble(f"damage in {reader.view.lane}", ""))


def _rotate(indexes: Sequence[int], start: int) -> list[int]:
    """The ascending indexes, rotated to begin with the first that is not below `start`."""
    at = bisect_left(indexes, start)
    return [*indexes[at:], *indexes[:at]]

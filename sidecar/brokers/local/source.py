"""One group's consumption of the local broker."""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from sidecar.brokers.base import Advanced, LaneEnd, LaneEvent, Polled, SeekTarget, Source, SourceSpec, Trouble
from sidecar.brokers.local.blocks import without
from sidecar.brokers.local.queries import Taken, Want, take
from sidecar.model.errors import LaneGone, NotFound, Refused
from sidecar.model.records import Assigned, Chunk, Commit, Lane, Run

if TYPE_CHECKING:
    from sidecar.brokers.local.broker import LocalBroker
    from sidecar.brokers.local.views import LaneView

#: records; visiting more lanes for less than this each would cost more than it gives
_LEAST_SHARE = 256


@dataclass(slots=True, eq=False)
class _Reading:
    """Where this source is in a lane."""

    view: "LaneView"
    #: the next position to deliver
    next: int
    #: runs from `next` on that were settled before
    settled: tuple[Run, ...]
    #: ends when the lane is moved: what was read in an earlier epoch is dropped
    epoch: int = 0
    paused: bool = False
    #: is being moved
    seeking: bool = False
    #: cannot be read on; a seek ends it
    damaged: bool = False

    @property
    def backlog(self) -> int:
        """Positions that may be read now."""
        return 0 if self.paused or self.seeking or self.damaged else self.view.end - self.next


class LocalSource(Source):
    """All state is touched on the event loop. A lane moves on in the step in which its records are returned, so
    that a cancelled poll loses nothing."""

    def __init__(self, broker: "LocalBroker", spec: SourceSpec) -> None:
        self.spec = spec
        self.topics = frozenset((*spec.topics, *spec.own_topics))
        self._broker = broker
        self._group = 0
        self._lanes: dict[Lane, _Reading] = {}
        #: the lane that is first at the next poll, and the one from which on others go along
        self._first = self._turn = 0
        self._events: list[LaneEvent] = []
        self._wake = asyncio.Event()

    async def open(self) -> None:
        self._broker.enter(self)
        try:
            opened = await self._broker.write(lambda store: store.cursors.open_group(self.spec))
        except BaseException:
            self._broker.exit(self)
            raise
        self._group = opened.id
        for lane, commit in opened.cursors.items():
            self._assign(self._broker.view(lane), commit, first=lane in opened.new)
        # Lanes that came while the answer was on its way.
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
            readings = self._choose(max_records)
            wants = [self._want(reading) for reading in readings]
            if readings:
                epochs = [reading.epoch for reading in readings]
                taken = await self._broker.read_with(take, wants, max_records, max_bytes)
                chunks = self._accept(readings, epochs, taken)
            if chunks or self._events:
                events, self._events = self._events, []
                return Polled(chunks, events)
            if any(reading.next != want.run.start for reading, want in zip(readings, wants, strict=True)):
                # They only came on over what was settled before: it is the turn of others, which may have records.
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
            reading = self._lanes.get(lane)
            if reading is None:
                gone.append(lane)
                continue
            end = reading.view.end
            if not 0 <= commit.position <= end or (commit.beyond and commit.beyond[-1].stop > end):
                raise Refused(f"{lane} ends at {end}: {commit} is not in it.")
            known[reading.view.id] = commit
        if known:
            await self._broker.write(lambda store: store.cursors.save(self._group, known))
        if gone:
            raise LaneGone(gone)

    async def release(self, lanes: Collection[Lane]) -> None:
        """Lanes of the local broker never move away."""

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
        readings = {lane: self._lanes[lane] for lane in lanes}
        for reading in readings.values():
            reading.seeking = True
            reading.epoch += 1
        try:
            positions = {
                lane: await self._broker.resolve(readings[lane].view, target) for lane, target in lanes.items()
            }
            commits = {readings[lane].view.id: Commit(position) for lane, position in positions.items()}
            await self._broker.write(lambda store: store.cursors.save(self._group, commits))
        finally:
            for reading in readings.values():
                reading.seeking = False
            self._wake.set()
        for lane, position in positions.items():
            self._mend(readings[lane])
            readings[lane].next, readings[lane].settled = position, ()
            self.tell(Assigned(lane, position))
        return positions

    async def ends(self) -> Mapping[Lane, LaneEnd]:
        return {lane: LaneEnd(reading.view.start, reading.view.end) for lane, reading in self._lanes.items()}

    async def close(self) -> None:
        self._lanes.clear()
        self._broker.exit(self)

    # What the broker tells.

    def wake(self) -> None:
        """Something was published or removed."""
        self._wake.set()

    def add(self, view: "LaneView") -> None:
        """A topic got a lane."""
        if self._group and view.lane not in self._lanes:
            self._assign(view, Commit(view.start), first=True)

    def tell(self, event: LaneEvent) -> None:
        self._events.append(event)
        self._wake.set()

    def _assign(self, view: "LaneView", commit: Commit, *, first: bool) -> None:
        self._lanes[view.lane] = _Reading(view, commit.position, commit.beyond)
        self.tell(Assigned(view.lane, commit.position, commit.beyond, first))

    def _choose(self, max_records: int) -> list[_Reading]:
        """The lanes to read next. The first is another one each time, each lane in its turn: it gets a record even if
        that is large. The others stand by their backlog, so that what a trickling lane leaves of its share goes to the
        others."""
        self._skip_removed()
        lanes = list(self._lanes.values())
        ready = [index for index, reading in enumerate(lanes) if reading.backlog > 0]
        if not ready:
            return []
        first = _from(ready, self._first)[0]
        # Those that go along have a turn of their own, as many steps at once: a lane with little need not wait until it
        # is the first. If that moved the first one, too, it might always be one of the same few.
        others = [index for index in _from(ready, self._turn) if index != first]
        del others[max(0, max_records // _LEAST_SHARE - 1) :]
        self._first = first + 1
        if others:
            self._turn = others[-1] + 1
        return [lanes[first], *sorted((lanes[index] for index in others), key=lambda reading: reading.backlog)]

    def _skip_removed(self) -> None:
        """Retention may have taken what was not read."""
        for lane, reading in self._lanes.items():
            start = reading.view.start
            if reading.next < start:
                lost = sum(stop - first for first, stop in without(Run(reading.next, start), reading.settled))
                reading.next = start
                self._mend(reading)
                self._events.append(Advanced(lane, start, lost))

    def _want(self, reading: _Reading) -> Want:
        view = reading.view
        return Want(view.id, view.lane, Run(reading.next, view.end), reading.settled)

    def _accept(self, readings: Sequence[_Reading], epochs: Sequence[int], taken: Sequence[Taken]) -> list[Chunk]:
        chunks: list[Chunk] = []
        for reading, epoch, each in zip(readings, epochs, taken, strict=False):
            # Moved, paused or closed while it was read: it will be read again.
            if reading.epoch != epoch or reading.paused or each.lane not in self._lanes:
                continue
            reading.next = each.position
            passed = bisect_right(reading.settled, each.position, key=attrgetter("stop"))
            reading.settled = reading.settled[passed:]
            chunks += each.chunks
            if each.damage:
                reading.damaged = True
                text = (
                    f"{each.lane} is held: {each.damage}. The other lanes go on; seek past it to go on with this one."
                )
                self._events.append(Trouble(f"damage in {each.lane}", text))
        return chunks

    def _mend(self, reading: _Reading) -> None:
        """The lane is moved past what could not be read."""
        if reading.damaged:
            reading.damaged = False
            self.tell(Trouble(f"damage in {reading.view.lane}", ""))


def _from(indexes: Sequence[int], start: int) -> list[int]:
    """The same ones, all around, from the first that is not below `start`."""
    at = bisect_left(indexes, start)
    return [*indexes[at:], *indexes[:at]]

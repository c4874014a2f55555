"""The simulated group membership of one life of the sidecar."""

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from sidecar.brokers.base import (
    Advanced,
    AtPosition,
    LaneEnd,
    LaneEvent,
    Lost,
    Polled,
    Revoked,
    SeekTarget,
    SeekTo,
    Source,
    SourceSpec,
)
from sidecar.model.errors import LaneGone, Unavailable
from sidecar.model.records import Assigned, Chunk, Commit, Lane
from tests.simulation.storage import Copy, LaneLog

if TYPE_CHECKING:
    from tests.simulation.broker import SimBroker


class Lanes(frozenset[Lane]):
    """A set of lanes whose order does not depend on the hash seed, so that a seed reproduces a history anywhere."""

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(sorted(super().__iter__()))


class Reading:
    """Where this life is in one lane that it has."""

    __slots__ = ("leaving", "log", "next", "paused", "paused_at", "start", "told")

    def __init__(self, log: LaneLog) -> None:
        self.log = log
        self.start = self.next = log.committed
        self.paused = False
        self.paused_at = 0.0
        #: its Assigned was polled
        self.told = False
        #: revoked: nothing more is sent; gone as soon as it is released, or when the grace is over
        self.leaving = False


class SimSource(Source):
    """Dies with `crash`: from then on it answers nothing and changes nothing."""

    def __init__(self, broker: "SimBroker", spec: SourceSpec) -> None:
        self._broker = broker
        self._world = broker.world
        self._truth = broker.truth
        self._faults = broker.faults
        self._spec = spec
        self.dead = False
        self.opened = False
        self.readings: dict[Lane, Reading] = {}
        self._events: list[LaneEvent] = []
        self._waiter: asyncio.Future[None] | None = None
        self._turn = 0
        #: the next poll may still bring records of these
        self._leaks: set[Lane] = set()

    # What the world does to it

    def crash(self) -> None:
        self.dead = True
        for reading in self.readings.values():
            if reading.log.owner is self:
                reading.log.owner = None

    def look(self) -> None:
        """There may be something to poll."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def logs(self) -> list[LaneLog]:
        topics = (*self._spec.topics, *self._spec.own_topics)
        return [log for topic in topics for log in self._broker.storage.topics[topic]]

    def assign(self, log: LaneLog) -> None:
        log.owner = self
        first = self._broker.pin(log, self._spec.start)
        self._begin(log, first=first)

    def _begin(self, log: LaneLog, *, first: bool) -> None:
        before = self.readings.get(log.lane)
        self.readings[log.lane] = Reading(log)
        if before is not None:
            # A seek moves a lane; whether it was paused is another matter.
            self.readings[log.lane].paused = before.paused
            self.readings[log.lane].paused_at = self._world.now
        self._events = [event for event in self._events if getattr(event, "lane", None) != log.lane]
        self._events.append(Assigned(log.lane, log.committed, log.beyond, first))
        self.look()

    def revoke(self, lanes: Collection[Lane], grace: float) -> None:
        mine = [lane for lane in lanes if lane in self.readings and not self.readings[lane].leaving]
        for lane in mine:
            self.readings[lane].leaving = True
        told = [lane for lane in mine if self.readings[lane].told]
        for lane in mine:
            if lane not in told:
                self._take_away(lane)
        if told:
            self._events.append(Revoked(Lanes(told), grace))
            self._world.loop.call_later(grace * self._world.rng.uniform(1.0, 2.5) + 0.3, self._grace_is_over, told)
        self.look()

    def lose(self, lanes: Collection[Lane]) -> None:
        mine = [lane for lane in lanes if lane in self.readings]
        told = [lane for lane in mine if self.readings[lane].told]
        for lane in mine:
            self._take_away(lane)
        if told:
            self._events.append(Lost(Lanes(told)))
        self.look()

    def _take_away(self, lane: Lane) -> None:
        reading = self.readings.pop(lane)
        reading.log.owner = "other"
        self._events = [event for event in self._events if getattr(event, "lane", None) != lane]

    def _grace_is_over(self, lanes: Collection[Lane]) -> None:
        late = [lane for lane in lanes if lane in self.readings and self.readings[lane].leaving]
        if late and not self.dead:
            self._world.exercised("grace is over before the release")
            self.lose(late)

    # The contract

    async def open(self) -> None:
        await self._pause_a_moment()
        if self._faults.counted_failures("open fails"):
            raise Unavailable("the broker does not answer")
        self.opened = True
        for log in self.logs():
            if log.owner is None:
                self.assign(log)

    async def poll(self, max_records: int, max_bytes: int, timeout: float) -> Polled:
        rng = self._world.rng
        await self._living()
        if self._faults.counted_failures("poll fails"):
            self._truth.flow.poll_trouble = self._world.now
            raise Unavailable("the broker does not answer")
        if self._faults.counted_failures("poll is slow"):
            await asyncio.sleep(rng.uniform(0.0, timeout))
        polled = self._collect(max_records, max_bytes)
        if polled is None:
            self._waiter = self._world.loop.create_future()
            timer = self._world.loop.call_later(timeout, self.look)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
            await self._living()
            polled = self._collect(max_records, max_bytes)
        if polled is None:
            return Polled()
        self._truth.polled(self, polled)
        return polled

    def _collect(self, max_records: int, max_bytes: int) -> Polled | None:
        rng = self._world.rng
        events, self._events = self._events, []
        for event in events:
            if isinstance(event, Assigned):
                self.readings[event.lane].told = True
        chunks: list[Chunk] = []
        readings = [reading for reading in self.readings.values() if reading.told and not reading.leaving]
        if readings and not (events and rng.random() < 0.3):
            self._turn += 1
            turn = self._turn % len(readings)
            share = max(1, max_records // len(readings)) if rng.random() < 0.7 else max_records
            for reading in readings[turn:] + readings[:turn]:
                if max_records < 1 or (chunks and max_bytes < 1):
                    break
                if reading.paused and reading.log.lane not in self._leaks:
                    continue
                chunk = self._read(reading, min(share, max_records), max_bytes, events, force=not chunks)
                if chunk is not None:
                    chunks.append(chunk)
                    max_records -= len(chunk.positions)
                    max_bytes -= chunk.ends[-1]
            self._leaks.clear()
        if chunks and rng.random() < 0.05:
            self._world.exercised("events come before the records of the same poll")
        return Polled(chunks, events) if chunks or events else None

    def _read(self, reading: Reading, records: int, size: int, events: list[LaneEvent], *, force: bool) -> Chunk | None:
        log, rng = reading.log, self._world.rng
        if reading.next > reading.start and self._faults.counted_failures("poll repeats records"):
            reading.next = max(reading.start, reading.next - rng.randrange(1, 6))
        at = log.from_(reading.next)
        upto = log.positions[at] if at < len(log.positions) else log.end
        if upto > reading.next and (at == len(log.positions) or rng.random() < 0.3):
            # A gap: what is told first may not pass what is in the same answer.
            events.append(Advanced(log.lane, upto))
            self._world.exercised("a gap is told")
            reading.next = upto
        copies: list[Copy] = []
        used = 0
        skips = self._broker.skips_settled
        most = min(records, rng.choice((1, 5, 1000, 1000)))
        for position in log.positions[at:]:
            if skips and log.has_settled(position):
                reading.next = position + 1
                continue
            copy = log.copies[position]
            used += len(copy.frame)
            if len(copies) == most or (used > size and (copies or not force)):
                break
            copies.append(copy)
            reading.next = position + 1
        if not copies:
            return None
        return Chunk(log.lane, [copy.position for copy in copies], [copy.frame for copy in copies])

    async def commit(self, commits: Mapping[Lane, Commit]) -> None:
        await self._living()
        world, faults = self._world, self._faults
        epochs = self._truth.commit_begins(self, commits)
        # One that was assigned again, and was not told so yet, is another epoch.
        readings = {lane: reading for lane in commits if (reading := self.readings.get(lane)) and reading.told}
        applied = False
        try:
            if faults.counted_failures("commit hangs"):
                self._truth.flow.commit_trouble = world.now + 1000.0
                await asyncio.sleep(1000.0)
            elif faults.counted_failures("commit is slow"):
                delay = world.rng.uniform(0.05, 2.0)
                self._truth.flow.commit_trouble = world.now + delay
                await asyncio.sleep(delay)
            elif world.rng.random() < 0.5:
                await asyncio.sleep(world.rng.uniform(0.0, 0.02))
            if faults.counted_failures("commit fails"):
                self._truth.flow.commit_trouble = world.now
                raise Unavailable("the commit failed")
            applied = True
            gone = self._apply(commits, readings, epochs)
        except asyncio.CancelledError:
            # Nobody waits for the answer any more; the broker may have got it all the same.
            self._truth.flow.commit_trouble = world.now
            if not applied and faults.on and world.rng.random() < 0.5:
                world.exercised("a commit is applied that nobody waits for")
                self._apply(commits, readings, epochs)
            raise
        if faults.counted_failures("commit fails after it was applied"):
            self._truth.flow.commit_trouble = world.now
            raise Unavailable("no answer to the commit")
        self._truth.committed({lane: commit for lane, commit in commits.items() if lane not in gone})
        if gone:
            world.exercised("a commit meets a lane that is gone")
            self._truth.flow.commit_trouble = world.now
            self._truth.lanes_gone([lane for lane in gone if self._truth.epochs.get(lane) is epochs[lane]], "commit")
            raise LaneGone(gone)

    def _apply(
        self, commits: Mapping[Lane, Commit], readings: Mapping[Lane, Reading], epochs: Mapping[Lane, object]
    ) -> list[Lane]:
        gone = []
        for lane, commit in commits.items():
            reading = readings.get(lane)
            if reading is None or self.readings.get(lane) is not reading:
                gone.append(lane)
                continue
            if self.dead and reading.log.owner is not None:
                gone.append(lane)
                continue
            self._truth.check_commit(lane, commit, epochs[lane])
            reading.log.commit(commit)
            self._world.happened("committed", lane, commit.position, commit.beyond)
        return gone

    async def release(self, lanes: Collection[Lane]) -> None:
        if self.dead:
            return
        self._truth.released(self, lanes)
        for lane in lanes:
            reading = self.readings.get(lane)
            if reading is not None and reading.leaving:
                del self.readings[lane]
                reading.log.owner = "other"

    async def pause(self, lanes: Collection[Lane]) -> None:
        await self._living()
        if self._faults.counted_failures("pause is slow"):
            await asyncio.sleep(self._world.rng.uniform(0.0, 0.5))
        for lane in sorted(lanes):
            if lane in self.readings:
                self.readings[lane].paused = True
                self.readings[lane].paused_at = self._world.now
                if self._faults.counted_failures("poll leaks a paused lane"):
                    self._leaks.add(lane)

    async def resume(self, lanes: Collection[Lane]) -> None:
        await self._living()
        if self._faults.counted_failures("pause is slow"):
            await asyncio.sleep(self._world.rng.uniform(0.0, 0.5))
        for lane in lanes:
            if lane in self.readings:
                self.readings[lane].paused = False
        self.look()

    async def seek(self, lanes: Mapping[Lane, SeekTarget]) -> Mapping[Lane, int]:
        await self._living()
        await self._pause_a_moment()
        if self._faults.counted_failures("seek fails"):
            raise Unavailable("the seek failed")
        missing = [lane for lane in lanes if lane not in self.readings or self.readings[lane].leaving]
        positions = {}
        for lane, target in lanes.items():
            if lane in missing:
                continue
            log = self.readings[lane].log
            if isinstance(target, AtPosition):
                position = min(max(target.position, log.start), log.end)
            elif target is SeekTo.START:
                position = log.start
            else:
                position = log.end
            positions[lane] = position
            for copy in log.copies.values():
                if copy.position < position and not copy.over:
                    copy.skipped = True
            log.committed, log.beyond = position, ()
            self._begin(log, first=False)
            self._truth.sought(lane)
        if self._world.rng.random() < 0.5:
            # The new epoch may begin while the answer is on its way.
            await self._pause_a_moment()
        self._truth.lanes_gone_before_seek_returns(positions)
        if missing:
            raise LaneGone(missing)
        return positions

    async def ends(self) -> Mapping[Lane, LaneEnd]:
        return {lane: LaneEnd(reading.log.start, reading.log.end) for lane, reading in self.readings.items()}

    async def close(self) -> None:
        if self.dead:
            return
        self._truth.closed(self)
        self.crash()

    async def _living(self) -> None:
        if self.dead:
            await asyncio.get_running_loop().create_future()

    async def _pause_a_moment(self) -> None:
        if self._world.rng.random() < 0.5:
            await asyncio.sleep(self._world.rng.uniform(0.0, 0.05))
